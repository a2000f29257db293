"""Random groups on random racks, compared with trying everything."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tests.placement.crowd import at_once
from tests.placement.scene import EVERY, Pods, Scene

Amounts = tuple[int, int, int]
"""GPUs, CPUs and GiB of memory."""

NODE: Amounts = (8, 32, 64)
CASES = 8


@dataclass(frozen=True)
class Case:
    """A group and racks.

    Attributes:
        racks: What is free on each node of each rack.
        counts: Prefill and decode pods.
        sizes: What each of them takes.
    """

    racks: dict[str, list[Amounts]]
    counts: tuple[int, int]
    sizes: tuple[Amounts, Amounts]

    @cached_property
    def holding(self) -> set[str]:
        """The racks that can hold the group, found by trying everything."""
        pods = [size for size, count in zip(self.sizes, self.counts, strict=True) for _ in range(count)]
        return {rack for rack, nodes in self.racks.items() if _fits(tuple(nodes), pods)}


def _fits(free: tuple[Amounts, ...], pods: Sequence[Amounts]) -> bool:
    if not pods:
        return True
    pod, rest = pods[0], pods[1:]
    for node in sorted(set(free)):
        if all(have >= want for have, want in zip(node, pod, strict=True)):
            left = list(free)
            left.remove(node)
            gpus, cpus, memory = (have - want for have, want in zip(node, pod, strict=True))
            if _fits((*left, (gpus, cpus, memory)), rest):
                return True
    return False


def _random_case(dice: random.Random) -> Case:
    """A case in which one rack or none holds the group."""
    while True:
        racks = {
            name: [
                (dice.choice([0, 2, 3, 4, 5, 6, 8]), dice.choice([8, 16, 32]), dice.choice([16, 32, 64]))
                for _ in range(dice.randint(1, 3))
            ]
            for name in "abc"
        }
        sizes = tuple((dice.choice([1, 2, 3, 4, 5]), dice.randint(1, 8), dice.randint(1, 16)) for _ in "pd")
        case = Case(racks, (dice.randint(1, 3), dice.randint(1, 3)), (sizes[0], sizes[1]))
        if len(case.holding) == 1 and not _is_roomy(case):
            return case


def _is_roomy(case: Case) -> bool:
    """Whether it would also fit with a pod more of each role."""
    return bool(replace(case, counts=(case.counts[0] + 1, case.counts[1] + 1)).holding)


def _play(scene: Scene, case: Case) -> None:
    for rack, nodes in case.racks.items():
        for number, (node, free) in enumerate(
            zip(
                scene.rack(rack, *[NODE[0]] * len(nodes), cpu=NODE[1], memory=f"{NODE[2]}Gi"),
                nodes,
                strict=True,
            )
        ):
            gpus, cpus, memory = (have - left for have, left in zip(NODE, free, strict=True))
            requests = {"cpu": str(cpus), "memory": f"{memory}Gi"}
            scene.fill(node, gpus, name=f"filler-{scene.name}-{rack}-{number}", requests=requests)
    scene.wait_for_nodes()
    roles = [
        Pods(count, gpus, {"cpu": str(cpus), "memory": f"{memory}Gi"})
        for count, (gpus, cpus, memory) in zip(case.counts, case.sizes, strict=True)
    ]
    scene.apply(roles[0], roles[1])


@at_once(*EVERY, slow=True)
def test_whenever_some_rack_holds_the_group_it_is_packed(scene: Scene) -> None:
    dice = random.Random(str(scene.way))  # noqa: S311 - the same cases each time
    cases = {replace(scene, name=f"{scene.name}{number}"): _random_case(dice) for number in range(CASES)}
    for part, case in cases.items():
        _play(part, case)
    missed = []
    for part, case in cases.items():
        landed = part.runs(*case.counts)
        if landed != case.holding:
            missed.append((case, landed, part.picture()))
    assert not missed, "\n".join(map(str, missed))
