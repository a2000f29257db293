"""vLLM's NIXL flow: what the hops carry, and what the bytes decide."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.engine_sim.conformance.pairs import (
    DEAD,
    LENGTH,
    MODEL,
    PROMPT,
    VllmPair,
    block_size,
    blocks_in_use,
    decode,
    start_vllm,
    stepped_metric,
    vllm_pair,
)
from tests.engine_sim.processes import Engines, eventually

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
