"""Random half-full clusters, each with a group that one of its racks can hold. Pure, from a seed.

Whether a rack can hold a group is found by trying everything, with nothing of the operator's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Final, NamedTuple

_DRAWS: Final = 40
"""Groups that are drawn for each cluster, of which one is taken."""
_TIGHT: Final = 0.75
"""Share of the trials whose group is the one of those that fills a rack most."""
_NEVER: Final = -(10**9)
"""Less than any number of pods, whatever is added to it."""
_ODD: Final = 0.25
"""Share of the roles whose pods take a number of GPUs that does not divide a node's."""


class Amount(NamedTuple):
    """Resources: GPUs, CPU cores, GiB of memory."""

    gpus: int
    cpu: int
    memory: int

    def minus(self, other: Amount) -> Amount:
        """What is left without `other`."""
        return Amount(self.gpus - other.gpus, self.cpu - other.cpu, self.memory - other.memory)

    def holds(self, other: Amount) -> bool:
        """Whether `other` fits into it."""
        return self.gpus >= other.gpus and self.cpu >= other.cpu and self.memory >= other.memory


NODE: Final = Amount(gpus=8, cpu=96, memory=768)
"""What a node has."""


@dataclass(frozen=True)
class Pods:
    """Pods of one role.

    Attributes:
        count: How many.
        each: What each of them takes.
    """

    count: int
    each: Amount


@dataclass(frozen=True)
class Shape:
    """Shape of each cluster.

    Attributes:
        racks: Racks in it.
        nodes: Nodes in a rack.
    """

    racks: int = 4
    nodes: int = 4


@dataclass(frozen=True)
class Trial:
    """A cluster, and a group that is to be placed there.

    Attributes:
        number: Which trial it is, from 0.
        used: What is taken already, by rack and node.
        prefill: The group's prefill pods.
        decode: The group's decode pods.
        suitable: Racks that can hold the group.
    """

    number: int
    used: tuple[tuple[Amount, ...], ...]
    prefill: Pods
    decode: Pods
    suitable: tuple[int, ...]

    @property
    def pods(self) -> int:
        """Pods of the group."""
        return self.prefill.count + self.decode.count

    def free(self) -> list[list[Amount]]:
        """What is free, by rack and node."""
        return [[NODE.minus(used) for used in rack] for rack in self.used]


def draw(seed: int, number: int, shape: Shape) -> Trial:
    """Draw a trial; the same seed and number make the same one.

    Args:
        seed: Seed of all trials.
        number: Which one.
        shape: Shape of the cluster.
    """
    random = Random(f"{seed}/{number}")  # noqa: S311 - it is to be repeated
    while True:
        used = tuple(_rack(random, shape.nodes) for _ in range(shape.racks))
        groups = [(_pods(random, (2, 8), (1, 2, 4)), _pods(random, (1, 4), (2, 4, 8))) for _ in range(_DRAWS)]
        possible = [
            Trial(number, used, prefill, decode, suitable)
            for prefill, decode in groups
            if (suitable := racks_that_hold(used, prefill, decode))
        ]
        if possible:
            return max(possible, key=_tightness) if random.random() < _TIGHT else random.choice(possible)


def racks_that_hold(used: Sequence[Sequence[Amount]], prefill: Pods, decode: Pods) -> tuple[int, ...]:
    """The racks that can hold all pods at once.

    Args:
        used: What is taken, by rack and node.
        prefill: Prefill pods.
        decode: Decode pods.
    """
    return tuple(
        number
        for number, rack in enumerate(used)
        if is_possible([NODE.minus(amount) for amount in rack], prefill, decode)
    )


def is_possible(free: Iterable[Amount], prefill: Pods, decode: Pods) -> bool:
    """Whether nodes can hold all pods at once, by trying every distribution of the decode pods.

    Args:
        free: What is free on each node.
        prefill: Prefill pods.
        decode: Decode pods.
    """
    nodes = tuple(free)

    @cache
    def most_prefill(first: int, decode_left: int) -> int:
        """Most prefill pods on the nodes from `first` on, which have to take the decode pods that are left."""
        if first == len(nodes):
            return 0 if decode_left == 0 else _NEVER
        best, room = _NEVER, nodes[first]
        for here in range(decode_left + 1):
            best = max(best, _number(room, prefill.each) + most_prefill(first + 1, decode_left - here))
            if not room.holds(decode.each):
                break
            room = room.minus(decode.each)
        return best

    return most_prefill(0, decode.count) >= prefill.count


def _number(room: Amount, each: Amount) -> int:
    return min(have // want for have, want in zip(room, each, strict=True) if want)


def _rack(random: Random, nodes: int) -> tuple[Amount, ...]:
    fullness = random.uniform(0.1, 0.9)
    return tuple(_used(random, fullness) for _ in range(nodes))


def _used(random: Random, fullness: float) -> Amount:
    gpus = sum(random.random() < fullness for _ in range(NODE.gpus))
    return Amount(
        gpus=gpus,
        cpu=gpus * random.choice((4, 8, 10)) + random.choice((0, 0, 4, 12)),
        memory=gpus * random.choice((32, 64, 80)) + random.choice((0, 0, 16, 64)),
    )


def _pods(random: Random, count: tuple[int, int], gpus: tuple[int, ...]) -> Pods:
    each = random.choice((3, 5) if random.random() < _ODD else gpus)
    return Pods(
        random.randint(*count),
        Amount(each, each * random.choice((2, 4, 8, 10)), each * random.choice((16, 32, 64, 80))),
    )


def _tightness(trial: Trial) -> float:
    """What the group takes of the GPUs that are free in the roomiest rack that holds it."""
    free = trial.free()
    most = max(sum(node.gpus for node in free[rack]) for rack in trial.suitable)
    return sum(pods.count * pods.each.gpus for pods in (trial.prefill, trial.decode)) / most
