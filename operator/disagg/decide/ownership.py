"""Who owns which field of a live object, read from `metadata.managedFields`.

Server-side apply records for each manager the set of fields it applied, as a tree (format FieldsV1):
https://kubernetes.io/docs/reference/using-api/server-side-apply/ and
sigs.k8s.io/structured-merge-diff/fieldpath. Keys of the tree are `f:<field>`, `k:<key fields of a list item as JSON>`,
`v:<value of a set item as JSON>` and `.` for the item or block itself; an empty tree is a leaf.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

Tree = dict[str, Any]
Path = tuple[str, ...]

_ITSELF = "."
_DEFAULTS = {"protocol": "TCP"}
"""Key fields that the API server fills in, and that an apply configuration may therefore leave out."""


def applied_fields(live: dict[str, Any], manager: str) -> Tree:
    """The fields that `manager` has applied to `live`; empty if none."""
    for entry in live["metadata"].get("managedFields", []):
        if entry["manager"] == manager and entry["operation"] == "Apply" and not entry.get("subresource"):
            return dict(entry.get("fieldsV1", {}))
    return {}


def written_fields(live: dict[str, Any], *, by: str) -> Tree:
    """The fields that the manager `by` has written in any other way than by applying them."""
    for entry in live["metadata"].get("managedFields", []):
        if entry["manager"] == by and entry["operation"] == "Update" and not entry.get("subresource"):
            return dict(entry.get("fieldsV1", {}))
    return {}


def other_managers(live: dict[str, Any], manager: str) -> list[Tree]:
    """The fields of each manager of `live` but `manager`."""
    return [
        dict(entry.get("fieldsV1", {}))
        for entry in live["metadata"].get("managedFields", [])
        if entry["manager"] != manager and not entry.get("subresource")
    ]


def subtree(tree: Tree, *fields: str) -> Tree:
    """The part of `tree` below a path of field names."""
    for field in fields:
        tree = tree.get(f"f:{field}", {})
    return tree


def leaves(tree: Tree, prefix: Path = ()) -> Iterator[Path]:
    """Paths of the leaves of `tree`, list items and blocks themselves left out."""
    for key, child in tree.items():
        if key == _ITSELF:
            continue
        if child:
            yield from leaves(child, (*prefix, key))
        else:
            yield (*prefix, key)


def has(value: Any, path: Path) -> bool:  # noqa: ANN401 - a value is any JSON
    """Whether `value`, an apply configuration, says something about `path`."""
    for key in path:
        found = _step(value, key)
        if not found:
            return False
        value = found[0]
    return True


def covers(tree: Tree, value: Any) -> bool:  # noqa: ANN401 - a value is any JSON
    """Whether all that `value`, an apply configuration, says is owned in `tree`."""
    if not tree or tree == {_ITSELF: {}}:
        # A leaf: a scalar, or a list or map that is owned as a whole. An empty block has nothing below it.
        return True
    if isinstance(value, dict):
        return all(f"f:{name}" in tree and covers(tree[f"f:{name}"], child) for name, child in value.items())
    if isinstance(value, list):
        return all(_covers_item(tree, item) for item in value)
    return True


def extract(tree: Tree, value: Any) -> Any:  # noqa: ANN401 - a value is any JSON
    """The part of `value`, a live object, that is owned in `tree`: what its owner would apply again."""
    if not tree:
        return value
    if isinstance(value, list):
        # In the order of the object, not of the tree: a pod whose env is in another order is another pod.
        return [
            extract(tree[keys[0]], item)
            for item in value
            if (keys := [key for key in tree if key != _ITSELF and _is_item(item, key)])
        ]
    if isinstance(value, dict):
        return {
            key[2:]: extract(child, value[key[2:]])
            for key, child in tree.items()
            if key.startswith("f:") and key[2:] in value
        }
    return value


def _covers_item(tree: Tree, item: Any) -> bool:  # noqa: ANN401
    return any(key != _ITSELF and _is_item(item, key) and covers(child, item) for key, child in tree.items())


def _step(value: Any, key: str) -> list[Any]:  # noqa: ANN401
    """What `key` of a tree stands for in `value`, as a list of one, or an empty list if it is not there."""
    if key.startswith("f:"):
        name = key[2:]
        return [value[name]] if isinstance(value, dict) and name in value else []
    if isinstance(value, list):
        return [item for item in value if _is_item(item, key)][:1]
    return []


def _is_item(item: Any, key: str) -> bool:  # noqa: ANN401
    if key.startswith("k:"):
        return isinstance(item, dict) and all(
            item.get(name, _DEFAULTS.get(name)) == wanted for name, wanted in _key_fields(key)
        )
    return key.startswith("v:") and bool(item == json.loads(key[2:]))


@lru_cache(maxsize=4096)
def _key_fields(key: str) -> tuple[tuple[str, Any], ...]:
    return tuple(json.loads(key[2:]).items())
