"""Whether a pod template has the shape of one. An overlay may be anything, and it is the API server that refuses it by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LISTS_OF_TEXT = ("command", "args")


def is_readable(template: Mapping[str, Any]) -> bool:
    """Whether what is read of a template is of the type that it has in Kubernetes.

    Read are containers, and of them image, command, arguments, environment and ports.

    Args:
        template: A finished pod template.
    """
    spec = template.get("spec")
    if not isinstance(spec, Mapping) or not _is_list(spec.get("containers"), Mapping):
        return False
    return all(map(_is_container, spec.get("containers") or ()))


def _is_container(container: Mapping[str, Any]) -> bool:
    return (
        isinstance(container.get("image") or "", str)
        and all(_is_list(container.get(name), str) for name in _LISTS_OF_TEXT)
        and _is_list(container.get("ports"), Mapping)
        and _is_list(variables := container.get("env"), Mapping)
        and all(isinstance(variable.get("name"), str) for variable in variables or ())
    )


def _is_list(value: object, kind: type) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, kind) for item in value))
