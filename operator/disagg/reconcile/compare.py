"""Is a live object what it is to be? Pure.

Read from the object and from who owns its fields, never from a record of what was applied last: a record tells what
was meant, not what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import orjson

from disagg.api.names import FIELD_MANAGER, KIND, MANAGED_BY, MANAGED_BY_LABEL, NAME_LABEL
from disagg.api.resource import DisaggregatedInference
from disagg.decide import ownership

_UNDO_MANAGER = "kubectl"
"""Of kubectl's commands on Deployments, `rollout undo` alone writes the template under this name: `rollout restart`
is kubectl-rollout, `set` is kubectl-set, `edit` is kubectl-edit."""


def in_sync(desired: dict[str, Any], live: dict[str, Any]) -> bool:
    """Whether applying `desired` would certainly change nothing.

    It would not if each value is there, each field is ours, and we own nothing else. False may be too cautious: the
    API server writes some values in its own way (1000m as 1) and drops what it does not know.
    """
    tree = ownership.applied_fields(live, FIELD_MANAGER)
    body = {key: value for key, value in desired.items() if key not in ("apiVersion", "kind", "metadata")}
    body["metadata"] = {
        key: value for key, value in desired["metadata"].items() if key not in ("name", "namespace")
    }
    return (
        # A tree of nothing reads as one that owns all there is.
        bool(tree)
        and _contains(live, body)
        and ownership.covers(tree, body)
        and all(ownership.has(body, path) for path in ownership.leaves(tree))
        and not is_undone(live)
    )


def is_undone(live: dict[str, Any]) -> bool:
    """Whether `kubectl rollout undo` has put an earlier pod template into a Deployment.

    It leaves fields behind that no apply of ours removes, since they are kubectl's then.
    """
    tree = ownership.subtree(ownership.written_fields(live, by=_UNDO_MANAGER), "spec", "template")
    return any(True for _ in ownership.leaves(tree))


def take_back(live: dict[str, Any]) -> list[dict[str, Any]]:
    """JSON patch that removes from a Deployment's template what only `kubectl rollout undo` has put there."""
    kept = [entry for entry in live["metadata"]["managedFields"] if entry["manager"] != _UNDO_MANAGER]
    tree: ownership.Tree = {}
    for entry in kept:
        _merge_trees(tree, ownership.subtree(entry.get("fieldsV1", {}), "spec", "template"))
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": kept},
        {
            "op": "replace",
            "path": "/spec/template",
            "value": ownership.extract(tree, live["spec"]["template"]),
        },
    ]


def is_ours(live: dict[str, Any], resource: DisaggregatedInference) -> bool:
    """Whether `live` belongs to `resource`, or did before the resource was deleted and made again."""
    if (owner := _controller(live)) is not None:
        same_name = owner["kind"] == KIND and owner["name"] == resource.metadata.name
        return bool(owner["uid"] == resource.metadata.uid or same_name)
    labels = live["metadata"].get("labels", {})
    return bool(
        labels.get(MANAGED_BY_LABEL) == MANAGED_BY and labels.get(NAME_LABEL) == resource.metadata.name
    )


def is_owned(live: dict[str, Any], resource: DisaggregatedInference) -> bool:
    """Whether `resource`, and no other of its name, owns `live`.

    Labels are no proof: `kubectl expose` copies those of a Deployment to the Service that it makes.
    """
    owner = _controller(live)
    return owner is not None and bool(owner["uid"] == resource.metadata.uid)


def is_autoscaled(desired: dict[str, Any], live: dict[str, Any]) -> bool:
    """Whether an autoscaler has set another count on a Deployment than the resource does."""
    wanted = desired["spec"].get("replicas")
    return (
        wanted is not None
        and wanted != live["spec"].get("replicas")
        and any(
            entry["manager"] == "kube-controller-manager"
            and entry.get("subresource") == "scale"
            and "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
            for entry in live["metadata"].get("managedFields", [])
        )
    )


def fingerprint(obj: Mapping[str, Any]) -> bytes:
    """All of an object but its status and what the API server counts up by itself."""
    metadata = obj["metadata"]
    managers = [
        (entry["manager"], entry["operation"], entry.get("fieldsV1"))
        for entry in metadata.get("managedFields", [])
        if not entry.get("subresource")
    ]
    rest = {
        key: value for key, value in obj.items() if key not in ("metadata", "status", "apiVersion", "kind")
    }
    head = {key: metadata.get(key) for key in ("labels", "annotations", "ownerReferences")}
    return orjson.dumps([rest, head, managers], option=orjson.OPT_SORT_KEYS)


def _controller(live: dict[str, Any]) -> dict[str, Any] | None:
    """The owner reference of whoever controls an object; the API server allows one."""
    return next((ref for ref in live["metadata"].get("ownerReferences", []) if ref.get("controller")), None)


def _contains(live: Any, desired: Any) -> bool:  # noqa: ANN401 - any JSON
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(
            key in live and _contains(live[key], value) for key, value in desired.items()
        )
    if isinstance(desired, list) and desired and isinstance(desired[0], dict):
        return isinstance(live, list) and all(
            any(_contains(item, wanted) for item in live) for wanted in desired
        )
    return bool(live == desired)


def _merge_trees(into: ownership.Tree, tree: ownership.Tree) -> None:
    for key, child in tree.items():
        if key in into:
            _merge_trees(into[key], child)
        else:
            into[key] = deepcopy(child)
