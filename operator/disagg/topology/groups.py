"""A group: the prefill and decode pods of a resource that must land in one domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from disagg.api.names import ENGINE_ROLES, GROUP_LABEL, NAME_LABEL, ROLE_LABEL, RoleName

_ROLES = {str(role): role for role in RoleName}
_TOPOLOGY = "topology.kubernetes.io/"
"""Beginning of the node labels that a recent API server copies to a pod when it is bound."""


@dataclass(frozen=True, slots=True, order=True)
class GroupKey:
    """A group: namespace and name of its resource, and its number there."""

    namespace: str
    name: str
    group: int


@dataclass(frozen=True, slots=True)
class GroupPod:
    """A pod of a group.

    Attributes:
        group: The group.
        role: Its role.
        node: Name of the node it is bound to, or "".
        terminating: Whether it is being deleted.
        unschedulable: Whether the kube-scheduler has found no node for it.
        topology: Labels of its own that repeat those of its node.
    """

    group: GroupKey
    role: RoleName
    node: str = ""
    terminating: bool = False
    unschedulable: bool = False
    topology: tuple[tuple[str, str], ...] = ()


def _nodes_by_role() -> dict[RoleName, Counter[str]]:
    return {role: Counter() for role in ENGINE_ROLES}


def _count_by_role() -> dict[RoleName, int]:
    return dict.fromkeys(ENGINE_ROLES, 0)


@dataclass(frozen=True, slots=True)
class GroupPods:
    """The pods of a group, by role.

    Attributes:
        bound: Pods on each node that are to stay.
        terminating: Pods on each node that are being deleted, and hold what they take until they are gone.
        pending: Pods without a node.
        unschedulable: Those of them that the kube-scheduler has found no node for.
    """

    bound: dict[RoleName, Counter[str]] = field(default_factory=_nodes_by_role)
    terminating: dict[RoleName, Counter[str]] = field(default_factory=_nodes_by_role)
    pending: dict[RoleName, int] = field(default_factory=_count_by_role)
    unschedulable: dict[RoleName, int] = field(default_factory=_count_by_role)

    @property
    def run(self) -> bool:
        """Whether any pod has a node and is to stay."""
        return any(sum(nodes.values()) for nodes in self.bound.values())

    @property
    def end(self) -> bool:
        """Whether any pod that has a node is being deleted."""
        return any(sum(nodes.values()) for nodes in self.terminating.values())

    def on(self, node: str, role: RoleName) -> int:
        """Pods of `role` on `node`, those being deleted among them."""
        return self.bound[role][node] + self.terminating[role][node]


def workload_of(raw: Mapping[str, Any]) -> tuple[GroupKey, RoleName] | None:
    """What a pod is a replica of: a role of a group, be it the router; None if of no resource's."""
    metadata = raw["metadata"]
    labels = metadata.get("labels")
    if not labels or NAME_LABEL not in labels:
        return None
    role, number = _ROLES.get(labels.get(ROLE_LABEL, "")), labels.get(GROUP_LABEL, "")
    if role is None or not (number.isascii() and number.isdecimal()):
        return None
    if not _is_replica(metadata.get("ownerReferences") or (), f"{labels[NAME_LABEL]}-{role}"):
        return None
    return GroupKey(metadata["namespace"], labels[NAME_LABEL], int(number)), role


def group_pod(raw: Mapping[str, Any]) -> GroupPod | None:
    """The pod as one of a group, or None if it belongs to none."""
    workload = workload_of(raw)
    if workload is None or workload[1] not in ENGINE_ROLES:
        return None
    metadata, (group, role) = raw["metadata"], workload
    node = raw["spec"].get("nodeName") or ""
    return GroupPod(
        group=group,
        role=role,
        node=node,
        terminating=metadata.get("deletionTimestamp") is not None,
        unschedulable=is_unschedulable(raw),
        topology=tuple(sorted(item for item in metadata["labels"].items() if item[0].startswith(_TOPOLOGY))),
    )


def _is_replica(owners: Iterable[Mapping[str, Any]], deployment: str) -> bool:
    """Whether a ReplicaSet of the Deployment made a pod: labels are copied easily, for debugging and by mistake."""
    return any(
        owner.get("controller")
        and owner.get("kind") == "ReplicaSet"
        and owner["name"].startswith(f"{deployment}-")
        for owner in owners
    )


def count(pods: Iterable[GroupPod]) -> GroupPods:
    """The pods of one group, counted."""
    counted = GroupPods()
    for pod in pods:
        if pod.node:
            (counted.terminating if pod.terminating else counted.bound)[pod.role][pod.node] += 1
        elif not pod.terminating:
            counted.pending[pod.role] += 1
            counted.unschedulable[pod.role] += pod.unschedulable
    return counted


def is_unschedulable(raw: Mapping[str, Any]) -> bool:
    """Whether the kube-scheduler has found no node for a pod."""
    if raw["spec"].get("nodeName"):
        return False
    return any(
        condition["type"] == "PodScheduled"
        and condition["status"] == "False"
        # Of a PodGroup whose nodes have lost or changed their labels it says SchedulerError.
        and condition.get("reason") in ("Unschedulable", "SchedulerError")
        for condition in (raw.get("status") or {}).get("conditions") or ()
    )
