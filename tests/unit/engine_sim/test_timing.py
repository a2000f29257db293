from __future__ import annotations

import pytest

from disagg.engine_sim.timing import PROFILES, Link, Shape, profile


@pytest.mark.parametrize(
    ("shape", "value_bytes", "expected"),
    [
        (Shape(80, 8, 128), 2, 327_680),
        (Shape(80, 8, 128), 1, 163_840),
        (Shape(32, 8, 128), 2, 131_072),
        (Shape(28, 8, 128), 2, 114_688),
        (Shape(61, 1, 576, latent=True), 2, 70_272),
        (Shape(36, 8, 64), 2, 73_728),
    ],
)
def test_bytes_of_a_token(shape: Shape, value_bytes: int, expected: int) -> None:
    assert shape.token_bytes(value_bytes) == expected


@pytest.mark.parametrize("name", PROFILES)
def test_more_work_takes_longer(name: str) -> None:
    found = PROFILES[name]
    one = found.step(0, 1, 1000)
    assert found.step(0, 64, 64000) >= one
    assert found.step(4096, 1, 1000) > one
    # However short a prompt is, the weights are read for it.
    assert found.step(1, 0, 0) >= found.decode_base
    # Batching pays.
    assert found.step(0, 64, 64000) < 64 * one


def test_every_profile_holds_its_longest_context() -> None:
    assert {
        name: each.kv_bytes > each.max_model_len * each.shape.token_bytes(2)
        for name, each in PROFILES.items()
    } == dict.fromkeys(PROFILES, True)


def test_the_command_line_goes_over_a_profile() -> None:
    found = profile("tiny", bandwidth=1.0, load_seconds=3.0)
    assert (found.bandwidth, found.load_seconds) == (1.0, 3.0)
    assert profile("tiny") == PROFILES["tiny"]


def test_transfers_on_a_link_follow_each_other() -> None:
    link = Link(100.0)
    assert [link.reserve(0, 100), link.reserve(0.5, 100), link.reserve(5, 50)] == [1.0, 2.0, 5.5]
