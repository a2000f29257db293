"""Where resources would go if they were applied now, decided by the very function that the operator decides with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from disagg.api.names import ENGINE_ROLES, RoleName
from disagg.api.resource import DisaggregatedInference
from disagg.api.topology_constraint import PackMode
from disagg.build.objects import plan
from disagg.decide.decisions import GroupDecision
from disagg.decide.environment import Environment
from disagg.decide.observed import Observed
from disagg.topology.capacity import DomainFit, GroupDemand, RoleDemand, survey
from disagg.topology.choice import describe
from disagg.topology.claims import Claim
from disagg.topology.groups import GroupKey
from disagg.topology.inventory import Inventory

_NOBODY = GroupKey("", "", 0)
"""A group without pods and claims: it sees what is left beside all others."""
_ELSEWHERE = {
    PackMode.PREFERRED: "pods without room there would run in other domains",
    PackMode.REQUIRED: "its pods would wait",
}


@dataclass(frozen=True)
class Answer:
    """What would become of a group.

    Attributes:
        group: The group; of a resource that is not packed, its first.
        level: What it is to be packed into; None if it is not packed at all.
        domain: Where it would go; None if no domain holds it or nothing is known.
        now: Whether the pods that it starts with find room there.
        maximum: Whether those that it may grow to do.
        headroom: Pods of each role alone that find room there beside those that it starts with.
        message: What is missing, or why nothing can be said.
    """

    group: GroupKey
    level: str | None
    domain: str | None = None
    now: bool = False
    maximum: bool = False
    headroom: Mapping[RoleName, int] = field(default_factory=dict)
    message: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing is missing. A resource that is not to be packed misses nothing."""
        return self.level is None or self.now


def ask(resources: Iterable[DisaggregatedInference], environment: Environment, now: datetime) -> list[Answer]:
    """Where the groups of each resource would go, if all were applied one after the other.

    What a group is about to take is taken for those after it, of the same resource too.

    Args:
        resources: The resources; as if none of them had any Deployment yet. Pods that they have already are no obstacle.
        environment: The cluster, with an inventory, which gets the claims of the resources.
        now: The time, in UTC.
    """
    inventory = environment.inventory
    if inventory is None:
        raise ValueError("without an inventory nobody knows what fits")
    answers: list[Answer] = []
    for resource in resources:
        metadata = resource.metadata
        constraint = resource.spec.topology_constraint
        if constraint is None:
            key = GroupKey(metadata.namespace, metadata.name, 0)
            answers.append(Answer(key, None, message="no topologyConstraint: its pods may run anywhere"))
            continue
        decisions = plan(resource, Observed(metadata.name), environment, now)
        for number, decision in decisions.groups.items():
            key = GroupKey(metadata.namespace, metadata.name, number)
            if decision.claim is not None:
                inventory.claim(key, decision.claim)
            answer = Answer(key, constraint.pack_domain)
            answers.append(_judged(answer, inventory, resource, decision, constraint.mode))
    return answers


def _judged(
    answer: Answer,
    inventory: Inventory,
    resource: DisaggregatedInference,
    decision: GroupDecision,
    mode: PackMode,
) -> Answer:
    if decision.obstacle is not None:
        return replace(answer, message=decision.obstacle[1])
    claim = decision.claim
    here = _fit(inventory, answer.group, resource, claim) if claim is not None else None
    if claim is not None and here is not None and here.fits_minimum:
        room = _headroom(inventory, claim, here)
        return replace(answer, domain=claim.domain, now=True, maximum=here.fits_maximum, headroom=room)
    if (lacking := decision.best or here) is not None:
        return replace(answer, message=f"no domain holds it: {describe(lacking)}; {_ELSEWHERE[mode]}")
    return replace(answer, message="no node that its pods may run on is ready")


def _fit(
    inventory: Inventory, key: GroupKey, resource: DisaggregatedInference, claim: Claim
) -> DomainFit | None:
    """How the group fits where it would go, beside those that were asked about before it."""
    roles = []
    for role in ENGINE_ROLES:
        shape, count = claim.roles[role]
        autoscaling = getattr(resource.spec, role).autoscaling
        maximum = count if autoscaling is None else max(count, autoscaling.max_replicas)
        roles.append(RoleDemand(role, shape, count, maximum))
    return survey(inventory, claim.key, GroupDemand(tuple(roles)), key, only=claim.domain).get(claim.domain)


def _headroom(inventory: Inventory, claim: Claim, here: DomainFit) -> dict[RoleName, int]:
    roles = tuple(RoleDemand(role, shape, 0, 0) for role, (shape, _) in claim.roles.items())
    beside = survey(inventory, claim.key, GroupDemand(roles), _NOBODY, only=claim.domain).get(claim.domain)
    left = beside.headroom if beside is not None else {}
    return {
        role: min(left.get(role, 0), max(here.headroom[role] - count, 0))
        if shape.one_per_node
        else left.get(role, 0)
        for role, (shape, count) in claim.roles.items()
    }
