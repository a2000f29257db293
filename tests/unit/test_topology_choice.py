"""Which domain a group gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.topology.capacity import DomainFit
from disagg.topology.choice import Choice, choose, describe

FIT = DomainFit(
    domain="r1",
    nodes=3,
    fits_minimum=True,
    fits_maximum=True,
    room=1.0,
    headroom={},
    scarce="nvidia.com/gpu",
    free=12_000,
    total=24_000,
    largest_free=4000,
    largest_node="gpu-r3-n1",
    missing=0,
    spare=4000,
)
PARTLY = replace(FIT, fits_maximum=False, room=0.5)
NONE = replace(PARTLY, fits_minimum=False, room=0.0, missing=8000)


def fits(**found: DomainFit) -> dict[str, DomainFit]:
    return {name: replace(fit, domain=name) for name, fit in found.items()}


@pytest.mark.parametrize(
    ("found", "current", "domain"),
    [
        ({}, None, None),
        ({"a": FIT}, None, "a"),
        ({"a": FIT, "b": PARTLY}, "b", "b"),
        ({"a": FIT, "b": NONE}, "b", "a"),
        ({"a": FIT}, "gone", "a"),
        ({"a": PARTLY, "b": FIT}, None, "b"),
        ({"a": PARTLY, "b": replace(PARTLY, room=0.75)}, None, "b"),
        # The tightest of equal ones, then the first by name.
        ({"a": FIT, "b": replace(FIT, spare=2000)}, None, "b"),
        ({"b": FIT, "a": FIT}, None, "a"),
        ({"a": NONE}, "a", None),
    ],
)
def test_a_group_keeps_its_domain_or_gets_the_roomiest(
    found: dict[str, DomainFit], current: str | None, domain: str | None
) -> None:
    choice = choose(fits(**found), current)
    assert choice.domain == domain
    assert choice.fit == (fits(**found)[domain] if domain else None)


@pytest.mark.parametrize(
    ("found", "best"),
    [
        ({"a": NONE, "b": replace(NONE, missing=4000)}, "b"),
        ({"a": NONE, "b": replace(NONE, largest_free=5000)}, "b"),
        ({"a": NONE, "b": replace(NONE, free=13_000)}, "b"),
        ({"b": NONE, "a": NONE}, "a"),
    ],
)
def test_without_a_domain_the_one_that_lacks_least_is_named(found: dict[str, DomainFit], best: str) -> None:
    assert choose(fits(**found), None) == Choice(None, None, fits(**found)[best])


def test_with_a_domain_no_other_is_named() -> None:
    assert choose(fits(a=FIT, b=NONE), None).best is None


FITS = st.builds(
    lambda fit, room, spare: replace(fit, room=room if fit is PARTLY else fit.room, spare=spare * 1000),
    st.sampled_from([FIT, PARTLY, NONE]),
    st.sampled_from([0.0, 0.5]),
    st.integers(0, 2),
)


@given(st.dictionaries(st.sampled_from("abcd"), FITS))
def test_a_choice_depends_on_no_order_and_stays(found: dict[str, DomainFit]) -> None:
    named = fits(**found)
    choice = choose(named, None)
    assert choose(dict(reversed(named.items())), None) == choice
    assert choose(named, choice.domain) == choice


@pytest.mark.parametrize(
    ("fit", "text"),
    [
        (FIT, "r1 has 12 of 24 nvidia.com/gpu free; largest free block 4 on node gpu-r3-n1"),
        (
            replace(FIT, scarce="cpu", free=1500),
            "r1 has 1.5 of 24 cpu free; largest free block 4 on node gpu-r3-n1",
        ),
        (
            replace(FIT, scarce="memory", free=3 * 2**29 * 1000, total=2**41 * 1000, largest_free=0),
            "r1 has 1.5Gi of 2Ti memory free; largest free block 0 on node gpu-r3-n1",
        ),
    ],
)
def test_a_fit_is_told_in_words(fit: DomainFit, text: str) -> None:
    assert describe(fit) == text
