"""Strategic merge of a user's overlay into a pod template.

The rules are those of `kubectl patch --type strategic`, with the merge keys of Kubernetes' pod types:
https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from __future__ import annotations

from typing import Any

MERGE_KEYS: dict[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
}
"""List in a pod template -> field that identifies an item. Source: `patchMergeKey` in k8s.io/api core/v1. A list that
is not here is replaced as a whole, as Kubernetes does (args, command, tolerations, envFrom)."""

_DIRECTIVE = "$patch"


def merge(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """`base` with `overlay` laid over it; neither is changed.

    A null removes a field. An item of a keyed list is merged with the item of the same key, or added after the
    others. `$patch: replace` in a block replaces it as a whole, `$patch: delete` empties it. In an item of a keyed
    list, `$patch: delete` removes the item of the same key, and `$patch: replace` stands for no item: the other items
    of the overlay replace the list.
    """
    if overlay.get(_DIRECTIVE) == "replace":
        return _without_directive(overlay)
    if overlay.get(_DIRECTIVE) == "delete":
        return {}
    merged = dict(base)
    for key, value in overlay.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            present = merged.get(key)
            merged[key] = merge(present if isinstance(present, dict) else {}, value)
        elif isinstance(value, list) and key in MERGE_KEYS:
            merged[key] = _merge_list(merged.get(key) or [], value, MERGE_KEYS[key])
        else:
            merged[key] = value
    return merged


def _merge_list(base: list[Any], overlay: list[Any], merge_key: str) -> list[Any]:
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in overlay):
        return [item for item in overlay if not isinstance(item, dict) or _DIRECTIVE not in item]
    merged = list(base)
    for item in overlay:
        if not isinstance(item, dict):
            # Not an item of such a list: leave it for the API server to name in its refusal.
            merged.append(item)
            continue
        index = next((i for i, present in enumerate(merged) if _same(present, item, merge_key)), None)
        if item.get(_DIRECTIVE) == "delete":
            if index is not None:
                del merged[index]
        elif index is None:
            merged.append(merge({}, item))
        else:
            merged[index] = merge(merged[index], item)
    return merged


def _same(present: Any, item: dict[str, Any], merge_key: str) -> bool:  # noqa: ANN401 - an item may be anything
    return isinstance(present, dict) and merge_key in item and present.get(merge_key) == item[merge_key]


def _without_directive(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != _DIRECTIVE}
