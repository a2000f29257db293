"""Which domains hold a group, compared with trying every placement."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.api.names import RoleName
from disagg.topology.amounts import Requests
from disagg.topology.capacity import DomainFit, GroupDemand, survey
from disagg.topology.claims import Claim
from disagg.topology.eligibility import PodShape, shape_of
from tests.unit.racks import GPU, GROUP, OTHER, RACK, demand, inventory, node, pod, shape

PREFILL, DECODE = RoleName.PREFILL, RoleName.DECODE


def fit(wanted: GroupDemand, *objects: dict[str, Any]) -> DomainFit:
    return survey(inventory(*objects), RACK, wanted, GROUP)["r1"]


def test_a_pod_needs_its_devices_on_one_node() -> None:
    nodes = [node("n1", gpu=3), node("n2", gpu=3)]
    assert not fit(demand((shape(gpu=4), 1, 1)), *nodes).fits_minimum
    assert fit(demand((shape(gpu=3), 2, 2)), *nodes).fits_maximum


def test_all_resources_must_fit_at_once() -> None:
    nodes = [node("n1", gpu=8, cpu=1), node("n2", gpu=1, cpu=64)]
    assert not fit(demand((shape(gpu=2, cpu=2), 1, 1)), *nodes).fits_minimum


def test_roles_must_fit_beside_each_other() -> None:
    wanted = demand((shape(gpu=4), 1, 1), (shape(gpu=2), 2, 3))
    found = fit(wanted, node("n1", gpu=8))
    assert found.fits_minimum
    assert not found.fits_maximum


def test_a_node_that_suits_one_role_only_helps_that_one() -> None:
    special = shape_of({"spec": {"nodeSelector": {"kind": "b"}, "containers": [{"name": "c"}]}})
    wanted = demand((shape(gpu=1), 1, 1), (special, 1, 9))
    found = fit(wanted, node("n1", gpu=1), node("n2", "r1", {"kind": "b"}))
    assert found.fits_maximum
    assert found.nodes == 2
    assert not fit(wanted, node("n1", gpu=1)).fits_minimum


def test_a_domain_without_a_suitable_node_is_left_out() -> None:
    nodes = [node("n1", "r1"), node("n2", "r2") | {"spec": {"unschedulable": True}}, node("n3", None)]
    assert set(survey(inventory(*nodes), RACK, demand((shape(), 1, 1)), GROUP)) == {"r1"}


def test_one_domain_can_be_looked_at_alone() -> None:
    found = inventory(node("n1", "r1"), node("n2", "r2"))
    assert set(survey(found, RACK, demand((shape(), 1, 1)), GROUP, only="r2")) == {"r2"}
    assert survey(found, RACK, demand((shape(), 1, 1)), GROUP, only="r3") == {}


def test_the_group_s_own_pods_are_no_obstacle() -> None:
    own = pod("a", "n1", group=GROUP, gpu=6)
    wanted = demand((shape(gpu=4), 2, 2))
    assert fit(wanted, node("n1", gpu=8), own).fits_maximum
    own["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert fit(wanted, node("n1", gpu=8), own).fits_maximum
    assert not fit(wanted, node("n1", gpu=8), pod("a", "n1", group=OTHER, gpu=6)).fits_minimum


def test_headroom_is_beside_what_runs() -> None:
    found = fit(
        demand((shape(gpu=2), 1, 2), (shape(gpu=1), 1, 2)),
        node("n1", gpu=8),
        node("n2", gpu=3),
        pod("a", "n1", group=GROUP, gpu=4),
    )
    assert found.headroom == {PREFILL: 3, DECODE: 7}


def test_headroom_of_pods_alone_on_their_node_is_the_other_nodes() -> None:
    found = fit(
        demand((shape(one_per_node=True, gpu=1), 1, 1)),
        *(node(name, gpu=8) for name in ("n1", "n2", "n3")),
        pod("a", "n1", group=GROUP, role="prefill", gpu=1),
        pod("b", "n2", group=GROUP, role="decode", gpu=1),
    )
    assert found.headroom == {PREFILL: 2}


def test_headroom_ends_at_its_limit() -> None:
    found = inventory(node("n1", gpu=8), node("n2", gpu=8))
    assert survey(found, RACK, demand((shape(gpu=1), 1, 1)), GROUP, limit=5)["r1"].headroom == {PREFILL: 5}


def test_claims_of_others_are_taken() -> None:
    found = inventory(node("n1", gpu=8), node("n2", "r2", gpu=8))
    wanted = demand((shape(gpu=4), 2, 2))
    for group in (GROUP, OTHER):
        found.claim(group, Claim(RACK, "r1", {PREFILL: (shape(gpu=4), 1)}))
    fits = survey(found, RACK, wanted, GROUP)
    assert [fits[name].fits_minimum for name in ("r1", "r2")] == [False, True]
    found.release(OTHER)
    assert survey(found, RACK, wanted, GROUP)["r1"].fits_minimum


@pytest.mark.parametrize(
    ("gpus", "room"), [(1, 0.0), (2, 0.0), (3, 0.0), (4, 0.25), (6, 0.5), (9, 0.75), (10, 1.0), (16, 1.0)]
)
def test_room_is_how_far_both_roles_grow_together(gpus: int, room: float) -> None:
    assert fit(demand((shape(gpu=1), 1, 5), (shape(gpu=1), 1, 5)), node("n1", gpu=gpus)).room == room


def test_a_role_that_does_not_grow_leaves_room_to_the_other() -> None:
    assert fit(demand((shape(gpu=1), 1, 1), (shape(gpu=1), 1, 5)), node("n1", gpu=4)).room == 0.5


def test_amounts_tell_what_is_free_and_what_is_left() -> None:
    found = fit(
        demand((shape(gpu=4), 1, 2), (shape(gpu=2), 1, 1)),
        node("n1", gpu=8),
        node("n2", gpu=8),
        node("n3", gpu=8),
        pod("a", "n1", gpu=3),
        pod("b", "n3", gpu=1),
        pod("c", "n2", group=GROUP, gpu=8),
    )
    assert (found.scarce, found.free, found.total) == (GPU, 20_000, 24_000)
    assert (found.largest_node, found.largest_free) == ("n2", 8000)
    assert (found.missing, found.spare) == (0, 10_000)


@pytest.mark.parametrize(
    ("amounts", "scarce"),
    [
        ({"gpu": 8, "cpu": 8}, GPU),
        ({"gpu": 1, "cpu": 1}, GPU),
        ({"gpu": 8, "cpu": 3}, "cpu"),
        ({"gpu": 8, "cpu": 8, "pods": 1}, "pods"),
    ],
)
def test_the_resource_that_is_named_is_the_one_that_lacks(amounts: dict[str, int], scarce: str) -> None:
    assert fit(demand((shape(gpu=4, cpu=2), 2, 2)), node("n1", **amounts)).scarce == scarce


def test_blocks_that_are_too_small_lack_too() -> None:
    found = fit(demand((shape(gpu=1, cpu=3), 1, 1)), node("n1", gpu=8, cpu=2), node("n2", gpu=8, cpu=2))
    assert (found.scarce, found.free, found.largest_free) == ("cpu", 4000, 2000)


def test_without_devices_the_greatest_share_is_scarce() -> None:
    assert fit(demand((shape(cpu=1, memory=60), 1, 1)), node("n1", cpu=8, memory=100)).scarce == "memory"


def test_what_is_missing_is_what_the_pods_left_out_would_take() -> None:
    found = fit(demand((shape(gpu=4), 3, 3), (shape(gpu=2), 2, 2)), node("n1", gpu=8))
    assert found.missing == 8000


def test_without_nodes_no_domain_is_known() -> None:
    assert survey(inventory(pod("a", "n1")), RACK, demand((shape(), 1, 1)), GROUP) == {}


AMOUNTS = ("gpu", "cpu", "memory")
NODES = st.lists(st.fixed_dictionaries({name: st.integers(0, 9) for name in AMOUNTS}), min_size=1, max_size=4)
SHAPES = st.builds(
    lambda amounts, one: shape(one_per_node=one, **amounts),
    st.fixed_dictionaries(
        {"gpu": st.integers(1, 4)}, optional={name: st.integers(0, 3) for name in AMOUNTS[1:]}
    ),
    st.sampled_from([False, False, True]),
)
COUNTS = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda found: (found[0], sum(found)))


def holds(nodes: list[dict[str, int]], shapes: list[tuple[PodShape, int]]) -> bool:
    """Whether the pods fit, by trying every number of pods of each shape on each node."""
    counts = [range(count + 1) for _, count in shapes]
    states = {tuple(0 for _ in shapes)}
    for amounts in nodes:
        here = [numbers for numbers in product(*counts) if holds_node(amounts, shapes, numbers)]
        states = {
            tuple(min(a + b, count) for a, b, (_, count) in zip(state, numbers, shapes, strict=True))
            for state in states
            for numbers in here
        }
    return tuple(count for _, count in shapes) in states


def holds_node(amounts: dict[str, int], shapes: list[tuple[PodShape, int]], numbers: tuple[int, ...]) -> bool:
    if any(found.one_per_node and number > 1 for (found, _), number in zip(shapes, numbers, strict=True)):
        return False
    taken: dict[str, int] = {}
    for (found, _), number in zip(shapes, numbers, strict=True):
        for name, amount in found.requests:
            taken[name] = taken.get(name, 0) + amount * number
    free = {GPU if name == "gpu" else name: amount * 1000 for name, amount in amounts.items()}
    return all(amount <= free.get(name, 110_000) for name, amount in taken.items())


@given(NODES, SHAPES, COUNTS, st.none() | st.tuples(SHAPES, COUNTS))
def test_a_survey_finds_what_trying_everything_finds(
    nodes: list[dict[str, int]],
    first: PodShape,
    counts: tuple[int, int],
    second: tuple[PodShape, tuple[int, int]] | None,
) -> None:
    roles = [(first, *counts)] + ([(second[0], *second[1])] if second else [])
    found = fit(demand(*roles), *(node(f"n{index}", **amounts) for index, amounts in enumerate(nodes)))
    assert found.fits_minimum == holds(nodes, [(role[0], role[1]) for role in roles])
    assert found.fits_maximum == holds(nodes, [(role[0], role[2]) for role in roles])
    assert (found.room == 1.0) == found.fits_maximum
    # Reachable: each role at least this far on its way.
    if found.fits_minimum:
        grown = [
            (role[0], next(n for n in range(role[1], role[2] + 1) if share(n, role) >= found.room))
            for role in roles
        ]
        assert holds(nodes, grown)
    for role, name in zip(roles, (PREFILL, DECODE), strict=False):
        assert holds(nodes, [(role[0], found.headroom[name])])
        assert not holds(nodes, [(role[0], found.headroom[name] + 1)])


def share(number: int, role: tuple[PodShape, int, int]) -> float:
    _, minimum, maximum = role
    return 1.0 if number >= maximum else (number - minimum) / (maximum - minimum)


@given(NODES, SHAPES, st.integers(1, 4))
def test_what_is_missing_is_nothing_exactly_where_the_minimum_fits(
    nodes: list[dict[str, int]], wanted: PodShape, minimum: int
) -> None:
    found = fit(
        demand((wanted, minimum, minimum)),
        *(node(f"n{index}", **amounts) for index, amounts in enumerate(nodes)),
    )
    requests: Requests = wanted.requests
    assert (found.missing == 0) == found.fits_minimum
    assert found.missing % dict(requests)[GPU] == 0
