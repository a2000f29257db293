"""Turns the JSON schema that pydantic emits into a structural schema, the dialect that a CRD speaks.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

ALLOWED = (
        "description", "type", "format", "default", "enum", "pattern", "nullable",
        "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
        "properties", "required", "items", "additionalProperties",
        "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-validations",
)  # fmt: skip
"""Keywords that a structural schema may have, out of those that we have a use for, in the order in which they are written."""


class NotStructuralError(ValueError):
    """A model needs a keyword that a structural schema does not have."""


def structural_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The structural schema of `model`.

    Raises:
        NotStructuralError: The model cannot be expressed; the message names the place and the keyword.
    """
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(schema, schema.get("$defs", {}), path=model.__name__, in_list=False)


def _convert(
    node: dict[str, Any], definitions: dict[str, Any], *, path: str, in_list: bool
) -> dict[str, Any]:
    node = _without_null(_resolve(node, definitions), definitions)
    _translate(node)
    if in_list and "default" in node:
        # The API server would add it to items that a GitOps tool compares with what it applied, for ever.
        raise NotStructuralError(f"{path}: a default inside a list item")
    unknown = node.keys() - set(ALLOWED)
    if unknown:
        raise NotStructuralError(f"{path}: a structural schema has no keyword {', '.join(sorted(unknown))}")
    if "properties" in node:
        node["properties"] = {
            name: _convert(child, definitions, path=f"{path}.{name}", in_list=in_list)
            for name, child in node["properties"].items()
        }
    if "items" in node:
        node["items"] = _convert(node["items"], definitions, path=f"{path}[]", in_list=True)
    if isinstance(values := node.get("additionalProperties"), dict):
        node["additionalProperties"] = _convert(values, definitions, path=f"{path}{{}}", in_list=in_list)
    return {keyword: node[keyword] for keyword in ALLOWED if keyword in node}


def _translate(node: dict[str, Any]) -> None:
    """Say in the structural dialect what pydantic says in its own."""
    for keyword in ("title", "$defs"):
        node.pop(keyword, None)
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if node.get("x-kubernetes-int-or-string"):
        node.pop("anyOf", None)
    if node.get("x-kubernetes-preserve-unknown-fields"):
        node.pop("additionalProperties", None)
    if not isinstance(node.get("default"), (str, int)):
        # An absent list or block means the same as an empty one, and stays absent in what users read back.
        node.pop("default", None)


def _resolve(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in node:
        return dict(node)
    name = node["$ref"].removeprefix("#/$defs/")
    return dict(definitions[name]) | {key: value for key, value in node.items() if key != "$ref"}


def _without_null(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """An optional field is simply one that may be absent: `anyOf` with null has no structural equivalent."""
    if "anyOf" not in node or node.get("x-kubernetes-int-or-string"):
        return node
    choices = [choice for choice in node["anyOf"] if choice != {"type": "null"}]
    if len(choices) != 1:
        return node
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    return _resolve(choices[0], definitions) | rest
