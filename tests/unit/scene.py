"""A resource whose groups are packed: its Deployments as the API server keeps them, its pods, and passes over them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from disagg.api.names import ENGINE_ROLES, RoleName, Workload, child_name
from disagg.api.resource import DisaggregatedInference
from disagg.build.objects import build, plan
from disagg.decide.decisions import Decisions, Placement
from disagg.decide.environment import Environment
from disagg.decide.live import live_placement
from disagg.decide.observed import ObjectKey, Observed, key_of
from disagg.topology.groups import GroupKey
from disagg.topology.inventory import Inventory
from tests.unit.racks import GPU, RACK, inventory, node, pod
from tests.unit.resources import overlaid, resource

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PREFILL, DECODE = RoleName.PREFILL, RoleName.DECODE
REQUIRED = {"topologyConstraint": {"mode": "Required"}}
PAIR: dict[str, Any] = {
    "accelerator": {"resource": GPU},
    "topologyConstraint": {"packDomain": RACK},
    "prefill": {"replicas": 4},
    "decode": {"replicas": 1, "parallelism": {"tensor": 4}},
}
"""Four prefill pods of 1 GPU and a decode pod of 4: 8 GPUs, which must be in one rack."""


def pair(**spec: object) -> DisaggregatedInference:
    """The pair with `spec` laid over it."""
    return resource(**overlaid(PAIR, spec))


def racks(**gpus: int) -> Inventory:
    """Racks of one node, which is called as its rack is."""
    return inventory(*(node(rack, rack, gpu=free) for rack, free in gpus.items()))


@dataclass
class Scene:
    """A resource and what has become of it.

    Attributes:
        wanted: The resource.
        inventory: Nodes and pods.
        pod_groups: Whether the cluster packs PodGroups.
        levels: The operator's level map.
        children: The live children.
    """

    wanted: DisaggregatedInference
    inventory: Inventory
    pod_groups: bool = False
    levels: Mapping[str, str] = field(default_factory=dict)
    children: dict[ObjectKey, dict[str, Any]] = field(default_factory=dict)

    @property
    def environment(self) -> Environment:
        return Environment(self.levels, self.pod_groups, self.inventory)

    @property
    def observed(self) -> Observed:
        return Observed(self.wanted.metadata.name, self.children)

    def decide(self) -> Decisions:
        """What one pass would decide."""
        return plan(self.wanted, self.observed, self.environment, NOW)

    def step(self) -> Decisions:
        """One pass: what is decided is applied, and claimed."""
        decisions = self.decide()
        for number, group in decisions.groups.items():
            if group.claim is not None:
                self.inventory.claim(self.key(number), group.claim)
        desired = {key_of(obj): obj for obj in build(self.wanted, decisions)}
        held = {
            ("Deployment", child_name(self.wanted.metadata.name, workload)) for workload in decisions.held
        }
        kept = {key: obj for key, obj in self.children.items() if key in held}
        self.children = kept | {key: _applied(obj, self.children.get(key)) for key, obj in desired.items()}
        return decisions

    def key(self, group: int = 0) -> GroupKey:
        return GroupKey(self.wanted.metadata.namespace, self.wanted.metadata.name, group)

    def deployment(self, role: RoleName, group: int = 0) -> dict[str, Any]:
        """The live Deployment, to be changed as the test likes."""
        found = self.observed.deployment(Workload(role, group))
        assert found is not None
        return found

    def told(self, role: RoleName, group: int = 0) -> Placement | None:
        """What the pods of a role are told."""
        return live_placement(self.deployment(role, group))

    def roll_out(self, *roles: RoleName, group: int = 0) -> None:
        """The Deployment controller has replaced all pods."""
        for role in roles:
            deployment = self.deployment(role, group)
            count = deployment["spec"]["replicas"]
            deployment["status"] = {
                "observedGeneration": deployment["metadata"]["generation"],
                **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), count),
            }

    def bind(self, role: RoleName, on: str | None, count: int = 1, *, group: int = 0, of: str = "") -> None:
        """Pods of a role run on a node, or wait for one.

        Args:
            role: The role.
            on: The node; None for pods that the scheduler has found none for.
            count: How many.
            group: Their group.
            of: What tells these pods from others.
        """
        gpus = 4 if role is DECODE else 1
        for index in range(count):
            raw = pod(f"{role}-{group}-{of}{index}", on, group=self.key(group), role=str(role), gpu=gpus)
            if on is None:
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                raw["status"]["conditions"] = [condition]
            self.inventory.put_pod(raw)

    def run(self, on: str, *, group: int = 0) -> None:
        """The pair runs on one node, all of it."""
        self.bind(PREFILL, on, 4, group=group)
        self.bind(DECODE, on, group=group)
        self.step()
        self.roll_out(*ENGINE_ROLES, group=group)


def packed(
    wanted: DisaggregatedInference | None = None, /, *, pod_groups: bool = False, **gpus: int
) -> Scene:
    """The pair, all of it on the first of these racks; the others have come later."""
    first = next(iter(gpus))
    scene = Scene(wanted or pair(), racks(**{first: gpus[first]}), pod_groups=pod_groups)
    scene.step()
    scene.run(first)
    for rack, free in gpus.items():
        scene.inventory.put_node(node(rack, rack, gpu=free))
    return scene


def _applied(obj: dict[str, Any], live: dict[str, Any] | None) -> dict[str, Any]:
    """What the API server makes of what is applied."""
    obj = deepcopy(obj)
    if obj["kind"] != "Deployment":
        return obj
    obj["metadata"] |= {"creationTimestamp": NOW.isoformat(), "generation": 1}
    if live is None:
        obj["spec"].setdefault("replicas", 1)
        return obj
    obj["spec"].setdefault("replicas", live["spec"]["replicas"])
    status = dict(live.get("status", {}))
    changed = obj["spec"] != live["spec"]
    obj["metadata"]["generation"] = live["metadata"]["generation"] + changed
    if obj["spec"]["template"] != live["spec"]["template"]:
        status["updatedReplicas"] = 0
    return obj | ({"status": status} if status else {})
