"""vLLM's NIXL flow and how it fails."""

from __future__ import annotations

import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine_sim.conformance.pairs import (
    LENGTH,
    MODEL,
    SCALE,
    VllmPair,
    block_size,
    blocks_in_use,
    nixl,
    start_vllm,
    stepped_metric,
    vllm_pair,
)
from tests.engine_sim.processes import Engine, Engines, eventually, free_port

PROMPT = "the memory of a cluster is what a prompt leaves behind, block by block, " * 6

KEYS_0_32 = {
    "do_remote_prefill",
    "do_remote_decode",
    "remote_block_ids",
    "remote_engine_id",
    "remote_request_id",
    "remote_host",
    "remote_port",
    "tp_size",
    "dcp_size",
    "pp_size",
    "remote_num_tokens",
    "remote_blocks_expiry_time",
    "transfer_mode",
    "remote_prefill_cached_tokens",
}
KEYS = {"0.32.0": KEYS_0_32, "0.33.0": KEYS_0_32 | {"remote_registration_generation"}}


@pytest.fixture(scope="module")
def pair(shared_engines: Engines) -> VllmPair:
    return vllm_pair(shared_engines)


def decode(engine: Engine, params: dict[str, Any], **fields: Any) -> Any:
    own = {"model": MODEL, "prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    body = {**own, **fields, "kv_transfer_params": params}
    return engine.post("/v1/completions", body, {"X-Request-Id": "r"})


# What the hops carry.


def test_prefill_answers_with_what_decode_needs(pair: VllmPair) -> None:
    params = pair.leg(pair.body(PROMPT), "R")
    tokens = pair.alone.post("/tokenize", {"prompt": PROMPT}).body["count"]
    assert params.keys() == KEYS[pair.prefill.get("/version").body["version"]]
    assert (params["do_remote_prefill"], params["do_remote_decode"]) == (True, False)
    (blocks,) = params["remote_block_ids"]
    assert len(blocks) == -(-tokens // block_size(pair.prefill))
    assert str(uuid.UUID(params["remote_engine_id"])) == params["remote_engine_id"]
    assert params["remote_request_id"].startswith("cmpl-R-0-")
    assert (params["remote_host"], params["tp_size"], params["transfer_mode"]) == ("127.0.0.1", 1, "pull")
    assert params["remote_num_tokens"] == tokens
    assert decode(pair.decode, params).text == pair.single(PROMPT).text


def test_a_chat_goes_the_same_way(pair: VllmPair) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_completion_tokens": 12,
        "temperature": 0,
    }
    path, header = "/v1/chat/completions", {"X-Request-Id": "C"}
    first = pair.prefill.post(
        path, {**body, "max_completion_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}, header
    )
    params = first.body["kv_transfer_params"]
    assert params["remote_request_id"].startswith("chatcmpl-C-")
    second = pair.decode.post(path, {**body, "kv_transfer_params": params}, header)
    assert (second.status, second.body["id"]) == (200, "chatcmpl-C")
    assert second.text == pair.alone.post(path, body).text


def test_decode_pulls_every_token_and_counts_it(pair: VllmPair) -> None:
    prompt = "counted " + PROMPT
    names = ("vllm:external_prefix_cache_hits_total", "vllm:nixl_bytes_transferred_sum")
    before = [pair.decode.metric(name) for name in names]
    prompt_tokens = pair.complete(prompt).body["usage"]["prompt_tokens"]
    eventually(lambda: pair.decode.metric(names[1]) > before[1])
    hits, size = (pair.decode.metric(name) - old for name, old in zip(names, before, strict=True))
    assert hits == prompt_tokens
    # Of both models 2 layers x 2 heads x 128 bytes, key and value, in whole blocks.
    block = block_size(pair.decode)
    assert size == -(-prompt_tokens // block) * block * 2 * 2 * 2 * 128


def test_cached_tokens_of_an_answer_are_those_that_prefill_had(pair: VllmPair) -> None:
    prompt = "cached " + PROMPT

    def told(**fields: Any) -> int:
        usage = pair.complete(prompt, **fields).body["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    first, second = told(), told()
    size = block_size(pair.prefill)
    tokens = pair.alone.post("/tokenize", {"prompt": prompt}).body["count"]
    assert (first, second) == (0, (tokens - 1) // size * size)


def test_the_first_token_of_decode_is_its_own(pair: VllmPair) -> None:
    params = pair.leg(pair.body(PROMPT, seed=1, temperature=1))
    fields = {"seed": 2, "temperature": 1}
    assert decode(pair.decode, params, **fields).text == pair.single(PROMPT, **fields).text


DEAD = {
    "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "type": "InternalServerError",
    "param": None,
    "code": 500,
}


@pytest.mark.parametrize("missing", ["remote_engine_id", "remote_host", "remote_port"])
def test_a_key_that_is_null_fails_the_request(pair: VllmPair, missing: str) -> None:
    params = pair.leg(pair.body("null " + PROMPT))
    # Of an engine that is not known yet, lest its address be of no interest.
    unknown = {"remote_engine_id": f"unknown {missing}", missing: None}
    assert decode(pair.decode, {**params, **unknown}, prompt="null " + PROMPT).status == 500
    assert pair.decode.get("/health").status == 200


def test_without_blocks_decode_dies(pair: VllmPair, engines: Engines) -> None:
    engine = start_vllm(engines, "kv_consumer", LENGTH).ready()
    params = pair.leg(pair.body("dies " + PROMPT))
    del params["remote_block_ids"]
    reply = decode(engine, params, prompt="dies " + PROMPT)
    assert (reply.status, reply.body["error"]) == (500, DEAD)
    assert engine.ended() == 0


def test_without_another_key_a_request_hangs_and_decode_dies_when_its_client_leaves(
    pair: VllmPair, engines: Engines
) -> None:
    engine = start_vllm(engines, "kv_consumer", LENGTH).ready()
    params = pair.leg(pair.body("hangs " + PROMPT))
    del params["remote_request_id"]
    connection = engine.connect(3)
    body = json.dumps({**pair.body("hangs " + PROMPT), "kv_transfer_params": params})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    with pytest.raises(TimeoutError):
        connection.getresponse()
    assert engine.get("/health").status == 200
    connection.close()
    assert engine.ended() == 0


def test_a_refused_request_without_a_key_ends_decode(pair: VllmPair, engines: Engines) -> None:
    engine = start_vllm(engines, "kv_consumer", LENGTH).ready()
    params = pair.leg(pair.body("refused " + PROMPT))
    del params["remote_port"]
    assert decode(engine, params, max_tokens=2, min_tokens=3).status == 400
    assert engine.ended() == 0


@pytest.mark.stand_in_only("is of an older release")
def test_before_0_22_nobody_tells_prefill_of_refused_requests(pair: VllmPair, engines: Engines) -> None:
    flag = "--sim-engine-version=0.18.0"
    old = VllmPair(
        start_vllm(engines, "kv_both", flag).ready(),
        start_vllm(engines, "kv_both", flag).ready(),
        pair.alone,
    )
    params = old.leg(old.body(PROMPT))
    assert decode(old.decode, params, max_tokens=2, min_tokens=3).status == 400
    del params["remote_host"]
    assert decode(old.decode, params, max_tokens=2, min_tokens=3).status == 400
    assert blocks_in_use(old.prefill) > 0
    assert old.decode.get("/health").status == 200


def test_an_engine_that_is_sent_its_own_blocks_fails_the_request(pair: VllmPair) -> None:
    params = pair.leg(pair.body("own " + PROMPT))
    reply = decode(pair.prefill, params, prompt="own " + PROMPT, cache_salt="not cached")
    assert reply.status == 500
    assert "Cannot register local engine" in pair.prefill.log.read_text()


def test_an_engine_without_connector_ignores_the_field(pair: VllmPair) -> None:
    params = pair.leg(pair.body(PROMPT))
    reply = decode(pair.alone, params)
    assert (reply.status, reply.text) == (200, pair.single(PROMPT).text)
    assert reply.body["kv_transfer_params"] is None


def test_prefill_frees_what_decode_has_read(pair: VllmPair) -> None:
    before = blocks_in_use(pair.prefill)
    params = pair.leg(pair.body("read " + PROMPT))
    assert blocks_in_use(pair.prefill) > before
    assert decode(pair.decode, params, prompt="read " + PROMPT).status == 200
    eventually(lambda: blocks_in_use(pair.prefill) == before)


def test_a_refused_request_lets_prefill_free_its_blocks(pair: VllmPair) -> None:
    before = blocks_in_use(pair.prefill)
    params = pair.leg(pair.body("refused " + PROMPT))
    assert blocks_in_use(pair.prefill) > before
    assert decode(pair.decode, params, max_tokens=2, min_tokens=3).status == 400
    eventually(lambda: blocks_in_use(pair.prefill) == before)


def other_prefill(engines: Engines, pair: VllmPair) -> VllmPair:
    """With a prefill whose leases are those of one test alone."""
    return VllmPair(start_vllm(engines, "kv_producer").ready(), pair.decode, pair.alone)


@pytest.mark.stand_in_only("asks for a fault that keeps requests in the queue")
def test_a_client_that_leaves_the_queue_lets_prefill_free_its_blocks(
    pair: VllmPair, engines: Engines
) -> None:
    waiting = other_prefill(engines, pair)
    params = waiting.leg(pair.body("left " + PROMPT))
    pair.decode.fault(hang=True)
    try:
        body = json.dumps({**pair.body("left " + PROMPT), "kv_transfer_params": params})
        connection = pair.decode.connect()
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        eventually(lambda: pair.decode.state()["waiting"] + pair.decode.state()["remote"] == 1)
        connection.close()
        eventually(lambda: waiting.prefill.state()["leases"] == 0)
    finally:
        pair.decode.fault(hang=False)
    assert pair.complete(PROMPT).status == 200


@pytest.mark.stand_in_only("needs a slow network")
def test_a_client_that_leaves_during_a_transfer_lets_it_end(pair: VllmPair, engines: Engines) -> None:
    slow = start_vllm(engines, "kv_consumer", "--sim-bandwidth=20000").ready()
    waiting = other_prefill(engines, pair)
    params = waiting.leg(pair.body(PROMPT))
    connection = slow.connect()
    body = json.dumps({**pair.body(PROMPT), "kv_transfer_params": params})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    eventually(lambda: slow.state()["remote"] == 1)
    connection.close()
    eventually(lambda: slow.state()["remote"] == 0)
    assert slow.state()["free_blocks"] == slow.state()["blocks"] - 1
    eventually(lambda: waiting.prefill.state()["leases"] == 0)
    # Told twice: that the client has gone, and that all is read.
    eventually(lambda: waiting.prefill.metric("vllm:nixl_num_notifications_after_expiry_total") == 1)
    eventually(lambda: slow.metric("vllm:nixl_xfer_time_seconds_count") == 1)


# Bytes decide.


def test_foreign_blocks_give_another_text(pair: VllmPair) -> None:
    foreign = pair.leg(pair.body("foreign " + PROMPT))
    params = pair.leg(pair.body("own " + PROMPT))
    reply = decode(
        pair.decode, {**params, "remote_block_ids": foreign["remote_block_ids"]}, prompt="own " + PROMPT
    )
    assert reply.status == 200
    assert reply.text != pair.single("own " + PROMPT).text


def test_one_wrong_block_gives_another_text(pair: VllmPair) -> None:
    prompt = "one of them " + PROMPT
    params = pair.leg(pair.body(prompt))
    (blocks,) = params["remote_block_ids"]
    wrong = [blocks[0], blocks[0], *blocks[2:]]
    reply = decode(pair.decode, {**params, "remote_block_ids": [wrong]}, prompt=prompt)
    assert reply.text != pair.single(prompt).text


def test_a_second_read_finds_other_bytes(pair: VllmPair) -> None:
    prompt = "twice " + PROMPT
    late = "vllm:nixl_num_notifications_after_expiry_total"
    before = pair.prefill.metric(late)
    params = pair.leg(pair.body(prompt))
    assert decode(pair.decode, params, prompt=prompt, cache_salt="a").text == pair.single(prompt).text
    # Another salt, so that nothing is here already.
    reply = decode(pair.decode, params, prompt=prompt, cache_salt="b")
    assert reply.status == 200
    # Of a real one these blocks hold what they held, until somebody takes them: that is luck.
    assert (reply.text != pair.single(prompt).text) is pair.prefill.is_stand_in
    eventually(lambda: stepped_metric(pair.prefill, late) == before + 1)


def test_under_another_request_id_the_blocks_are_read_and_not_freed(pair: VllmPair) -> None:
    prompt = "another id " + PROMPT
    late = "vllm:nixl_num_notifications_after_expiry_total"
    before, blocks = stepped_metric(pair.prefill, late), blocks_in_use(pair.prefill)
    params = pair.leg(pair.body(prompt))
    reply = decode(pair.decode, {**params, "remote_request_id": "another"}, prompt=prompt)
    assert (reply.status, reply.text) == (200, pair.single(prompt).text)
    eventually(lambda: stepped_metric(pair.prefill, late) == before + 1)
    assert blocks_in_use(pair.prefill) > blocks
    assert decode(pair.decode, params, prompt=prompt).status == 200
    eventually(lambda: blocks_in_use(pair.prefill) == blocks)


def test_with_several_samples_the_first_one_frees_the_blocks(pair: VllmPair) -> None:
    prompt = "siblings " + PROMPT
    late = "vllm:nixl_num_notifications_after_expiry_total"
    before = pair.prefill.metric(late)
    params = pair.leg(pair.body(prompt))
    reply = decode(pair.decode, params, prompt=prompt, n=3, temperature=1)
    assert len(reply.body["choices"]) == 3
    eventually(lambda: stepped_metric(pair.prefill, late) >= before + 1)


# Leases.


def test_after_the_lease_a_read_gives_other_bytes_without_a_word(pair: VllmPair, engines: Engines) -> None:
    short = VllmPair(
        start_vllm(
            engines, "kv_producer", LENGTH, kv_connector_extra_config={"kv_lease_duration": 6}
        ).ready(),
        pair.decode,
        pair.alone,
    )
    prompt = "expired " + PROMPT
    failed = pair.decode.metric("vllm:nixl_num_failed_transfers_total")
    params = short.leg(pair.body(prompt))
    assert blocks_in_use(short.prefill) > 0
    eventually(lambda: stepped_metric(short.prefill, "vllm:nixl_num_kv_expired_reqs_total") == 1)
    assert blocks_in_use(short.prefill) == 0
    # Somebody else's by now.
    taken = {"max_tokens": 1, "cache_salt": "another"}
    for number in range(40):
        short.prefill.post("/v1/completions", pair.body([10 + number] * 3000, **taken))
    reply = decode(pair.decode, params, prompt=prompt)
    assert (reply.status, reply.finish_reason) == (200, "length")
    assert reply.text != pair.single(prompt).text
    late = "vllm:nixl_num_notifications_after_expiry_total"
    eventually(lambda: stepped_metric(short.prefill, late) == 1)
    assert pair.decode.metric("vllm:nixl_num_failed_transfers_total") == failed


@pytest.mark.stand_in_only("asks for a fault that keeps requests in the queue")
def test_heartbeats_of_a_queued_request_keep_its_blocks(engines: Engines) -> None:
    prefill = start_vllm(engines, "kv_producer", kv_connector_extra_config={"kv_lease_duration": 30})
    consumer = start_vllm(
        engines,
        "kv_consumer",
        "--max-num-seqs=1",
        kv_connector_extra_config={"kv_lease_duration": 30},
    )
    pair = VllmPair(prefill.ready(), consumer.ready(), engines.start("serve", MODEL, *SCALE).ready())
    consumer.fault(slow=100.0)
    with ThreadPoolExecutor(2) as pool:
        body = {**pair.body("first"), "max_tokens": 700, "ignore_eos": True}
        first = pool.submit(consumer.post, "/v1/completions", body)
        eventually(lambda: consumer.state()["running"] == 1)
        params = pair.leg(pair.body(PROMPT))
        start = prefill.state()["time"]
        second = pool.submit(decode, consumer, params)
        # Longer than the lease.
        eventually(lambda: prefill.state()["time"] > start + 36)
        assert not first.done()
        assert prefill.state()["leases"] == 1
        consumer.fault(slow=1.0)
        assert second.result().text == pair.single(PROMPT).text


# Failures.


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
