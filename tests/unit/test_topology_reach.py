from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.topology.capacity import DomainFit
from disagg.topology.reach import SCORED_NODES, reach


def fit(domain: str, *, nodes: int = 16, fits: bool = True, free: int = 0) -> DomainFit:
    return DomainFit(
        domain=domain,
        nodes=nodes,
        fits_minimum=fits,
        fits_maximum=fits,
        room=1.0 if fits else 0.0,
        headroom={},
        scarce="example.com/gpu",
        free=free,
        total=free,
        largest_free=free,
        largest_node="",
        missing=0,
        spare=0,
    )


def reached(
    *fits: DomainFit, eligible: int = 400, near: tuple[str, ...] = (), whole: bool = False
) -> tuple[str, ...]:
    return reach({fit.domain: fit for fit in fits}, "r1", eligible=eligible, near=near, whole=whole)


def test_a_cluster_that_the_scheduler_sees_whole_confines_nothing() -> None:
    assert reached(fit("r1"), fit("r2"), eligible=SCORED_NODES) == ()


def test_domains_are_added_as_long_as_the_scheduler_sees_all_their_nodes() -> None:
    racks = [fit(f"r{number}") for number in range(1, 25)]
    assert reached(*racks) == ("r1", "r10", "r11", "r12", "r13", "r14")


@pytest.mark.parametrize(
    "better",
    [fit("r3", free=2), fit("r3", fits=True)],
    ids=["more is free", "it holds the group"],
)
def test_the_better_of_the_others_come_first(better: DomainFit) -> None:
    worse = fit("r2", fits=better.free > 0, free=1 if better.free else 0)
    assert reached(fit("r1", nodes=90), worse, better)[1] == "r3"


def test_near_domains_come_before_better_ones() -> None:
    assert reached(fit("r1"), fit("r2", free=9), fit("r3", fits=False), near=("r3",))[1] == "r3"


def test_a_group_that_must_be_whole_is_let_only_where_it_fits() -> None:
    assert reached(fit("r1"), fit("r2", fits=False), fit("r3"), whole=True) == ("r1", "r3")


def test_the_chosen_domain_is_never_the_only_one_if_there_are_others() -> None:
    assert reached(fit("r1", nodes=500), fit("r2", nodes=500), fit("r3", nodes=500)) == ("r1", "r2")


def test_a_domain_without_a_usable_node_is_the_first_all_the_same() -> None:
    assert reached(fit("r2")) == ("r1", "r2")


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.sets(st.integers(1, 30)), st.booleans())
def test_the_scheduler_sees_all_nodes_of_the_chosen_domain(
    sizes: list[int], small: set[int], whole: bool
) -> None:
    fits = [fit(f"r{n}", nodes=size, fits=n not in small) for n, size in enumerate(sizes, 1)]
    found = reached(*fits, whole=whole)
    nodes = {one.domain: one.nodes for one in fits}
    assert found[0] == "r1"
    assert len(set(found)) == len(found)
    assert sum(nodes[domain] for domain in found) <= SCORED_NODES or len(found) == 2
