"""Which release of an engine an image holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from disagg.api.names import ENGINE_VERSION

Release = tuple[int, ...]
"""Major, minor and, where it is told, patch."""

_TAG = re.compile(r":v?(\d+)\.(\d+)(?:\.(\d+))?[^/:@]*(?:@sha256:[0-9a-f]+)?$")
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def release(version: str | None, image: str) -> Release | None:
    """The release, or None where neither `engine.version` nor the tag of the image tells it.

    Args:
        version: engine.version, or None.
        image: Reference of the image.
    """
    found = _VERSION.match(version) if version is not None else _TAG.search(image)
    return None if found is None else tuple(int(part) for part in found.groups() if part is not None)


def told(template: Mapping[str, Any]) -> str | None:
    """engine.version, as a finished pod template has it."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    found = annotations.get(ENGINE_VERSION)
    return None if found is None else str(found)


def note(engine: str, found: Release | None, newest: Release) -> list[str]:
    """What to tell a user whose release the operator does not know: it is treated as the newest known one.

    Args:
        engine: Name of the engine.
        found: Its release, or None.
        newest: Newest release that the operator was made for.
    """
    known = ".".join(map(str, newest))
    if found is None:
        return [f"the image does not tell its release of {engine}: started like {known}; set engine.version"]
    if found[: len(newest)] > newest:
        return [f"{engine} {'.'.join(map(str, found))} is newer than this operator: started like {known}"]
    return []
