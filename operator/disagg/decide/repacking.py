"""Which pods are to be replaced so that their group comes together.

The scheduler places a pod once. On a full rack a pod that replaces another comes before the other is gone, so it runs
elsewhere, or small pods take the room that a large one waits for. No pod is replaced that serves, but for the smallest
number that lets one run which packing is required for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from disagg.api.names import ENGINE_ROLES, RoleName
from disagg.api.topology_constraint import PackMode
from disagg.decide.decisions import GroupDecision
from disagg.topology.amounts import Amounts, add
from disagg.topology.eligibility import PodShape
from disagg.topology.groups import GroupKey, GroupPods
from disagg.topology.inventory import Inventory, NodeUse

TRIES = 5
"""How often pods of a template are replaced although no pod comes home by it."""
PERIOD = timedelta(hours=1)
"""For how long that is remembered."""


class RunningPod(Protocol):
    """A pod that has a node and is not being deleted."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def uid(self) -> str:
        """Its uid."""

    @property
    def role(self) -> RoleName:
        """Its role."""

    @property
    def node(self) -> str:
        """Its node."""

    @property
    def loading(self) -> bool:
        """Whether it has never served."""

    @property
    def placement(self) -> str:
        """Identity of the placement that it was made for."""

    @property
    def template(self) -> str:
        """Hash of the template that it was made from."""


Pod = TypeVar("Pod", bound=RunningPod)


@dataclass(frozen=True)
class Misplaced(Generic[Pod]):
    """Pods that are to be deleted now, so that their Deployments make them anew.

    Attributes:
        pods: The pods.
        placed: How many have come home before of those that this is done for.
    """

    pods: Sequence[Pod]
    placed: int


def misplaced(
    decision: GroupDecision, group: GroupKey, pods: Sequence[Pod], counts: GroupPods, inventory: Inventory
) -> Misplaced[Pod] | None:
    """The pods of a group that are to be deleted now: few, or none.

    Args:
        decision: Where the group is to be.
        group: The group.
        pods: Its pods that have a node and are not being deleted.
        counts: Its pods, counted.
        inventory: The cluster.
    """
    placement, fit, claim = decision.placement, decision.fit, decision.claim
    if placement is None or claim is None or fit is None or not fit.fits_minimum:
        return None
    if decision.held or any(pod.placement != placement.identity for pod in pods):
        # It moves: what is made anew now would be made for the domain that it leaves.
        return None
    home = _Home(placement.key, claim.domain, placement.first, group, pods, counts, inventory)
    if placement.mode is PackMode.REQUIRED:
        if sum(counts.bound[placement.first].values()) >= decision.demand[placement.first]:
            # A pod that a rollout has in addition is not worth one that serves.
            return None
        return home.in_the_way({role: shape for role, (shape, _) in claim.roles.items()})
    # A steer is soft: a group that has never come where it was told is left where it is.
    return home.stray(fit.headroom) if claim.domain == placement.domain else None


