"""The rules of the CRD, evaluated as the API server does: what it would refuse is known before there is a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from disagg.api.crd import crd

try:
    import cel
except ModuleNotFoundError:
    # The operator never needs it, and its image leaves it out.
    cel = None  # type: ignore[assignment]

Schema = Mapping[str, Any]


def can_be_checked() -> bool:
    """Whether the library that evaluates the rules is installed."""
    return cel is not None


def violations(document: Mapping[str, Any]) -> list[str]:
    """What the rules of the CRD have against a resource, each as the API server would say it.

    Args:
        document: The resource as its user has written it. One that does not fit the schema is another's to refuse.
    """
    (version,) = crd()["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    return list(_violations(schema, _with_defaults(schema, dict(document)), ""))


def _violations(schema: Schema, value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - whatever the user has written
    for rule in schema.get("x-kubernetes-validations", ()):
        context = _context(value)
        if not cel.evaluate(rule["rule"], context):
            message = cel.evaluate(rule["messageExpression"], context)
            place = f"{path}{rule.get('fieldPath', '')}"
            yield f"{place}: {message}" if place else str(message)
    for child, content, at in _children(schema, value, path):
        yield from _violations(child, content, at)


def _children(schema: Schema, value: Any, path: str) -> Iterator[tuple[Schema, Any, str]]:  # noqa: ANN401
    if isinstance(value, Mapping):
        for name, child in schema.get("properties", {}).items():
            if name in value:
                yield child, value[name], f"{path}.{name}" if path else name
    elif isinstance(value, list) and "items" in schema:
        for number, content in enumerate(value):
            yield schema["items"], content, f"{path}[{number}]"


def _with_defaults(schema: Schema, value: Any) -> Any:  # noqa: ANN401
    """The value with the defaults of the schema, as the API server stores it."""
    if isinstance(value, list):
        return [_with_defaults(schema.get("items", {}), content) for content in value]
    if not isinstance(value, Mapping):
        return value
    properties = schema.get("properties", {})
    defaults = {name: child["default"] for name, child in properties.items() if "default" in child}
    present = {name: content for name, content in value.items() if content is not None}
    return {
        name: _with_defaults(properties.get(name, {}), content)
        for name, content in (defaults | present).items()
    }


def _context(value: Any) -> cel.Context:  # noqa: ANN401
    context = cel.Context()
    context.add_variable("self", value)
    # Kubernetes' own extension of the language.
    context.add_function("format", lambda text, values: text % tuple(values))
    return context
