"""Which role of a group waits until the other is placed.

The default scheduler takes pods as they come. Where a domain fits exactly, small pods that come first break up the room
that the large ones need; so the role with the larger pods goes first. It also means that a group which moves never has
both roles on their way at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from disagg.api.names import ENGINE_ROLES, Workload
from disagg.decide.decisions import GroupDecision, Mechanism, Placement
from disagg.decide.live import live_placement
from disagg.decide.observed import Observed
from disagg.topology.groups import GroupPods

PATIENCE = timedelta(seconds=30)
"""How long a role waits for pods that the scheduler says nothing of: a quota or a webhook may keep them from being."""


def held(
    group: int, decision: GroupDecision, observed: Observed, pods: GroupPods | None, now: datetime
) -> frozenset[Workload]:
    """The workloads that are to be left as they are for now, also if that is not to exist.

    Args:
        group: Number of the group.
        decision: Where it is packed.
        observed: The live children of its resource.
        pods: Its pods, or None if they are not known.
        now: The time, in UTC.
    """
    placement = decision.placement
    if placement is None or pods is None:
        return frozenset()
    first, second = (Workload(role, group) for role in _in_order(placement))
    leader, follower = observed.deployment(first), observed.deployment(second)
    if placement.mechanism is Mechanism.POD_GROUP:
        # Its pods are placed together, or none while some are missing, but one by one in the order in which they came.
        made = follower is not None or _is_made(leader, placement, first, pods, now)
        return frozenset() if made else frozenset({second})
    if (
        follower is not None
        and live_placement(follower) == placement
        and any(pods.bound[second.role].values())
    ):
        return frozenset()
    moves = follower is not None and any(pods.bound[second.role].values())
    settled = _is_rolled_out(leader, placement) if moves else _is_placed(leader, placement, first, pods, now)
    return frozenset() if settled else frozenset({second})


def _in_order(placement: Placement) -> list[Any]:
    return sorted(ENGINE_ROLES, key=lambda role: role is not placement.first)


def _is_placed(
    leader: dict[str, Any] | None, placement: Placement, first: Workload, pods: GroupPods, now: datetime
) -> bool:
    """Whether the scheduler has found a node for each pod, or has said that there is none."""
    known = sum(pods.bound[first.role].values()) + pods.unschedulable[first.role]
    return _is_begun(leader, placement, known, now)


def _is_begun(leader: dict[str, Any] | None, placement: Placement, known: int, now: datetime) -> bool:
    """Whether as many pods as are wanted of the leader have come as far as it takes, or none comes any more."""
    if leader is None or live_placement(leader) != placement:
        return False
    return known >= int(leader["spec"].get("replicas", 1)) or now - _last_progress(leader) > PATIENCE


def _is_made(
    leader: dict[str, Any] | None, placement: Placement, first: Workload, pods: GroupPods, now: datetime
) -> bool:
    """Whether all pods are there, with a node or without."""
    known = sum(pods.bound[first.role].values()) + pods.pending[first.role]
    return _is_begun(leader, placement, known, now)


def _is_rolled_out(leader: dict[str, Any] | None, placement: Placement) -> bool:
    if leader is None or live_placement(leader) != placement:
        return False
    spec, status, metadata = leader["spec"], leader.get("status", {}), leader["metadata"]
    wanted = int(spec.get("replicas", 1))
    return (
        int(status.get("observedGeneration", 0)) >= int(metadata.get("generation", 1))
        and int(status.get("updatedReplicas", 0)) >= wanted
        and int(status.get("readyReplicas", 0)) >= wanted
        and int(status.get("replicas", 0)) == wanted
    )


def _last_progress(deployment: dict[str, Any]) -> datetime:
    times = [deployment["metadata"]["creationTimestamp"]]
    times += [
        condition["lastUpdateTime"]
        for condition in deployment.get("status", {}).get("conditions", [])
        if condition["type"] == "Progressing" and "lastUpdateTime" in condition
    ]
    return max(datetime.fromisoformat(time) for time in times)