@dataclass(frozen=True)
class _Home(Generic[Pod]):
    """The domain in which a group is to be, and its pods."""

    key: str
    domain: str
    first: RoleName
    group: GroupKey
    pods: Sequence[Pod]
    counts: GroupPods
    inventory: Inventory

    def stray(self, headroom: Mapping[RoleName, int]) -> Misplaced[Pod] | None:
        """One that loads elsewhere while there is room for it at home. It has not served yet."""
        if any(self.counts.pending.values()) or self.counts.end:
            # It has yet to be seen what becomes free, and who takes it.
            return None
        strays = [
            pod
            for pod in self.pods
            if pod.loading and headroom.get(pod.role, 0) and self._is_home(pod) is False
        ]
        if not strays:
            return None
        # A small one that goes home first may break up the room of a large one.
        found = min(strays, key=lambda pod: (pod.role is not self.first, pod.name))
        return Misplaced([found], sum(bool(self._is_home(pod)) for pod in self._like(found)))

    def in_the_way(self, shapes: Mapping[RoleName, PodShape]) -> Misplaced[Pod] | None:
        """The fewest small pods of one node without which a large one fits there, if they fit elsewhere at once."""
        (second,) = (role for role in ENGINE_ROLES if role is not self.first)
        if not self.counts.unschedulable[self.first] or self.counts.pending[second]:
            return None
        large, small = shapes[self.first], shapes[second]
        uses = self.inventory.domains(self.key).get(self.domain, ())
        taken = self.inventory.taken(self.group, (self.key, self.domain))
        room = {use.name: self._room(use.name, _free(use, taken), small, second) for use in uses}
        best: list[Pod] = []
        for use in uses:
            if not self._room(use.name, dict(large.requests), large, self.first):
                # It takes no more of them, however much were free.
                continue
            free = _free(use, {})
            for role, shape in shapes.items():
                add(free, shape.requests, times=self.counts.terminating[role][use.name])
            if _to_go(free, large, small, 0) == 0:
                # The scheduler will see to it, if not before those that end are gone.
                return None
            add(free, taken.get(use.name, {}).items(), times=-1)
            there = self._removable(use.name, second)
            number = _to_go(free, large, small, len(there))
            if not number or sum(room.values()) - room[use.name] < number:
                continue
            if not best or number < len(best):
                best = there[:number]
        return Misplaced(best, sum(self.counts.bound[self.first].values())) if best else None

    def _removable(self, node: str, role: RoleName) -> list[Pod]:
        """Pods that may have to go: those that load, or else those that serve.

        While pods end those alone that have come to the place of one: another time, all places there being taken for as
        long as those end, they go elsewhere.
        """
        like = [pod for pod in self.pods if pod.role is role]
        there = [pod for pod in like if pod.node == node]
        if self.counts.end or any(pod.loading for pod in like):
            # Of a role in which pods are missing already, as in a rollout, none goes that serves.
            there = [pod for pod in there if pod.loading]
        return [] if self.counts.end and not self.counts.terminating[role][node] else there

    def _like(self, pod: Pod) -> list[Pod]:
        return [other for other in self.pods if other.role is pod.role and other.template == pod.template]

    def _is_home(self, pod: Pod) -> bool | None:
        """Whether a pod runs in the domain, or None if its node is not known."""
        node = self.inventory.node(pod.node)
        return None if node is None else node.labels.get(self.key) == self.domain

    def _room(self, node: str, free: Amounts, shape: PodShape, role: RoleName) -> int:
        """How many pods of a role a node takes in addition if so much is free."""
        if node not in self.inventory.eligible(shape):
            return 0
        number = min((free.get(name, 0) // amount for name, amount in shape.requests if amount), default=0)
        return max(min(number, 1 - self.counts.on(node, role)) if shape.one_per_node else number, 0)


def _to_go(free: Amounts, large: PodShape, small: PodShape, most: int) -> int | None:
    """How many small pods have to go before a large one fits, or None if that is not enough."""
    freed = dict(small.requests)
    for number in range(most + 1):
        if all(free.get(name, 0) + number * freed.get(name, 0) >= amount for name, amount in large.requests):
            return number
    return None


def _free(use: NodeUse, taken: Mapping[str, Amounts]) -> Amounts:
    free = dict(use.node.allocatable) if use.node is not None else {}
    add(free, use.used.items(), times=-1)
    add(free, taken.get(use.name, {}).items(), times=-1)
    return free


@dataclass(frozen=True, slots=True)
class _Attempt:
    group: GroupKey
    template: str
    placed: int
    uids: frozenset[str]
    time: datetime


@dataclass
class Attempts:
    """What was tried of late: whatever keeps a pod from home, its group must not be restarted for ever.

    The scheduler sees more than the operator does, such as ports and volumes, and a steer is one wish among others.
    """

    _made: list[_Attempt] = field(default_factory=list)

    def allow(self, group: GroupKey, found: Misplaced[Pod], now: datetime) -> bool:
        """Whether the pods may be deleted: not if it has been of no use, and not twice."""
        self._made = [attempt for attempt in self._made if now - attempt.time < PERIOD]
        own = [attempt for attempt in self._made if attempt.group == group]
        if any(pod.uid in attempt.uids for attempt in own for pod in found.pods):
            # The watch has yet to tell of it.
            return False
        # A pod that has come home in between says that the attempt before was not in vain.
        vain = [
            attempt
            for attempt in own
            if attempt.template == found.pods[0].template and attempt.placed >= found.placed
        ]
        return len(vain) < TRIES

    def add(self, group: GroupKey, found: Misplaced[Pod], now: datetime) -> None:
        """The pods have been deleted."""
        uids = frozenset(pod.uid for pod in found.pods)
        self._made.append(_Attempt(group, found.pods[0].template, found.placed, uids, now))
