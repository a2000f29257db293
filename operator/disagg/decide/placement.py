"""Where each group is packed, and how its pods are kept together.

A placement is part of the pod templates, and a change of it restarts pods. So it is kept as long as pods of the group
run: a better domain elsewhere is never a reason to move. It is chosen anew when the group is empty, when the user changes
its pods anyway, and, where packing is required, when the group cannot live where it is and can elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from disagg.api.names import ENGINE_ROLES, TEMPLATE_INPUTS, RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.api.status import Reason
from disagg.api.topology_constraint import PackMode, TopologyConstraint
from disagg.decide import obstacles
from disagg.decide.decisions import GroupDecision, Mechanism, Placement, Template
from disagg.decide.demand import Demand
from disagg.decide.environment import Environment
from disagg.decide.live import annotation, consists_of, live_placement
from disagg.decide.observed import Observed
from disagg.topology.capacity import DomainFit, GroupDemand, survey
from disagg.topology.choice import choose
from disagg.topology.claims import Claim
from disagg.topology.eligibility import PodShape
from disagg.topology.groups import GroupKey, GroupPods
from disagg.topology.inventory import Inventory
from disagg.topology.levels import HOSTNAME, PackLevel, resolve
from disagg.topology.plan import planned_nodes
from disagg.topology.reach import reach


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
    decisions: dict[int, GroupDecision] = {}
    for number in range(resource.spec.groups):
        others = {
            placement.domain
            for group in range(number + 1, resource.spec.groups)
            for role in ENGINE_ROLES
            if (placement := live_placement(observed.deployment(Workload(role, group)))) is not None
        }
        taken = frozenset(
            domain for domain in others | {made.current for made in decisions.values()} if domain is not None
        )
        decisions[number] = decision = _Group(
            resource, constraint, number, observed, rendered, environment, taken
        ).decide()
        # The next group must see what this one is about to take, or both choose the same domain, and both leave it again.
        environment = environment.after(resource, number, decision.claim)
    return decisions


@dataclass(frozen=True)
class _Group:
    """One group, and all that its placement depends on."""

    resource: DisaggregatedInference
    constraint: TopologyConstraint
    number: int
    observed: Observed
    rendered: Mapping[Workload, Template]
    environment: Environment
    taken: frozenset[str]
    """Domains of the other groups of the resource."""

    def decide(self) -> GroupDecision:
        if (obstacle := obstacles.of_templates(self.wanted)) is not None:
            return GroupDecision(obstacle=obstacle, demand=self.wanted.desired)
        level = self._level
        if level is None:
            return self._decided(self.live, obstacle=obstacles.of_level(self.constraint.pack_domain))
        inventory = self.environment.inventory
        if inventory is None:
            return self._blind(level, obstacles.NODES_UNKNOWN)
        asked = self.constraint.pack_domain
        if (obstacle := obstacles.of_nodes(inventory, level, asked, self.wanted)) is not None:
            return self._blind(level, obstacle)
        if not self._stays:
            return self._chosen(level, inventory)
        return self._moved(level, inventory) or self._decided(
            self.live, fit=self._fit(level, inventory, self._current, self.wanted.now)
        )

    def _blind(self, level: PackLevel, obstacle: tuple[Reason, str]) -> GroupDecision:
        """The decision where domains are not known: what was chosen when they were stays."""
        kept = self.live if self._is_for(level) else None
        return self._decided(kept or self._placement(level, None), obstacle=obstacle)

    def _chosen(self, level: PackLevel, inventory: Inventory) -> GroupDecision:
        fits = survey(inventory, level.key, self.wanted.now, self.key)
        choice = choose(fits, self._current, avoid=self.taken)
        # Where nothing holds the group it stays with what it was told: a new rack each time that another one lacks a
        # little less would have its waiting pods made anew each time.
        domain = choice.domain or self._current or (choice.best.domain if choice.best is not None else None)
        kept = None
        # What restarts all pods anyway is the time for a plan that fits them as they are now.
        if self.live is not None and self._is_for(level) and not self._rolls:
            kept = self.live if self.live.domain == domain or self._waits_together else None
            if kept is not None and kept.first is not self.wanted.first and not self._runs:
                kept = None
        return self._decided(
            kept or self._placement(level, domain),
            target=domain,
            fit=fits.get(domain or ""),
            best=choice.best,
        )

    def _moved(self, level: PackLevel, inventory: Inventory) -> GroupDecision | None:
        """The decision to move, where packing is required, pods find no room, and what must run fits elsewhere only."""
        if self.constraint.mode is not PackMode.REQUIRED or self.live is None or self._current is None:
            return None
        if self._pods is None or not any(self._pods.unschedulable.values()):
            return None
        demand = self.wanted.at_least(self.wanted.minimum)
        fits = (self._fit(level, inventory, home, demand) for home in self._homes(self.live))
        if any(fit is not None and fit.fits_minimum for fit in fits):
            return None
        everywhere = survey(inventory, level.key, demand, self.key)
        choice = choose(everywhere, None, avoid=self.taken)
        if choice.domain is None:
            return None
        moved = self._placement(level, choice.domain, everywhere, by_force=True)
        return self._decided(moved, fit=choice.fit)

    def _fit(
        self, level: PackLevel, inventory: Inventory, domain: str | None, demand: GroupDemand
    ) -> DomainFit | None:
        if domain is None:
            return None
        return survey(inventory, level.key, demand, self.key, only=domain).get(domain)

    def _decided(
        self,
        placement: Placement | None,
        *,
        target: str | None = None,
        obstacle: tuple[Reason, str] | None = None,
        fit: DomainFit | None = None,
        best: DomainFit | None = None,
    ) -> GroupDecision:
        steered = target or (placement.domain if placement is not None else None)
        # Once the first pods are placed the rest follows them. A count that is never reached again, after a smaller
        # scale, would keep every later pod waiting. A group that sleeps is woken with its minimum.
        awake = max(sum(self.wanted.desired.values()) or sum(self.wanted.minimum.values()), 1)
        min_count = 1 if self._pods is not None and self._pods.run else awake
        current = self._current if self._bound else steered
        claim = None
        # What does not fit takes no room from others that do.
        if placement is not None and current is not None and best is None:
            claim = Claim(placement.key, current, self._claimed(placement, current))
        return GroupDecision(
            placement=placement,
            current=current,
            claim=claim,
            min_count=min_count,
            obstacle=obstacle,
            fit=fit,
            best=best,
            demand=self.wanted.desired,
        )

    def _claimed(self, placement: Placement, current: str) -> dict[RoleName, tuple[PodShape, int]]:
        """The pods that are in the domain, or come there. What serves elsewhere stays, unless the group moves."""
        inventory, elsewhere = self.environment.inventory, dict[RoleName, int]()
        if inventory is not None and self._stays and placement.identity == (self.live or placement).identity:
            elsewhere = {
                role: sum(count for domain, count in by_domain.items() if domain != current)
                for role, by_domain in inventory.placed(self.key, placement.key).items()
            }
        return {
            role: (self.wanted.shapes[role], max(count - elsewhere.get(role, 0), 0))
            for role, count in self.wanted.desired.items()
        }

    def _placement(
        self,
        level: PackLevel,
        domain: str | None,
        fits: Mapping[str, DomainFit] = MappingProxyType({}),
        *,
        by_force: bool = False,
    ) -> Placement:
        inventory, wider, nodes, within = (
            self.environment.inventory,
            None,
            tuple[str, ...](),
            tuple[str, ...](),
        )
        if inventory is not None and domain is not None:
            planned = planned_nodes(inventory, level.key, domain, self.wanted.now, self.key)
            nodes = tuple(_hostname(inventory, name) for name in planned)
            wider = _wider_domain(inventory, level, domain)
            within = reach(
                fits,
                domain,
                eligible=max(len(inventory.eligible(shape)) for shape in self.wanted.shapes.values()),
                near={name for name in fits if wider and _wider_domain(inventory, level, name) == wider},
                whole=self.constraint.mode is PackMode.REQUIRED,
            )
        mechanism = Mechanism.POD_AFFINITY
        # A PodGroup's constraint is hard: no pod that would rather run elsewhere than wait can leave it. And the scheduler
        # chooses its domain by the pods that are there, whatever is to come: one for a role that is woken first, or one
        # in which a group that grows would soon wait.
        if (
            self.constraint.mode is PackMode.REQUIRED
            and self.environment.pod_groups
            and self.wanted.is_fixed
            # And it would not keep groups of one resource apart.
            and self.resource.spec.groups == 1
            and not self._has_priority
        ):
            mechanism = Mechanism.POD_GROUP
        return Placement(
            key=level.key,
            asked=self._asked,
            mode=self.constraint.mode,
            mechanism=mechanism,
            first=self.wanted.first,
            domain=domain,
            wider_key=level.wider_key,
            wider_domain=wider,
            nodes=nodes,
            # For a PodGroup the scheduler looks at each domain by itself, and at all of it.
            within=within if mechanism is Mechanism.POD_AFFINITY else (),
            moves=(self.live.moves if self.live is not None else 0) + by_force,
        )

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.resource.metadata.namespace, self.resource.metadata.name, self.number)

    @cached_property
    def wanted(self) -> Demand:
        return Demand(self.resource, self.number, self.observed, self.rendered)

    @cached_property
    def live(self) -> Placement | None:
        """What the Deployments say: that of the role that goes first, while the other has yet to follow it."""
        first, second = sorted(ENGINE_ROLES, key=lambda role: role is not self.wanted.first)
        found = live_placement(self._deployment(first)) or live_placement(self._deployment(second))
        if found is not None and not found.nodes and found.first is not self.wanted.first:
            # Pods have changed their size. Without a plan for nodes no template says which role goes first.
            return replace(found, first=self.wanted.first)
        return found

    @cached_property
    def _level(self) -> PackLevel | None:
        # Another level map of the operator restarts nothing: it counts when the group is empty.
        live = self.live
        if live is not None and live.asked == self._asked and self._runs:
            return PackLevel(live.key, live.wider_key)
        return resolve(self.constraint.pack_domain, self.constraint.levels.over(self.environment.levels))

    @property
    def _asked(self) -> str:
        """What the user asks for, however the operator reads it."""
        own = self.constraint.levels.over({}).get(self.constraint.pack_domain)
        return self.constraint.pack_domain + (f"={own}" if own else "")

    @property
    def _runs(self) -> bool:
        return self._pods is not None and (self._pods.run or self._pods.end)

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
        """The domain that most of the pods run in; of equal ones, and without any, the one that they are steered to."""
        known = {domain: count for domain, count in self._bound.items() if domain}
        # Values of another key are no domains, though they may be called the same.
        live, level = self.live, self._level
        told = live.domain if live is not None and level is not None and live.key == level.key else None
        if known:
            return min(known, key=lambda domain: (-known[domain], domain != told, domain))
        return told

    @cached_property
    def _stays(self) -> bool:
        """Whether pods run, and nothing that the user has changed restarts all of them."""
        return bool(self._bound) and self._level is not None and self._is_for(self._level) and not self._rolls

    def _is_for(self, level: PackLevel) -> bool:
        """Whether the live placement is for the constraint as it is now."""
        live = self.live
        return (
            live is not None
            and live.key == level.key
            and live.mode == self.constraint.mode
            and not (live.mechanism is Mechanism.POD_GROUP and self._has_priority)
        )

    @property
    def _has_priority(self) -> bool:
        """Whether pods have a priority. Those of a PodGroup must have its own, which cannot change."""
        bodies = (self.rendered[Workload(role, self.number)].body for role in ENGINE_ROLES)
        return any(body["spec"].get("priorityClassName") for body in bodies)

    @property
    def _waits_together(self) -> bool:
        """Whether a PodGroup's pods wait, which go to any domain that holds them.

        A rollout replaces them a few at a time, too few for a new PodGroup.
        """
        live, pods = self.live, self._pods
        if live is None or live.mechanism is not Mechanism.POD_GROUP or pods is None:
            return False
        return any(pods.pending.values()) or pods.end

    @cached_property
    def _rolls(self) -> bool:
        """Whether the user has changed what the pods of both roles are made from. One role follows the other."""
        recorded = {
            role: annotation(deployment, TEMPLATE_INPUTS) or ""
            for role in ENGINE_ROLES
            if (deployment := self._deployment(role)) is not None
        }
        return bool(recorded) and all(
            inputs.partition("-")[0] != self.rendered[Workload(role, self.number)].inputs
            for role, inputs in recorded.items()
        )

    def _homes(self, live: Placement) -> set[str | None]:
        """Where the group could live without another move."""
        deployments = [found for role in ENGINE_ROLES if (found := self._deployment(role)) is not None]
        if any(live_placement(deployment) != live for deployment in deployments):
            # It is about to leave the domain that it is in.
            return {live.domain}
        if all(consists_of(deployment, live) for deployment in deployments):
            # A steer is soft: it may never have come to the domain that it was told.
            return {self._current}
        return {live.domain, self._current}

    def _deployment(self, role: RoleName) -> dict[str, Any] | None:
        return self.observed.deployment(Workload(role, self.number))


def _hostname(inventory: Inventory, name: str) -> str:
    node = inventory.node(name)
    return node.labels.get(HOSTNAME, name) if node is not None else name


def _wider_domain(inventory: Inventory, level: PackLevel, domain: str) -> str | None:
    if level.wider_key is None:
        return None
    nodes = [use.node for use in inventory.domains(level.key).get(domain, ()) if use.node is not None]
    return min(
        (node.labels[level.wider_key] for node in nodes if level.wider_key in node.labels), default=None
    )
