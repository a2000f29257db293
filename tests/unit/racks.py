"""Nodes, pods and demands of a small cluster, as the API server would describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from disagg.api.names import RoleName
from disagg.topology.amounts import freeze, parse
from disagg.topology.capacity import GroupDemand, RoleDemand
from disagg.topology.eligibility import PodShape
from disagg.topology.groups import GroupKey
from disagg.topology.inventory import Inventory

RACK = "example.com/rack"
GPU = "example.com/gpu"
GROUP = GroupKey("default", "chat", 0)
OTHER = GroupKey("default", "other", 0)


def node(
    name: str, rack: str | None = "r1", labels: Mapping[str, str] | None = None, /, **amounts: int
) -> dict[str, Any]:
    """A ready node. `gpu=8` is 8 GPUs; it holds 110 pods unless it is said."""
    racks = {RACK: rack} if rack is not None else {}
    return {
        "metadata": {"name": name, "labels": racks | dict(labels or {})},
        "spec": {},
        "status": {
            "allocatable": resources({"pods": 110} | amounts),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    uid: str, on: str | None = None, *, group: GroupKey | None = None, role: str = "decode", **amounts: int
) -> dict[str, Any]:
    """A pod, bound to a node or pending."""
    labels = (
        {}
        if group is None
        else {
            "disagg.dev/name": group.name,
            "disagg.dev/role": role,
            "disagg.dev/group": str(group.group),
        }
    )
    return {
        "metadata": {
            "uid": uid,
            "name": uid,
            "namespace": group.namespace if group else "default",
            "labels": labels,
            "ownerReferences": []
            if group is None
            else [{"kind": "ReplicaSet", "controller": True, "name": f"{group.name}-{role}-0"}],
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": resources(amounts)}}],
            **({"nodeName": on} if on is not None else {}),
        },
        "status": {"phase": "Running" if on is not None else "Pending"},
    }


def resources(amounts: Mapping[str, int]) -> dict[str, str]:
    """Amounts with `gpu` under its full name."""
    return {GPU if name == "gpu" else name: str(amount) for name, amount in amounts.items()}


def shape(*, one_per_node: bool = False, **amounts: int) -> PodShape:
    """The shape of a pod."""
    return PodShape(requests=freeze(parse(resources({"pods": 1} | amounts))), one_per_node=one_per_node)


def demand(
    prefill: tuple[PodShape, int, int], decode: tuple[PodShape, int, int] | None = None
) -> GroupDemand:
    """What a group needs: of each role the shape, the minimum and the maximum."""
    roles = [RoleDemand(RoleName.PREFILL, *prefill)]
    if decode is not None:
        roles.append(RoleDemand(RoleName.DECODE, *decode))
    return GroupDemand(tuple(roles))


def inventory(*objects: Mapping[str, Any]) -> Inventory:
    """An inventory of nodes and pods."""
    found = Inventory()
    for item in objects:
        if "uid" in item["metadata"]:
            found.put_pod(item)
        else:
            found.put_node(item)
    return found
