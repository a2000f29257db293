"""Where each group is packed, and how its pods are kept together.

A placement is part of the pod templates, and a change of it restarts pods. So it is kept as long as pods of the group
run: a better domain elsewhere is never a reason to move. It is chosen anew when the group is empty, when the user changes
its pods anyway, and, where packing is required, when the group cannot live where it is and can elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from disagg.api.names import ENGINE_ROLES, PLACEMENT, TEMPLATE_INPUTS, RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.api.spec import Autoscaling, PackMode, TopologyConstraint
from disagg.api.status import Reason
from disagg.decide.decisions import GroupDecision, Mechanism, Placement, Template
from disagg.decide.environment import Environment
from disagg.decide.observed import Observed
from disagg.topology.capacity import DomainFit, GroupDemand, RoleDemand, survey
from disagg.topology.choice import choose
from disagg.topology.claims import Claim
from disagg.topology.eligibility import PodShape, shape_of
from disagg.topology.groups import GroupKey, GroupPods
from disagg.topology.inventory import Inventory
from disagg.topology.levels import PackLevel, resolve
from disagg.topology.plan import planned_nodes

_DEFAULT_SCHEDULER = "default-scheduler"
_KUEUE = "kueue.x-k8s.io/queue-name"


def place(
    resource: DisaggregatedInference,
    observed: Observed,
    rendered: Mapping[Workload, Template],
    environment: Environment,
) -> dict[int, GroupDecision]:
    """Decide where each group is packed.

    Args:
        resource: The resource.
        observed: Its live children.
        rendered: Pod templates without any placement.
        environment: What the cluster offers.

    Returns:
        A decision for each group; nothing without a topologyConstraint.
    """
    constraint = resource.spec.topology_constraint
    if constraint is None:
        return {}
    return {
        group: _Group(resource, constraint, group, observed, rendered, environment).decide()
        for group in range(resource.spec.groups)
    }


@dataclass(frozen=True)
class _Group:
    """One group, and all that its placement depends on."""

    resource: DisaggregatedInference
    constraint: TopologyConstraint
    number: int
    observed: Observed
    rendered: Mapping[Workload, Template]
    environment: Environment

    def decide(self) -> GroupDecision:  # noqa: PLR0911 - one for each answer
        if (obstacle := self._other_scheduler()) is not None:
            return GroupDecision(obstacle=obstacle, demand=self.desired)
        level = self._level
        if level is None:
            name = self.constraint.pack_domain
            message = (
                f"no node label is known for level {name}: set topologyConstraint.levels.{name},"
                f" or topology.levels.{name} of the chart"
            )
            return self._decided(self.live, obstacle=(Reason.LEVEL_UNKNOWN, message))
        inventory = self.environment.inventory
        if inventory is None or not inventory.knows_nodes:
            message = (
                "the operator may not read nodes: pods of the group attract each other,"
                " but nothing looks ahead for a domain that holds them all"
            )
            return self._blind(level, (Reason.NODE_ACCESS_DENIED, message))
        if not inventory.domains(level.key):
            message = f"no node carries the label {level.key} ({self.constraint.pack_domain})"
            return self._blind(level, (Reason.NO_TOPOLOGY_LABELS, message))
        if not self._stays:
            return self._chosen(level, inventory, self._demand)
        if self._is_stuck(level, inventory):
            return self._chosen(level, inventory, self._demanding(self._minimum))
        fits = survey(inventory, level.key, self._demand, self.key, only=self._current)
        return self._decided(self.live, fit=fits.get(self._current or ""))

    def _blind(self, level: PackLevel, obstacle: tuple[Reason, str]) -> GroupDecision:
        """The decision where domains are not known: what was chosen when they were stays."""
        kept = self.live if self._is_for(level) else None
        return self._decided(kept or self._placement(level, None), obstacle=obstacle)

    def _chosen(self, level: PackLevel, inventory: Inventory, demand: GroupDemand) -> GroupDecision:
        fits = survey(inventory, level.key, demand, self.key)
        choice = choose(fits, self._current)
        # Where nothing holds the group it stays with what it was told: a new rack each time that another one lacks a
        # little less would have its waiting pods made anew each time.
        domain = choice.domain or self._current or (choice.best.domain if choice.best is not None else None)
        kept = self.live if self._is_for(level) and self.live and self.live.domain == domain else None
        return self._decided(
            kept or self._placement(level, domain),
            fit=fits.get(domain or ""),
            best=choice.best if choice.domain is None else None,
        )

    def _decided(
        self,
        placement: Placement | None,
        *,
        obstacle: tuple[Reason, str] | None = None,
        fit: DomainFit | None = None,
        best: DomainFit | None = None,
    ) -> GroupDecision:
        steered = placement.domain if placement is not None else None
        # Once the first pods are placed the rest follows them. A count that is never reached again, after a smaller
        # scale, would keep every later pod waiting.
        min_count = 1 if self._bound else max(sum(self.desired.values()), sum(self._minimum.values()), 1)
        current = self._current if self._bound else steered
        claim = None
        if placement is not None and current is not None:
            pods = {role: (self._shapes[role], count) for role, count in self.desired.items()}
            claim = Claim(placement.key, current, pods)
        return GroupDecision(
            placement=placement,
            current=current,
            claim=claim,
            min_count=min_count,
            obstacle=obstacle,
            fit=fit,
            best=best,
            demand=self.desired,
        )

    def _placement(self, level: PackLevel, domain: str | None) -> Placement:
        inventory, wider, nodes = self.environment.inventory, None, tuple[str, ...]()
        if inventory is not None and domain is not None:
            nodes = planned_nodes(inventory, level.key, domain, self._demand, self.key)
            wider = _wider_domain(inventory, level, domain)
        mechanism = Mechanism.POD_AFFINITY
        # A PodGroup's constraint is hard, and no pod that would rather run elsewhere than wait can leave it.
        if self.constraint.mode is PackMode.REQUIRED and self.environment.pod_groups:
            mechanism = Mechanism.POD_GROUP
        if self.live is not None and self._is_for(level):
            mechanism = self.live.mechanism
        return Placement(
            key=level.key,
            mode=self.constraint.mode,
            mechanism=mechanism,
            first=self._first,
            domain=domain,
            wider_key=level.wider_key,
            wider_domain=wider,
            nodes=nodes,
        )

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.resource.metadata.namespace, self.resource.metadata.name, self.number)

    @cached_property
    def live(self) -> Placement | None:
        """What the Deployments say: that of the role that goes first, while the other has yet to follow it."""
        found = {role: live_placement(self._deployment(role)) for role in ENGINE_ROLES}
        known = [placement for placement in found.values() if placement is not None]
        return next((placement for placement in known if found[placement.first] == placement), None) or next(
            iter(known), None
        )

    @cached_property
    def desired(self) -> dict[RoleName, int]:
        """Pods that are wanted now."""
        return {role: self._desired(role) for role in ENGINE_ROLES}

    def _desired(self, role: RoleName) -> int:
        wanted = getattr(self.resource.spec, role)
        autoscaling: Autoscaling | None = wanted.autoscaling
        deployment = self._deployment(role)
        running = int(deployment["spec"].get("replicas", 1)) if deployment is not None else None
        if autoscaling is not None:
            return max(running or 0, autoscaling.min_replicas)
        if wanted.replicas is not None:
            return int(wanted.replicas)
        return 1 if running is None else running

    @cached_property
    def _minimum(self) -> dict[RoleName, int]:
        """Pods without which the group cannot live."""
        minimum = {}
        for role in ENGINE_ROLES:
            autoscaling: Autoscaling | None = getattr(self.resource.spec, role).autoscaling
            minimum[role] = self.desired[role] if autoscaling is None else autoscaling.min_replicas
        return minimum

    def _maximum(self, role: RoleName) -> int:
        autoscaling: Autoscaling | None = getattr(self.resource.spec, role).autoscaling
        return (
            self.desired[role] if autoscaling is None else max(self.desired[role], autoscaling.max_replicas)
        )

    @cached_property
    def _shapes(self) -> dict[RoleName, PodShape]:
        return {role: shape_of(self.rendered[Workload(role, self.number)].body) for role in ENGINE_ROLES}

    @cached_property
    def _demand(self) -> GroupDemand:
        return self._demanding(self.desired)

    def _demanding(self, minimum: Mapping[RoleName, int]) -> GroupDemand:
        return GroupDemand(
            tuple(
                RoleDemand(role, self._shapes[role], minimum[role], max(self._maximum(role), minimum[role]))
                for role in ENGINE_ROLES
            )
        )

    @cached_property
    def _first(self) -> RoleName:
        """The role whose pods are larger: placed last, they would find the holes that they need taken apart."""
        accelerator = self.resource.spec.accelerator.resource

        def size(role: RoleName) -> tuple[int, int, int]:
            requests = dict(self._shapes[role].requests)
            return requests.get(accelerator, 0), requests.get("cpu", 0), requests.get("memory", 0)

        return max(reversed(ENGINE_ROLES), key=size)

    @cached_property
    def _level(self) -> PackLevel | None:
        own = self.constraint.levels.model_dump(exclude_none=True)
        return resolve(self.constraint.pack_domain, dict(self.environment.levels) | own)

    @cached_property
    def _pods(self) -> GroupPods | None:
        return self.environment.pods_of(self.resource, self.number)

    @cached_property
    def _bound(self) -> Counter[str]:
        """Pods that have a node and are not ending, by domain; none while the level has no key."""
        inventory, level = self.environment.inventory, self._level
        bound: Counter[str] = Counter()
        if inventory is not None and level is not None:
            for by_domain in inventory.placed(self.key, level.key).values():
                bound.update(by_domain)
        return bound

    @cached_property
    def _current(self) -> str | None:
        """The domain that most of the pods run in, else the one that they are steered to."""
        known = {domain: count for domain, count in self._bound.items() if domain}
        if known:
            return min(known, key=lambda domain: (-known[domain], domain))
        return self.live.domain if self.live is not None else None

    @cached_property
    def _stays(self) -> bool:
        """Whether pods run, and nothing that the user has changed restarts all of them."""
        return bool(self._bound) and self._level is not None and self._is_for(self._level) and not self._rolls

    def _is_for(self, level: PackLevel) -> bool:
        """Whether the live placement is for the constraint as it is now."""
        return self.live is not None and self.live.key == level.key and self.live.mode == self.constraint.mode

    @cached_property
    def _rolls(self) -> bool:
        """Whether the user has changed what the pods of both roles are made from. One role follows the other."""
        recorded = {
            role: _annotation(deployment, TEMPLATE_INPUTS) or ""
            for role in ENGINE_ROLES
            if (deployment := self._deployment(role)) is not None
        }
        return bool(recorded) and all(
            inputs.partition("-")[0] != self.rendered[Workload(role, self.number)].inputs
            for role, inputs in recorded.items()
        )

    def _is_stuck(self, level: PackLevel, inventory: Inventory) -> bool:
        """Whether packing is required, pods find no room, and what must run does not fit where the group is."""
        if self.constraint.mode is not PackMode.REQUIRED or self._current is None:
            return False
        if self._pods is None or not any(self._pods.unschedulable.values()):
            return False
        demand = self._demanding(self._minimum)
        here = survey(inventory, level.key, demand, self.key, only=self._current).get(self._current)
        if here is not None and here.fits_minimum:
            return False
        return choose(survey(inventory, level.key, demand, self.key), None).domain is not None

    def _other_scheduler(self) -> tuple[Reason, str] | None:
        for role in ENGINE_ROLES:
            body = self.rendered[Workload(role, self.number)].body
            scheduler = body["spec"].get("schedulerName", _DEFAULT_SCHEDULER)
            if scheduler != _DEFAULT_SCHEDULER:
                return Reason.OTHER_SCHEDULER, f"{role} pods are {scheduler}'s to place: nothing is steered"
            if _KUEUE in body["metadata"].get("labels", {}):
                return Reason.OTHER_SCHEDULER, f"{role} pods are Kueue's to place: nothing is steered"
        return None

    def _deployment(self, role: RoleName) -> dict[str, Any] | None:
        return self.observed.deployment(Workload(role, self.number))


def live_placement(deployment: dict[str, Any] | None) -> Placement | None:
    """The placement that a Deployment's pods were made for, or None."""
    return None if deployment is None else Placement.from_json(_annotation(deployment, PLACEMENT))


def _wider_domain(inventory: Inventory, level: PackLevel, domain: str) -> str | None:
    if level.wider_key is None:
        return None
    nodes = [use.node for use in inventory.domains(level.key).get(domain, ()) if use.node is not None]
    return min(
        (node.labels[level.wider_key] for node in nodes if level.wider_key in node.labels), default=None
    )


def _annotation(obj: dict[str, Any], name: str) -> str | None:
    value: str | None = obj["metadata"].get("annotations", {}).get(name)
    return value
