"""Faults on demand, for every dialect."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine_sim.conformance.pairs import PAIRS, Pair, VllmPair, prefill_body, vllm_pair
from tests.engine_sim.processes import Engines, eventually


@pytest.fixture(scope="module", params=PAIRS)
def pair(request: pytest.FixtureRequest, shared_engines: Engines) -> Pair:
    return PAIRS[request.param](shared_engines)


def test_the_prefill_that_was_told_to_fail_fails_and_no_other(shared_engines: Engines) -> None:
    pair: VllmPair = vllm_pair(shared_engines)
    pair.prefill.fault(fail_prefill=2)
    statuses = [
        pair.prefill.post("/v1/completions", prefill_body(pair.body("fail me"))).status for _ in range(4)
    ]
    assert statuses == [200, 500, 200, 200]


def test_a_hang_stops_tokens_and_nothing_else(pair: Pair) -> None:
    pair.decode.fault(hang=True)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(pair.complete, "hang on")
        eventually(lambda: pair.decode.state()["waiting"] == 1)
        assert pair.decode.get("/v1/models").status == 200
        assert not future.done()
        pair.decode.fault(hang=False)
        assert future.result().text == pair.single("hang on").text


def test_a_slow_engine_takes_its_time(pair: Pair) -> None:
    def seconds() -> float:
        start = time.monotonic()
        assert pair.single("slowly", ignore_eos=True).status == 200
        return time.monotonic() - start

    quick = seconds()
    pair.alone.fault(slow=200.0)
    try:
        # 20 tokens of 1 ms, ten times faster and two hundred times slower.
        assert seconds() > max(0.3, quick)
    finally:
        pair.alone.fault(slow=1.0)


def test_health_can_be_lost(pair: Pair) -> None:
    pair.alone.fault(health_lost=True)
    assert pair.alone.get("/health").status == 503
    pair.alone.fault(health_lost=False)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"no_such": 1}, "no_such: there is no such fault"),
        ({"hang": 1}, "hang: true or false is expected"),
        ({"slow": "very"}, "slow: a number is expected"),
        ({"slow": 0}, "slow: a number above 0 is expected"),
        ({"fail_prefill": -1}, "fail_prefill: 0 or more is expected"),
        ({"fail_prefill": None}, "fail_prefill: a whole number is expected"),
        ({"die_after_tokens": 1.5}, "die_after_tokens: a whole number is expected"),
        ({"stale_peers": "*"}, "stale_peers: a list of side channels is expected"),
        ({"stale_peers": [5]}, "stale_peers: host:port or * is expected"),
        ({"stale_peers": ["10.0.0.5"]}, "stale_peers: host:port or * is expected"),
    ],
    ids=str,
)
def test_a_fault_that_there_is_not_is_refused_by_name(
    pair: Pair, faults: dict[str, object], message: str
) -> None:
    before = pair.alone.get("/sim/faults").body
    reply = pair.alone.post("/sim/faults", {"metrics_lost": True, **faults})
    assert (reply.status, message in reply.message) == (400, True)
    assert reply.body["error"]["param"] == next(iter(faults))
    assert pair.alone.get("/sim/faults").body == before


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"{x", "the body is no JSON"), (b"[]", "an object is expected"), (b"", "is no JSON")],
)
def test_faults_that_are_no_object_are_refused(pair: Pair, body: bytes, message: str) -> None:
    reply = pair.alone.post("/sim/faults", body)
    assert (reply.status, message in reply.message) == (400, True)
