"""Claims: room that a decision counts on before its pods are bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from disagg.api.names import RoleName
from disagg.topology.amounts import Amounts, Requests, add
from disagg.topology.eligibility import PodShape


@dataclass(frozen=True, slots=True)
class Claim:
    """What a group is about to take.

    Attributes:
        key: Node label whose values are the domains.
        domain: The value that was chosen.
        roles: By role the shape of its pods and how many there shall be.
    """

    key: str
    domain: str
    roles: Mapping[RoleName, tuple[PodShape, int]]


@dataclass(frozen=True, slots=True)
class Expected:
    """Pods of one role that are still to come.

    Attributes:
        shape: Their shape.
        count: How many.
        occupied: Nodes that hold pods of the same role already.
    """

    shape: PodShape
    count: int
    occupied: frozenset[str]


def weight(requests: Requests) -> tuple[int, ...]:
    """How hard a pod is to place: accelerators first, then cpu, then all the rest."""
    amounts = dict(requests)
    accelerators = sum(amount for name, amount in requests if is_accelerator(name))
    return accelerators, amounts.get("cpu", 0), amounts.get("memory", 0)


def is_accelerator(resource: str) -> bool:
    """Whether a resource is a device: its name has a vendor's domain in front."""
    return "/" in resource


def place(
    expected: Iterable[Expected], free: Mapping[str, Amounts], eligible: Mapping[PodShape, set[str]]
) -> dict[str, Amounts]:
    """What each node loses to pods that are still to come: larger pods first, each on the node with the best fit.

    Pods that fit nowhere take nothing: the room that is left is too small for them anyway.

    Args:
        expected: The pods.
        free: What is free on each node of their domain.
        eligible: Nodes that each shape may run on.
    """
    left = {name: dict(amounts) for name, amounts in free.items()}
    taken: dict[str, Amounts] = {}
    for pods in sorted(expected, key=lambda pods: weight(pods.shape.requests), reverse=True):
        shape, remaining = pods.shape, pods.count
        main = max(
            shape.requests,
            key=lambda item: (is_accelerator(item[0]), item[0] == "cpu", item),
            default=("", 0),
        )[0]
        nodes = sorted(eligible[shape].intersection(left), key=lambda name: (left[name].get(main, 0), name))
        for name in nodes:
            # The tightest node stays the tightest while it is filled, so it takes all it can.
            number = min(remaining, _capacity(left[name], shape, occupied=name in pods.occupied))
            if number > 0:
                add(left[name], shape.requests, times=-number)
                add(taken.setdefault(name, {}), shape.requests, times=number)
                remaining -= number
            if not remaining:
                break
    return taken


def _capacity(free: Amounts, shape: PodShape, *, occupied: bool) -> int:
    number = min(free.get(name, 0) // amount for name, amount in shape.requests)
    return min(number, 0 if occupied else 1) if shape.one_per_node else number
