"""How vLLM's NIXL flow fails."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.engine_sim.conformance.pairs import (
    DEAD,
    LENGTH,
    MODEL,
    PROMPT,
    SCALE,
    VllmPair,
    decode,
    nixl,
    start_vllm,
    stepped_metric,
    vllm_pair,
)
from tests.engine_sim.processes import Engines, eventually, free_port


@pytest.fixture(scope="module")
def pair(shared_engines: Engines) -> VllmPair:
    return vllm_pair(shared_engines)


def break_engine_id(params: dict[str, Any]) -> dict[str, Any]:
    return {**params, "remote_engine_id": "5e8c4b06-0000-4000-8000-000000000000"}


def test_a_wrong_engine_id_fails_the_request(pair: VllmPair) -> None:
    failed = pair.decode.metric("vllm:nixl_num_failed_transfers_total")
    params = break_engine_id(pair.leg(pair.body("wrong " + PROMPT)))
    reply = decode(pair.decode, params)
    assert (reply.status, reply.body["error"]) == (
        500,
        {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500},
    )
    assert "engine ID mismatch" in pair.decode.log.read_text()
    eventually(lambda: stepped_metric(pair.decode, "vllm:nixl_num_failed_transfers_total") > failed)
    assert pair.decode.metric("vllm:request_success_total", finished_reason="error") >= 1


def test_a_stream_that_fails_says_so_in_an_event(pair: VllmPair) -> None:
    params = break_engine_id(pair.leg(pair.body(PROMPT)))
    events = pair.decode.stream("/v1/completions", {**pair.body(PROMPT), "kv_transfer_params": params})
    assert (events.status, events.done, len(events.chunks)) == (200, True, 1)
    assert events.chunks[0]["error"]["code"] == 500


def test_recompute_computes_the_prompt_instead(pair: VllmPair, engines: Engines) -> None:
    engine = start_vllm(engines, "kv_consumer", LENGTH, kv_load_failure_policy="recompute").ready()
    params = break_engine_id(pair.leg(pair.body(PROMPT)))
    reply = decode(engine, params)
    assert (reply.status, reply.text) == (200, pair.single(PROMPT).text)
    eventually(lambda: stepped_metric(engine, "vllm:nixl_num_failed_transfers_total") == 1)


def test_a_block_that_there_is_not_fails_the_request(pair: VllmPair) -> None:
    prompt = "beyond " + PROMPT
    params = pair.leg(pair.body(prompt))
    (blocks,) = params["remote_block_ids"]
    reply = decode(pair.decode, {**params, "remote_block_ids": [[10**9] * len(blocks)]}, prompt=prompt)
    assert reply.status == 500


@pytest.mark.parametrize(
    "nonsense",
    [
        {"remote_port": "many"},
        {"remote_host": "no such host"},
        {"remote_host": ["127.0.0.1"]},
        {"tp_size": "all"},
    ],
    ids=str,
)
def test_nonsense_fails_the_request_and_not_the_engine(pair: VllmPair, nonsense: dict[str, Any]) -> None:
    prompt = f"{nonsense} " + PROMPT
    params = pair.leg(pair.body(prompt))
    # Of an engine that is not known yet, lest its address be of no interest.
    unknown = {"remote_engine_id": f"unknown {nonsense}"}
    reply = decode(pair.decode, {**params, **unknown, **nonsense}, prompt=prompt)
    assert reply.status == 500
    assert pair.complete("still alive").status == 200


LIKE = pytest.mark.stand_in_only("takes an engine; another of the kind is asked of the real one")


@pytest.mark.parametrize(
    "blocks",
    [
        {"0": [1]},
        pytest.param([["a"]], marks=LIKE),
        pytest.param([[]], marks=LIKE),
        pytest.param("1", marks=LIKE),
        pytest.param([[1]], marks=LIKE),
        pytest.param([1, 2, 3], marks=LIKE),
    ],
    ids=str,
)
def test_block_ids_that_are_none_end_decode(pair: VllmPair, engines: Engines, blocks: Any) -> None:
    engine = start_vllm(engines, "kv_consumer", LENGTH).ready()
    params = pair.leg(pair.body(PROMPT))
    reply = decode(engine, {**params, "remote_block_ids": blocks})
    assert (reply.status, reply.body["error"]) == (500, DEAD)
    assert engine.ended() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ("--kv-cache-dtype=fp8",),
            marks=pytest.mark.stand_in_only("tests/real_vllm asks the real one of all flags"),
        ),
        pytest.param(
            ("--sim-engine-version=0.31.0",), marks=pytest.mark.stand_in_only("is of another release")
        ),
        ("--disable-hybrid-kv-cache-manager",),
        pytest.param(
            ("--sim-profile=llama-8b-h100",), marks=pytest.mark.stand_in_only("is of another model")
        ),
    ],
    ids=lambda arguments: arguments[0].removeprefix("--").partition("=")[0],
)
def test_an_incompatible_peer_is_refused(
    pair: VllmPair, engines: Engines, arguments: tuple[str, ...]
) -> None:
    engine = start_vllm(engines, "kv_consumer", *arguments).ready()
    reply = decode(engine, pair.leg(pair.body(PROMPT)))
    assert reply.status == 500
    assert "compatibility hash mismatch" in engine.log.read_text()


@pytest.mark.stand_in_only("a CPU has one rank and one size of blocks")
@pytest.mark.parametrize(
    ("prefill", "consumer", "fits"),
    [
        (("-tp=2", "--block-size=16"), ("-tp=1", "--block-size=32"), True),
        (("-tp=1", "--block-size=16"), ("-tp=1", "--block-size=64"), True),
        (("-tp=1", "--block-size=32"), ("-tp=1", "--block-size=16"), False),
        # Two KV heads: four ranks have copies.
        (("-tp=4", "--block-size=16"), ("-tp=2", "--block-size=16"), False),
        (("-tp=2", "--block-size=16"), ("-tp=4", "--block-size=16"), True),
    ],
)
def test_ranks_and_block_sizes_must_divide(
    pair: VllmPair, engines: Engines, prefill: tuple[str, ...], consumer: tuple[str, ...], fits: bool
) -> None:
    mixed = VllmPair(
        start_vllm(engines, "kv_producer", *prefill),
        start_vllm(engines, "kv_consumer", *consumer),
        pair.alone,
    )
    mixed.prefill.ready()
    mixed.decode.ready()
    reply = mixed.complete(PROMPT)
    if fits:
        assert (reply.status, reply.text) == (200, pair.single(PROMPT).text)
    else:
        assert reply.status == 500


def test_a_prefill_that_restarts_is_another_engine(pair: VllmPair, engines: Engines) -> None:
    port = free_port()
    old = start_vllm(engines, "kv_producer", port=port).ready()
    consumer = start_vllm(engines, "kv_consumer").ready()
    before = VllmPair(old, consumer, pair.alone)
    assert before.complete(PROMPT).text == pair.single(PROMPT).text
    stale = before.leg(before.body("stale " + PROMPT))
    old.stop()
    after = VllmPair(start_vllm(engines, "kv_producer", port=port).ready(), consumer, pair.alone)
    assert decode(consumer, stale, prompt="stale " + PROMPT).status == 500
    assert decode(consumer, stale, prompt="stale " + PROMPT).status == 500
    assert "engine ID mismatch" in consumer.log.read_text()
    assert after.complete("new " + PROMPT).text == pair.single("new " + PROMPT).text


@pytest.mark.stand_in_only("asks for a fault")
def test_a_prefill_that_does_not_answer_takes_the_time_of_a_handshake(
    pair: VllmPair, engines: Engines
) -> None:
    silent = VllmPair(start_vllm(engines, "kv_producer").ready(), pair.decode, pair.alone)
    silent.prefill.fault(side_channel_dropped=True)
    params = silent.leg(silent.body(PROMPT))
    start = time.monotonic()
    assert decode(pair.decode, params).status == 500
    assert time.monotonic() - start > 4


@pytest.mark.stand_in_only("asks for a fault")
def test_a_stale_peer_breaks_one_pair_while_both_look_healthy(pair: VllmPair) -> None:
    where = pair.leg(pair.body(PROMPT))
    pair.decode.fault(stale_peers=[f"{where['remote_host']}:{where['remote_port']}"])
    try:
        assert pair.complete(PROMPT).status == 500
        assert (pair.prefill.get("/health").status, pair.decode.get("/health").status) == (200, 200)
    finally:
        pair.decode.fault(stale_peers=[])
    assert pair.complete(PROMPT).status == 200


# Older releases.


@pytest.mark.stand_in_only("is of other releases")
@pytest.mark.parametrize(
    ("version", "keys", "nested"),
    [
        ("0.11.0", 7, False),
        ("0.18.0", 8, True),
        ("0.28.0", 13, True),
        ("0.32.0", 14, True),
    ],
)
def test_older_releases_say_less(
    pair: VllmPair, engines: Engines, version: str, keys: int, nested: bool
) -> None:
    flag = f"--sim-engine-version={version}"
    old = VllmPair(
        start_vllm(engines, "kv_both", flag).ready(),
        start_vllm(engines, "kv_both", flag).ready(),
        pair.alone,
    )
    params = old.leg(old.body(PROMPT))
    assert len(params) == keys
    assert isinstance(params["remote_block_ids"][0], list) is nested
    assert decode(old.decode, params).text == pair.single(PROMPT).text


@pytest.mark.stand_in_only("is of an older release")
def test_before_0_13_prefill_hears_of_the_read_only_if_both_legs_have_the_same_request_id(
    pair: VllmPair, engines: Engines
) -> None:
    flag = "--sim-engine-version=0.11.0"
    old = VllmPair(
        start_vllm(engines, "kv_both", flag).ready(),
        start_vllm(engines, "kv_both", flag).ready(),
        pair.alone,
    )
    params = old.leg(old.body(PROMPT), "one")
    body = {**old.body(PROMPT), "kv_transfer_params": params}
    reply = old.decode.post("/v1/completions", body, {"X-Request-Id": "another"})
    assert (reply.status, reply.text) == (200, pair.single(PROMPT).text)
    assert old.prefill.state()["leases"] == 1


def test_a_multi_connector_with_nixl_in_it_works(pair: VllmPair, engines: Engines) -> None:
    multi = {
        "connectors": [
            {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
            {
                "kv_connector": "OffloadingConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"cpu_bytes_to_use": 1},
            },
        ]
    }
    flag = nixl("kv_both", kv_connector="MultiConnector", kv_connector_extra_config=multi)
    engine = engines.start(
        "serve",
        MODEL,
        *SCALE,
        flag,
        VLLM_NIXL_SIDE_CHANNEL_HOST="127.0.0.1",
        VLLM_NIXL_SIDE_CHANNEL_PORT=str(free_port()),
    ).ready()
    assert VllmPair(pair.prefill, engine, pair.alone).complete(PROMPT).text == pair.single(PROMPT).text
    assert VllmPair(engine, pair.decode, pair.alone).complete(PROMPT).text == pair.single(PROMPT).text


@pytest.mark.stand_in_only("two ranks of a real one are two more engines on few cores")
def test_ranks_of_data_parallelism_have_engine_ids_and_side_channels_of_their_own(
    pair: VllmPair, engines: Engines
) -> None:
    prefill = start_vllm(engines, "kv_producer", "--data-parallel-size=2").ready()
    found = []
    for rank in (0, 1):
        body = {**pair.body(PROMPT), "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
        params = prefill.post("/v1/completions", body, {"X-data-parallel-rank": str(rank)}).body[
            "kv_transfer_params"
        ]
        assert params["remote_engine_id"].endswith(f"_dp{rank}")
        found.append(params["remote_port"])
        assert decode(pair.decode, params).text == pair.single(PROMPT).text
    assert found[1] == found[0] + 1
