"""Is each group packed? Judged from where its pods run, never from what they were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from disagg.api.names import ENGINE_ROLES, RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.api.roles import Autoscaling
from disagg.api.status import MAX_DOMAINS, ConditionType, Fits, GroupStatus, PodsByRole, Reason
from disagg.decide.decisions import GroupDecision
from disagg.decide.environment import Environment
from disagg.decide.live import consists_of, live_placement
from disagg.decide.observed import Observed
from disagg.topology.capacity import DomainFit
from disagg.topology.choice import describe
from disagg.topology.groups import GroupKey, GroupPods

FIXED_HEADROOM = 8
"""Up to how many more pods of a role without autoscaling the headroom counts. A number that moves with every pod of
others is no use in a status."""

_FEW = 3
"""How many of a list are shown in a line."""

_WORST_FIRST = (
    Reason.LEVEL_UNKNOWN,
    Reason.NO_TOPOLOGY_LABELS,
    Reason.INSUFFICIENT_DOMAIN_CAPACITY,
    Reason.NODES_LACK_LABEL,
    Reason.SPLIT,
    Reason.CONSTRAINT_CHANGED,
    Reason.PLACEMENT_PENDING,
    Reason.NODE_ACCESS_DENIED,
    Reason.OTHER_SCHEDULER,
    Reason.SCALED_TO_ZERO,
    Reason.PACKED,
)
_UNKNOWN = (Reason.PLACEMENT_PENDING, Reason.NODE_ACCESS_DENIED, Reason.OTHER_SCHEDULER)
WAITING = (
    Reason.NO_TOPOLOGY_LABELS,
    Reason.INSUFFICIENT_DOMAIN_CAPACITY,
    Reason.CONSTRAINT_CHANGED,
    Reason.PLACEMENT_PENDING,
)
"""Reasons that may end by what happens to nodes or to pods of others."""


@dataclass(frozen=True)
class Packing:
    """Where all groups of a resource are.

    Attributes:
        status: Status of the condition `Packed`.
        reason: Its reason.
        message: Its message.
        groups: The groups; None without a topologyConstraint.
        domains: Their domains, in a line; None if there is none.
    """

    status: str
    reason: Reason
    message: str
    groups: list[GroupStatus] | None = None
    domains: str | None = None


UNCONSTRAINED = Packing(
    "True", Reason.NO_TOPOLOGY_CONSTRAINT, "no topologyConstraint is set: pods run anywhere"
)


def assess_packing(
    resource: DisaggregatedInference,
    observed: Observed,
    decisions: Mapping[int, GroupDecision],
    environment: Environment,
) -> Packing:
    """Judge where the groups of a resource are.

    Args:
        resource: The resource.
        observed: Its live children.
        decisions: Where its groups are to be.
        environment: What the cluster offers.
    """
    if resource.spec.topology_constraint is None:
        return UNCONSTRAINED
    found = [
        _Group(resource, number, observed, decision, environment)
        for number, decision in sorted(decisions.items())
    ]
    verdicts = [group.verdict() for group in found]
    reason = min((verdict[0] for verdict in verdicts), key=_WORST_FIRST.index)
    worst = {number: text for number, (why, text) in enumerate(verdicts) if why is reason}
    message = (
        next(iter(worst.values()))
        if len(found) == 1
        else _few([f"group {number}: {text}" for number, text in worst.items()], "; ")
    )
    good = (Reason.PACKED, Reason.SCALED_TO_ZERO)
    domains = list(dict.fromkeys(group.decision.current for group in found if group.decision.current))
    shown = ",".join(domains[:_FEW]) + (f",+{len(domains) - _FEW}" if len(domains) > _FEW else "")
    return Packing(
        status="True" if reason in good else "Unknown" if reason in _UNKNOWN else "False",
        reason=reason,
        message=message,
        groups=[group.status() for group in found],
        domains=shown or None,
    )


@dataclass(frozen=True)
class _Group:
    resource: DisaggregatedInference
    number: int
    observed: Observed
    decision: GroupDecision
    environment: Environment

    def verdict(self) -> tuple[Reason, str]:
        """Reason and message."""
        if self.decision.obstacle is not None:
            return self.decision.obstacle
        wanted = sum(self.decision.demand.values())
        if not wanted and not self._domains:
            return Reason.SCALED_TO_ZERO, "the group has no pods"
        return self._capacity() or self._move() or self._spread() or self._progress(wanted)

    def _capacity(self) -> tuple[Reason, str] | None:
        pending = sum(self._pods.unschedulable.values())
        best, fit = self.decision.best, self.decision.fit
        if not pending and (self._domains or (best is None and fit is not None)):
            return None
        lacking = f"{_pods(pending)} without room" if pending else "no domain holds the group"
        shown = best or fit
        if shown is None:
            return (
                Reason.INSUFFICIENT_DOMAIN_CAPACITY,
                f"{lacking}: no node that its pods may run on is ready",
            )
        if best is None and shown.fits_minimum and self._pods.end:
            # They wait for the pods that they replace.
            return None
        return self._lack(shown, lacking)

    def _lack(self, shown: DomainFit, lacking: str) -> tuple[Reason, str]:
        best = self.decision.best
        if best is None and self._is_about_to_fit(shown):
            # The scheduler has yet to look again, or sees what is not looked at here.
            return self._spread() or (
                Reason.PLACEMENT_PENDING,
                f"{lacking}, though {shown.domain} has some: kubectl describe pod says what the scheduler sees",
            )
        if best is None and shown.fits_minimum and self._is_broken_up(shown):
            cure = "but not in one piece: scale the role with the smaller pods down until the others run, and up again"
            return Reason.INSUFFICIENT_DOMAIN_CAPACITY, f"{lacking}: {shown.domain} has room for all, {cure}"
        if best is None and self._domains:
            # Its own pods count as room for the group, and are none for those that wait.
            room = " or ".join(f"{shown.headroom.get(role, 0)} more {role} pods" for role in ENGINE_ROLES)
            return Reason.INSUFFICIENT_DOMAIN_CAPACITY, f"{lacking}: {shown.domain} has room for {room}"
        return Reason.INSUFFICIENT_DOMAIN_CAPACITY, f"{lacking}: {describe(shown)}"

    def _is_about_to_fit(self, fit: DomainFit) -> bool:
        waiting = {role: count for role, count in self._pods.unschedulable.items() if count}
        return bool(waiting) and all(count <= fit.headroom.get(role, 0) for role, count in waiting.items())

    def _is_broken_up(self, fit: DomainFit) -> bool:
        """Whether small pods have taken the room of large ones, as when both roles were replaced at once."""
        return any(
            self._pods.unschedulable[role]
            and sum(self._pods.bound[role].values()) < self.decision.demand[role]
            and not fit.headroom.get(role, 0)
            for role in ENGINE_ROLES
        )

    def _move(self) -> tuple[Reason, str] | None:
        moving = [role for role in ENGINE_ROLES if self._domains and self._differs(role)]
        if not moving:
            return None
        placement = self.decision.placement
        target = placement.domain if placement is not None else None
        return Reason.CONSTRAINT_CHANGED, (
            f"pods of {' and '.join(moving)} are replaced, one role after the other, to be packed in"
            f" {target or 'one domain'}"
        )

    def _spread(self) -> tuple[Reason, str] | None:
        key = self._key
        if "" in self._domains:
            return (
                Reason.NODES_LACK_LABEL,
                f"{_pods(self._domains[''])} on nodes without the label {key}, which may be anywhere",
            )
        if len(self._domains) > 1:
            places = [f"{domain} ({_pods(count)})" for domain, count in _by_count(self._domains)]
            told = self.decision.placement.domain if self.decision.placement is not None else None
            return Reason.SPLIT, (
                f"runs in {len(places)} domains: {_few(places, ', ')};"
                f" when {told or 'one'} has room, a restart brings the group together"
            )
        return None

    def _progress(self, wanted: int) -> tuple[Reason, str]:
        bound = sum(self._domains.values())
        domain = next(iter(self._domains), self.decision.current)
        was_packed = self._was == Reason.PACKED and bound > 0
        # Pods that come and go with an autoscaler or a rollout are no news as long as they find their place.
        if (bound < wanted or any(self._pods.pending.values())) and not was_packed:
            return Reason.PLACEMENT_PENDING, f"pods are being placed in {domain}"
        return Reason.PACKED, f"all pods run in {domain}"

    def status(self) -> GroupStatus:
        """The group as the status shows it."""
        decision = self.decision
        placed = self._placed
        pending = {str(role): count for role, count in self._pods.pending.items()}
        return GroupStatus(
            group=self.number,
            domain=decision.current,
            level_key=self._key,
            mechanism=str(decision.placement.mechanism) if decision.placement is not None else None,
            prefill=_largest(placed.get(RoleName.PREFILL, {})),
            decode=_largest(placed.get(RoleName.DECODE, {})),
            pending=PodsByRole(**pending) if any(pending.values()) else None,
            fits=Fits(now=decision.fit.fits_minimum, at_maximum=decision.fit.fits_maximum)
            if decision.fit is not None
            else None,
            headroom=self._headroom(),
        )

    def _headroom(self) -> PodsByRole | None:
        fit = self.decision.fit
        if fit is None:
            return None
        return PodsByRole(
            **{str(role): min(fit.headroom.get(role, 0), self._limit(role)) for role in ENGINE_ROLES}
        )

    def _limit(self, role: RoleName) -> int:
        autoscaling: Autoscaling | None = getattr(self.resource.spec, role).autoscaling
        if autoscaling is None:
            return FIXED_HEADROOM
        return max(autoscaling.max_replicas - self.decision.demand[role], 0)

    def _differs(self, role: RoleName) -> bool:
        """Whether pods of the role are not all of the placement that is meant for them."""
        deployment = self.observed.deployment(Workload(role, self.number))
        if deployment is None:
            return False
        if live_placement(deployment) != self.decision.placement:
            return True
        on_the_way = bool(self.decision.held) or len(self._domains) > 1
        return on_the_way and not consists_of(deployment, self.decision.placement)

    @property
    def _was(self) -> str | None:
        before = self.resource.status.condition(ConditionType.PACKED)
        return before.reason if before is not None else None

    @property
    def _key(self) -> str | None:
        return self.decision.placement.key if self.decision.placement is not None else None

    @property
    def _pods(self) -> GroupPods:
        return self.environment.pods_of(self.resource, self.number) or GroupPods()

    @property
    def _placed(self) -> dict[RoleName, dict[str, int]]:
        inventory, key = self.environment.inventory, self._key
        if inventory is None or key is None or not inventory.knows_nodes:
            return {}
        metadata = self.resource.metadata
        return inventory.placed(GroupKey(metadata.namespace, metadata.name, self.number), key)

    @property
    def _domains(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for by_domain in self._placed.values():
            total.update(by_domain)
        return total


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"


def _few(texts: list[str], separator: str) -> str:
    """A list for people, who read the first few. It bounds the message too."""
    more = [f"and {len(texts) - _FEW} more"] if len(texts) > _FEW else []
    return separator.join(texts[:_FEW] + more)


def _largest(domains: Mapping[str, int]) -> dict[str, int] | None:
    """As many domains as a status may hold."""
    return dict(_by_count(domains)[:MAX_DOMAINS]) or None


def _by_count(domains: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(domains.items(), key=lambda item: (-item[1], item[0]))
