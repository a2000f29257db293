"""Two sizes of pods on a few nodes, compared with trying everything."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.topology.packing import Profile, best_plan, bounds, fewest, most

PROFILES = st.lists(
    st.lists(st.integers(0, 6), min_size=1, max_size=4).map(lambda found: tuple(sorted(found, reverse=True))),
    min_size=1,
    max_size=5,
)


def everything(profiles: list[Profile], larger: int) -> list[int]:
    """The smaller pods beside `larger` ones, for each way to distribute these."""
    return [
        sum(profile[number] for profile, number in zip(profiles, numbers, strict=True))
        for numbers in product(*(range(len(profile)) for profile in profiles))
        if sum(numbers) == larger
    ]


@given(PROFILES, st.integers(0, 12))
def test_most_and_fewest_are_those_of_all_distributions(profiles: list[Profile], limit: int) -> None:
    capacity = sum(len(profile) - 1 for profile in profiles)
    expected = [everything(profiles, larger) for larger in range(min(limit, capacity) + 1)]
    assert list(most(profiles, limit))[: limit + 1] == [max(found) for found in expected]
    assert list(fewest(profiles, limit))[: limit + 1] == [min(found) for found in expected]


@given(PROFILES, st.integers(0, 12))
def test_bounds_hold(profiles: list[Profile], limit: int) -> None:
    low, high = bounds(profiles, limit)
    exact = most(profiles, limit)
    assert len(low) == len(high) == len(exact)
    assert all(below <= value <= above for below, value, above in zip(low, exact, high, strict=True))


@pytest.mark.parametrize("larger", [2, 3, 4, 8])
def test_bounds_are_exact_where_one_size_divides_the_other(larger: int) -> None:
    profiles = [
        tuple(free - larger * number for number in range(free // larger + 1)) for free in (1, 5, 8, 8, 15, 16)
    ]
    low, high = bounds(profiles, 100)
    assert low == high == list(most(profiles, 100))


@given(PROFILES, st.integers(0, 12))
def test_a_best_plan_reaches_the_most(profiles: list[Profile], larger: int) -> None:
    plan = best_plan([dict(enumerate(profile)) for profile in profiles], larger)
    found = everything(profiles, larger)
    if plan is None:
        assert not found
    else:
        assert sum(plan) == larger
        assert sum(profile[number] for profile, number in zip(profiles, plan, strict=True)) == max(found)


def test_many_equal_nodes_are_quick() -> None:
    profiles = [(4, 2, 1)] * 2000
    assert most(profiles, 200)[200] == 2000 * 4 - 100 * 3
    assert fewest(profiles, 200)[200] == 2000 * 4 - 200 * 2
