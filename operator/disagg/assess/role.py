"""Is a role ready? Judged from its Deployment, as the Deployment controller reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from disagg.api.names import RoleName
from disagg.api.status import Reason, RoleStatus
from disagg.assess.pod_failure import PodFailure, told

_ROLLED_OUT = "NewReplicaSetAvailable"
_UNEXPLAINED = frozenset({Reason.PROGRESSING, Reason.ROLLING_OUT, Reason.PODS_NOT_READY})
"""Reasons that say that pods are missing, and not why: what keeps the pods from coming up says more."""


@dataclass(frozen=True)
class RoleAssessment:
    """State of a role.

    Attributes:
        reason: Reason of the role's condition.
        message: Message of the role's condition.
        status: Counts; None while there is no Deployment.
    """

    reason: Reason
    message: str
    status: RoleStatus | None = None

    @property
    def ready(self) -> bool:
        """Whether the role is rolled out and has the pods that it needs."""
        return self.reason in (Reason.READY, Reason.SCALED_TO_ZERO, Reason.ROUTER_DISABLED)

    @property
    def stalled(self) -> bool:
        """Whether waiting does not help: the Deployment has given up."""
        return self.reason is Reason.PROGRESS_DEADLINE_EXCEEDED


def assess_role(
    role: RoleName,
    deployment: dict[str, Any] | None,
    failures: Sequence[PodFailure] = (),
    *,
    minimum: int | None,
    was_ready: bool,
) -> RoleAssessment:
    """Judge a role.

    A rollout counts as done when the Deployment controller says so and each pod is up. From then on the role stays
    ready while it is scaled up and while no more pods are missing than a rollout may take down: capacity that comes
    or goes is not a failure, and a role that flapped with its autoscaler would be useless as a gate.

    Args:
        role: The role, for messages.
        deployment: Its live Deployment.
        failures: Those of its pods that do not come up.
        minimum: Fewest pods that the resource asks for (its replicas, or its autoscaler's minimum), or None where it
            leaves the count to others.
        was_ready: Whether the role was ready at this generation of the resource when it was last judged.
    """
    if deployment is None:
        return RoleAssessment(Reason.PROGRESSING, f"Deployment for {role} does not exist yet")
    status = deployment.get("status", {})
    counts = _counts(deployment)
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    have = f"{counts.ready_replicas} of {counts.desired_replicas} {role} pods are ready"
    verdict = _not_rolled_out(deployment, conditions, have, was_ready=was_ready) or _not_available(
        deployment, have, minimum=minimum, was_ready=was_ready
    )
    if verdict is None:
        if counts.desired_replicas == 0:
            return RoleAssessment(Reason.SCALED_TO_ZERO, f"{role} is scaled to 0", counts)
        verdict = Reason.READY, have
    return RoleAssessment(*_explained(*verdict, failures), counts)


def _explained(reason: Reason, message: str, failures: Sequence[PodFailure]) -> tuple[Reason, str]:
    """A verdict with what keeps pods from coming up."""
    if (known := told(failures)) is None:
        return reason, message
    why, text = known
    return (why if reason in _UNEXPLAINED else reason), f"{message}; {text}"


def over_groups(groups: list[RoleAssessment]) -> RoleAssessment:
    """The state of a role, from its state in each group: as good as in the worst of them.

    Args:
        groups: The states, by number of the group.
    """
    if len(groups) == 1:
        return groups[0]
    counts = [group.status for group in groups if group.status is not None]
    status = None
    if counts:
        desired, ready = (
            sum(count.desired_replicas for count in counts),
            sum(count.ready_replicas for count in counts),
        )
        status = RoleStatus(
            desired_replicas=desired,
            ready_replicas=ready,
            updated_replicas=sum(count.updated_replicas for count in counts),
            ready=f"{ready}/{desired}",
        )
    # One that has given up first: waiting for the others helps nobody.
    waiting = sorted((g for g in groups if not g.ready), key=lambda group: not group.stalled)
    if waiting:
        text = "; ".join(f"group {number}: {g.message}" for number, g in enumerate(groups) if not g.ready)
        return RoleAssessment(waiting[0].reason, text, status)
    awake = next((group for group in groups if group.reason is not Reason.SCALED_TO_ZERO), groups[0])
    if status is None or awake.reason is not Reason.READY:
        return RoleAssessment(awake.reason, awake.message, status)
    text = f"{status.ready_replicas} of {status.desired_replicas} pods are ready in {len(groups)} groups"
    return RoleAssessment(Reason.READY, text, status)


def _counts(deployment: dict[str, Any]) -> RoleStatus:
    status = deployment.get("status", {})
    desired, ready = int(deployment["spec"].get("replicas", 1)), int(status.get("readyReplicas", 0))
    return RoleStatus(
        desired_replicas=desired,
        ready_replicas=ready,
        updated_replicas=int(status.get("updatedReplicas", 0)),
        ready=f"{ready}/{desired}",
    )


def _not_rolled_out(
    deployment: dict[str, Any], conditions: dict[str, dict[str, Any]], have: str, *, was_ready: bool
) -> tuple[Reason, str] | None:
    """Why the latest pod template does not run everywhere yet, as far as the Deployment controller knows."""
    metadata, status = deployment["metadata"], deployment.get("status", {})
    progressing = conditions.get("Progressing", {}).get("reason")
    failure = conditions.get("ReplicaFailure", {})
    updated, total = int(status.get("updatedReplicas", 0)), int(status.get("replicas", 0))
    if progressing == "ProgressDeadlineExceeded":
        limit = deployment["spec"].get("progressDeadlineSeconds")
        return Reason.PROGRESS_DEADLINE_EXCEEDED, (
            f"{have}, and no further one became ready within {limit} s (progressDeadlineSeconds):"
            f" look at the pods of Deployment {metadata['name']} with kubectl describe"
        )
    if deployment["spec"].get("paused"):
        return Reason.DEPLOYMENT_PAUSED, (
            f"{have}; rollouts are paused by hand: kubectl rollout resume deployment/{metadata['name']}"
        )
    if failure.get("status") == "True":
        return Reason.REPLICA_FAILURE, f"{have}, and no more can be created: {failure.get('message', '')}"
    # What the Deployment controller has yet to see of a role that was ready is a new count, as a rule: a rollout shows
    # in the counts at once.
    unseen = int(status.get("observedGeneration", 0)) < int(metadata.get("generation", 1)) and not was_ready
    if unseen or updated < total:
        return Reason.ROLLING_OUT, f"{have}, {updated} run the latest template"
    if progressing != _ROLLED_OUT:
        return Reason.PROGRESSING, have
    return None


def _not_available(
    deployment: dict[str, Any], have: str, *, minimum: int | None, was_ready: bool
) -> tuple[Reason, str] | None:
    """Whether a role that is rolled out lacks pods that it cannot do without."""
    needed = _needed(deployment["spec"], minimum=minimum or 1, was_ready=was_ready)
    if int(deployment.get("status", {}).get("readyReplicas", 0)) < needed:
        return Reason.PODS_NOT_READY, f"{have}, {needed} are needed"
    return None


def _needed(spec: dict[str, Any], *, minimum: int, was_ready: bool) -> int:
    desired = int(spec.get("replicas", 1))
    if desired == 0:
        return 0
    if not was_ready:
        # An autoscaler lifts the count to its minimum in its first pass.
        return max(desired, minimum)
    unavailable = spec.get("strategy", {}).get("rollingUpdate", {}).get("maxUnavailable", 0)
    return max(min(desired, minimum) - _pods(unavailable, desired), 1)


def _pods(value: int | str, desired: int) -> int:
    """A count of pods out of a count or percentage, rounded up as far as tolerance goes."""
    if isinstance(value, str):
        return ceil(int(value.removesuffix("%")) * desired / 100) if value.endswith("%") else int(value)
    return value
