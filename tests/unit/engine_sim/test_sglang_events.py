from __future__ import annotations

import pytest

from disagg.engine_sim.blocks import Cleared, Removed, Stored
from disagg.engine_sim.dialects.sglang.events import by_page, signed


@pytest.mark.parametrize(
    ("number", "found"), [(0, 0), ((1 << 63) - 1, (1 << 63) - 1), (1 << 63, -(1 << 63)), ((1 << 64) - 1, -1)]
)
def test_hashes_are_signed(number: int, found: int) -> None:
    assert signed(number) == found


def test_each_page_is_an_event_of_its_own() -> None:
    event = Stored([1, (1 << 64) - 2, 3], None, [10, 11, 12, 13, 14, 15], "lora")
    assert list(by_page(event, 2)) == [
        Stored([1], None, [10, 11], "lora"),
        Stored([-2], 1, [12, 13], "lora"),
        Stored([3], -2, [14, 15], "lora"),
    ]
    assert list(by_page(Removed([1, 2]), 2)) == [Removed([1]), Removed([2])]
    assert list(by_page(Cleared(), 2)) == [Cleared()]
