"""Nodes that larger pods should prefer, against a scheduler that does its worst."""

from __future__ import annotations

from itertools import chain, combinations, product

from hypothesis import assume, given
from hypothesis import strategies as st

from disagg.topology.plan import planned_nodes
from tests.unit.racks import GROUP, RACK, demand, inventory, node, pod, shape


def plan(
    nodes: list[int], larger: tuple[int, int], smaller: tuple[int, int], *, minimum: int = 0
) -> tuple[str, ...]:
    found = inventory(*(node(f"n{index}", gpu=gpus) for index, gpus in enumerate(nodes)))
    wanted = demand((shape(gpu=smaller[0]), minimum, smaller[1]), (shape(gpu=larger[0]), minimum, larger[1]))
    return planned_nodes(found, RACK, "r1", wanted, GROUP)


def leaves(nodes: list[int], chosen: set[int], larger: tuple[int, int], size: int) -> list[int]:
    """The smaller pods that fit, for each way to put the larger ones on the chosen nodes."""
    counts = [range(gpus // larger[0] + 1 if index in chosen else 1) for index, gpus in enumerate(nodes)]
    return [
        sum((gpus - number * larger[0]) // size for gpus, number in zip(nodes, numbers, strict=True))
        for numbers in product(*counts)
        if sum(numbers) == larger[1]
    ]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5), st.integers(0, 6), st.integers(0, 12))
def test_sizes_that_divide_each_other_need_no_plan(nodes: list[int], larger: int, smaller: int) -> None:
    assert plan(nodes, (4, larger), (2, smaller)) == ()


def test_pods_that_spoil_room_are_told_where_to_go() -> None:
    # Together on one node they leave room for 4 + 1, apart for 2 + 2.
    assert plan([8, 8], (3, 2), (2, 4)) == ()
    assert plan([8, 8], (3, 2), (2, 5)) == ("n0",)


def test_without_room_for_the_maximum_the_minimum_is_planned() -> None:
    assert plan([8, 8], (3, 9), (2, 9), minimum=1) == ()
    assert plan([7, 8], (3, 9), (2, 6), minimum=2) == ()


def test_nothing_is_planned_for_a_group_that_does_not_fit() -> None:
    assert plan([8], (3, 9), (2, 9), minimum=9) == ()


def test_a_group_of_one_role_needs_no_plan() -> None:
    found = inventory(node("n1", gpu=8))
    assert planned_nodes(found, RACK, "r1", demand((shape(gpu=3), 1, 2)), GROUP) == ()


def test_a_domain_that_is_gone_needs_no_plan() -> None:
    assert planned_nodes(inventory(), RACK, "r1", demand((shape(gpu=3), 1, 2)), GROUP) == ()


def test_a_plan_stays_where_its_pods_run() -> None:
    nodes = [node("n0", gpu=8), node("n1", gpu=8)]
    wanted = demand((shape(gpu=2), 5, 5), (shape(gpu=3), 2, 2))
    for name in ("n0", "n1"):
        found = inventory(*nodes, pod("a", name, group=GROUP, gpu=3))
        assert planned_nodes(found, RACK, "r1", wanted, GROUP) == (name,)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=5),
    st.tuples(st.integers(2, 5), st.integers(1, 5)),
    st.integers(1, 4),
)
def test_no_scheduler_spoils_a_plan_that_can_be_kept(
    nodes: list[int], larger: tuple[int, int], size: int
) -> None:
    assume(size < larger[0])
    everywhere = leaves(nodes, set(range(len(nodes))), larger, size)
    assume(everywhere)
    # The hardest demand that fits.
    smaller = max(everywhere)
    names = {int(name[1:]) for name in plan(nodes, larger, (size, smaller))}
    if not names:
        assert min(everywhere) == smaller
        return
    assert min(everywhere) < smaller
    left = leaves(nodes, names, larger, size)
    assert left
    assert max(left) == smaller
    subsets = chain.from_iterable(combinations(range(len(nodes)), n) for n in range(1, len(nodes) + 1))
    filled = [
        set(subset) for subset in subsets if sum(nodes[index] // larger[0] for index in subset) == larger[1]
    ]
    if any(min(leaves(nodes, subset, larger, size)) == smaller for subset in filled):
        assert min(left) == smaller
