"""The status of a resource, from what was observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from disagg.api.names import ENGINE_ROLES, RoleName, Workload
from disagg.api.resource import DisaggregatedInference, Metadata
from disagg.api.roles import Autoscaling
from disagg.api.status import Condition, ConditionType, Reason, RolesStatus, Status
from disagg.assess.autoscaling import assess_autoscaling
from disagg.assess.kv_transfer import Review, assess_kv_transfer, review
from disagg.assess.packing import UNCONSTRAINED, Packing
from disagg.assess.pod_failure import PodFailure
from disagg.assess.problem import Problem
from disagg.assess.role import RoleAssessment, assess_role, over_groups
from disagg.build.pod_template import wanted_roles
from disagg.build.service import endpoint
from disagg.decide.observed import Observed

ConditionStatus = Literal["True", "False", "Unknown"]
MAX_MESSAGE = 4096
"""Characters of a condition's message. The operator's log has the whole."""
Conditions = dict[ConditionType, tuple[str, Reason, str]]
"""Status, reason and message of each."""
_ROLE_CONDITIONS = {
    RoleName.PREFILL: ConditionType.PREFILL_READY,
    RoleName.DECODE: ConditionType.DECODE_READY,
    RoleName.ROUTER: ConditionType.ROUTER_READY,
}


@dataclass(frozen=True)
class Findings:
    """What there is to say of a resource, beyond what its Deployments say.

    Attributes:
        packing: Where its groups are.
        failures: Its pods that do not come up.
        of_spec: What there is to say of its spec; None to look through it.
    """

    packing: Packing = UNCONSTRAINED
    failures: Sequence[PodFailure] = ()
    of_spec: Review | None = None


def assess(
    resource: DisaggregatedInference,
    observed: Observed,
    problem: Problem | None,
    now: datetime,
    findings: Findings | None = None,
) -> Status:
    """The status of `resource`.

    Args:
        resource: The resource, with the status that it has now: conditions keep the time of their last transition.
        observed: Its live children.
        problem: What kept the spec from being applied, if anything did.
        now: The time, in UTC.
        findings: What else there is to say of it.
    """
    findings = findings or Findings()
    packing = findings.packing
    previous = resource.status
    same_generation = previous.observed_generation == resource.metadata.generation
    roles = {
        role: _role(resource, role, observed, findings.failures, same_generation=same_generation)
        for role in RoleName
    }
    problem = problem or _stalled(roles)
    ready, reason, message = _ready(roles, problem)
    autoscaled = [
        Workload(role, group)
        for group in range(resource.spec.groups)
        for role in ENGINE_ROLES
        if getattr(resource.spec, role).autoscaling is not None
    ]
    autoscalers = [found for workload in autoscaled if (found := observed.autoscaler(workload)) is not None]
    working, why, text = assess_autoscaling(autoscalers, wanted=len(autoscaled))
    of_spec = findings.of_spec or review(resource)
    transfer = assess_kv_transfer(resource, observed, of_spec, findings.failures)
    progressing = not ready and problem is None and not resource.spec.paused
    conditions: Conditions = {
        ConditionType.READY: (_status(holds=ready), reason, message),
        ConditionType.RECONCILING: (
            _status(holds=progressing),
            reason if progressing else Reason.PAUSED if resource.spec.paused else Reason.CONVERGED,
            message if progressing else "nothing is in progress",
        ),
        ConditionType.STALLED: (
            _status(holds=problem is not None),
            problem.reason if problem else Reason.NOT_STALLED,
            problem.message if problem else "nothing stands in the way",
        ),
        **{
            _ROLE_CONDITIONS[role]: (_status(holds=found.ready), found.reason, found.message)
            for role, found in roles.items()
        },
        ConditionType.AUTOSCALING_READY: (_status(holds=working), why, text),
        ConditionType.PACKED: (packing.status, packing.reason, _kept_message(previous, packing)),
        ConditionType.KV_COMPATIBLE: (transfer.status, transfer.reason, transfer.message),
        ConditionType.PAUSED: _paused(resource),
    }
    counts = {str(role): found.status for role, found in roles.items()}
    has_router = RoleName.ROUTER in wanted_roles(resource.spec)
    return Status(
        observed_generation=resource.metadata.generation,
        conditions=_transitions(resource.metadata, conditions, previous, now),
        # None and not an empty block: server-side apply would make null of that, which the schema refuses.
        roles=RolesStatus(**counts) if any(counts.values()) else None,
        groups=packing.groups,
        domains=packing.domains,
        endpoint=endpoint(resource) if has_router else None,
    )


def begin(resource: DisaggregatedInference, now: datetime) -> Status:
    """The status of a generation that was just seen, before anything is done about it.

    Written first, so that nobody takes the state of the generation before for the state of this one.
    """
    conditions: Conditions = dict.fromkeys(
        ConditionType, ("Unknown", Reason.NEW_GENERATION, "a new generation of the spec was seen")
    )
    conditions[ConditionType.RECONCILING] = (
        "True",
        Reason.NEW_GENERATION,
        "a new generation of the spec was seen",
    )
    conditions[ConditionType.STALLED] = ("False", Reason.NOT_STALLED, "nothing stands in the way")
    conditions[ConditionType.PAUSED] = _paused(resource)
    return Status(
        observed_generation=resource.metadata.generation,
        conditions=_transitions(resource.metadata, conditions, resource.status, now),
        roles=resource.status.roles,
        groups=resource.status.groups,
        domains=resource.status.domains,
        endpoint=resource.status.endpoint,
    )


def refuse(metadata: Metadata, previous: Status, problem: Problem, now: datetime) -> Status:
    """The status of a resource whose spec cannot be read: all that is known stays, and it says why nothing happens."""
    conditions: Conditions = {
        ConditionType.READY: ("False", problem.reason, problem.message),
        ConditionType.RECONCILING: ("False", Reason.CONVERGED, "nothing is in progress"),
        ConditionType.STALLED: ("True", problem.reason, problem.message),
    }
    known = [condition for condition in previous.conditions if condition.type not in conditions]
    return previous.model_copy(
        update={
            "observed_generation": metadata.generation,
            "conditions": [*_transitions(metadata, conditions, previous, now), *known],
        }
    )


def _kept_message(previous: Status, packing: Packing) -> str:
    """The message of `Packed`: it tells of the moment when reason or domain last changed.

    Amounts of free GPUs move with every pod of others, and each move would be a write to each resource.
    """
    before = previous.condition(ConditionType.PACKED)
    same = before is not None and before.reason == packing.reason and previous.domains == packing.domains
    return before.message if same and before is not None else packing.message


def _role(
    resource: DisaggregatedInference,
    role: RoleName,
    observed: Observed,
    failures: Sequence[PodFailure],
    *,
    same_generation: bool,
) -> RoleAssessment:
    if role not in wanted_roles(resource.spec):
        return RoleAssessment(Reason.ROUTER_DISABLED, "router.kind is none: you bring your own")
    previous = resource.status.condition(_ROLE_CONDITIONS[role])
    was_ready = same_generation and previous is not None and previous.status == "True"
    minimum = _minimum(resource, role)
    return over_groups(
        [
            assess_role(
                role,
                observed.deployment(Workload(role, group)),
                [found for found in failures if (found.role, found.group.group) == (role, group)],
                minimum=minimum,
                was_ready=was_ready,
            )
            for group in range(resource.spec.groups)
        ]
    )


def _minimum(resource: DisaggregatedInference, role: RoleName) -> int | None:
    wanted = getattr(resource.spec, role)
    autoscaling: Autoscaling | None = getattr(wanted, "autoscaling", None)
    replicas: int | None = wanted.replicas
    return replicas if autoscaling is None else autoscaling.min_replicas


def _stalled(roles: dict[RoleName, RoleAssessment]) -> Problem | None:
    given_up = [found for found in roles.values() if found.stalled]
    if not given_up:
        return None
    return Problem(given_up[0].reason, "; ".join(found.message for found in given_up))


def _ready(roles: dict[RoleName, RoleAssessment], problem: Problem | None) -> tuple[bool, Reason, str]:
    if problem is not None:
        return False, problem.reason, problem.message
    waiting = [found for found in roles.values() if not found.ready]
    if waiting:
        return False, waiting[0].reason, "; ".join(found.message for found in waiting)
    if all(roles[role].reason is Reason.SCALED_TO_ZERO for role in ENGINE_ROLES):
        return True, Reason.SCALED_TO_ZERO, "prefill and decode are scaled to 0"
    return True, Reason.READY, "all roles are rolled out and ready"


def _paused(resource: DisaggregatedInference) -> tuple[str, Reason, str]:
    if resource.spec.paused:
        return "True", Reason.PAUSED, "spec.paused is true: the operator changes nothing of this resource"
    return "False", Reason.NOT_PAUSED, "the operator keeps the children as the spec says"


def _status(*, holds: bool) -> ConditionStatus:
    return "True" if holds else "False"


def _transitions(
    metadata: Metadata,
    conditions: Conditions,
    previous: Status,
    now: datetime,
) -> list[Condition]:
    """Conditions with the time of their last transition, which is that of a change of `status` alone."""
    result = []
    for kind, (status, reason, message) in conditions.items():
        before = previous.condition(kind)
        since = before.last_transition_time if before is not None and before.status == status else _time(now)
        result.append(
            Condition.model_validate(
                {
                    "type": str(kind),
                    "status": status,
                    "observedGeneration": metadata.generation,
                    "lastTransitionTime": since,
                    "reason": str(reason),
                    "message": _shortened(message),
                }
            )
        )
    return result


def _shortened(message: str) -> str:
    """As much as somebody reads. A refusal names each mistake, for each role, and the schema has a limit as well."""
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 4]} ..."


def _time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
