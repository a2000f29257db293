"""Which pods are to be replaced so that their group comes together.

The scheduler places a pod once. On a full rack a pod that replaces another comes before the other is gone, so it runs
elsewhere, or small pods take the room that a large one waits for. No pod is replaced that serves, but for the smallest
number that lets one run which packing is required for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from disagg.api.names import ENGINE_ROLES, RoleName
from disagg.api.spec import PackMode
from disagg.decide.decisions import GroupDecision, Placement
from disagg.topology.eligibility import PodShape
from disagg.topology.groups import GroupPods
from disagg.topology.inventory import Inventory, NodeUse


class RunningPod(Protocol):
    """A pod that has a node."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def role(self) -> RoleName:
        """Its role."""

    @property
    def node(self) -> str:
        """Its node."""

    @property
    def loading(self) -> bool:
        """Whether it has never served."""


Pod = TypeVar("Pod", bound=RunningPod)


def misplaced(
    decision: GroupDecision, pods: Sequence[Pod], counts: GroupPods, inventory: Inventory
) -> list[Pod]:
    """The pods of a group that are to be deleted now, so that their Deployments make them anew: few or none.

    Args:
        decision: Where the group is to be.
        pods: Its pods that have a node and are not being deleted.
        counts: Its pods, counted.
        inventory: The cluster.
    """
    placement, fit = decision.placement, decision.fit
    if placement is None or decision.claim is None or fit is None or not fit.fits_minimum:
        return []
    if decision.current != placement.domain or any(
        sum(nodes.values()) for nodes in counts.terminating.values()
    ):
        # It moves, or has yet to see what becomes free.
        return []
    if placement.mode is PackMode.PREFERRED:
        return _strays(placement, fit.headroom, pods, counts, inventory)
    shapes = {role: shape for role, (shape, _) in decision.claim.roles.items()}
    return _in_the_way(placement, shapes, pods, counts, inventory)


def _strays(
    placement: Placement,
    headroom: Mapping[RoleName, int],
    pods: Sequence[Pod],
    counts: GroupPods,
    inventory: Inventory,
) -> list[Pod]:
    """One that loads elsewhere while there is room for it at home. It has not served yet."""
    if any(counts.pending.values()):
        return []
    return [
        pod
        for pod in pods
        if pod.loading
        and headroom.get(pod.role, 0)
        and (node := inventory.node(pod.node)) is not None
        and node.labels.get(placement.key) != placement.domain
    ][:1]


def _in_the_way(
    placement: Placement,
    shapes: Mapping[RoleName, PodShape],
    pods: Sequence[Pod],
    counts: GroupPods,
    inventory: Inventory,
) -> list[Pod]:
    """The fewest small pods of one node without which a large one fits there, if they fit elsewhere at once."""
    first = placement.first
    (second,) = (role for role in ENGINE_ROLES if role is not first)
    if not counts.unschedulable[first] or counts.pending[second]:
        return []
    nodes = inventory.domains(placement.key).get(placement.domain or "", ())
    large, small = inventory.eligible(shapes[first]), inventory.eligible(shapes[second])
    spare = {use.name: _room(use, shapes[second]) for use in nodes if use.name in small}
    found: list[Pod] = []
    for use in nodes:
        if use.name not in large:
            continue
        there = [pod for pod in pods if pod.role is second and pod.node == use.name]
        number = _to_go(use, shapes[first], shapes[second], len(there))
        if number == 0:
            # The scheduler will see to it.
            return []
        others = sum(room for name, room in spare.items() if name != use.name)
        if number is not None and others >= number and (not found or number < len(found)):
            found = there[:number]
    return found


def _to_go(use: NodeUse, large: PodShape, small: PodShape, most: int) -> int | None:
    """How many small pods have to go before a large one fits, or None if that is not enough."""
    freed = dict(small.requests)
    for number in range(most + 1):
        if all(
            _free(use, resource) + number * freed.get(resource, 0) >= amount
            for resource, amount in large.requests
        ):
            return number
    return None


def _room(use: NodeUse, shape: PodShape) -> int:
    return max(_fewest(_free(use, resource) // amount for resource, amount in shape.requests if amount), 0)


def _fewest(numbers: Iterable[int]) -> int:
    return min(numbers, default=0)


def _free(use: NodeUse, resource: str) -> int:
    total = use.node.allocatable.get(resource, 0) if use.node is not None else 0
    return total - use.used.get(resource, 0)
