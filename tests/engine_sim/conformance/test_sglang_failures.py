"""How transfers fail in SGLang, and who hears of it."""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest

from tests.engine_sim.conformance.sglang_pair import (
    MODEL,
    SglangPair,
    sglang_pair,
    start_prefill,
    start_sglang,
)
from tests.engine_sim.processes import DEADLINE, Engine, Engines, eventually, free_port

PATIENT = {"max_tokens": 500, "ignore_eos": True}


@pytest.fixture(scope="module")
def pair(shared_engines: Engines) -> SglangPair:
    return sglang_pair(shared_engines)


def decode_beside(engines: Engines, pair: SglangPair, *arguments: str, **environment: str) -> SglangPair:
    """The same prefill with another decode."""
    decode = start_sglang(engines, "decode", *arguments, **environment).ready()
    return SglangPair(pair.prefill, decode, pair.alone, pair.port)


def prefill_beside(engines: Engines, pair: SglangPair, *arguments: str, **environment: str) -> SglangPair:
    """The same decode with another prefill."""
    port = free_port()
    prefill = start_prefill(engines, port, *arguments, **environment).ready()
    return SglangPair(prefill, pair.decode, pair.alone, port)


# What does not fit.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--page-size=32",),
            "prefill server has page_size=64, but decode server has page_size=32. Both servers must use the same",
        ),
        (
            ("--kv-cache-dtype=fp8_e4m3",),
            "prefill server has kv_cache_dtype=bfloat16, but decode server has kv_cache_dtype=fp8_e4m3.",
        ),
        (("--tp-size=2",), "different TP sizes"),
    ],
)
def test_engines_that_do_not_fit_start_and_fail_each_request(
    engines: Engines, pair: SglangPair, arguments: tuple[str, ...], message: str
) -> None:
    other = decode_beside(engines, pair, *arguments)
    for _ in range(2):
        reply = other.decode.post("/v1/completions", other.body("hi"))
        assert (reply.status, message in reply.body["message"]) == (500, True), reply.body
        assert reply.body["message"].startswith(
            "Decode handshake failed for request rank=0 decode_req.req.rid="
        )
    assert other.decode.get("/health").status == 200
    assert other.decode.metric("sglang:num_bootstrap_failed_reqs_total") == 2


@pytest.mark.parametrize(
    "arguments",
    [("--kv-cache-dtype=bf16",), ("--tp-size=2", "--attn-dp-size=2")],
    ids=["another name", "as many heads"],
)
def test_what_differs_in_name_only_fits(
    engines: Engines, pair: SglangPair, arguments: tuple[str, ...]
) -> None:
    assert decode_beside(engines, pair, *arguments).complete("hi").text == pair.single("hi").text


def test_heads_are_cut_anew_with_a_staging_buffer(engines: Engines, pair: SglangPair) -> None:
    other = decode_beside(engines, pair, "--tp-size=2", SGLANG_DISAGG_STAGING_BUFFER="true")
    assert other.complete("hi").text == pair.single("hi").text


def test_latent_attention_does_not_care_for_tensor_parallelism(engines: Engines) -> None:
    port = free_port()
    model = ("--sim-profile=deepseek-r1-8xh200", "--sim-time-scale=100")
    prefill = start_prefill(engines, port, *model, "--tp-size=8").ready()
    decode = start_sglang(engines, "decode", *model, "--tp-size=8", "--attn-dp-size=8").ready()
    alone = start_sglang(engines, "null", *model, "--tp-size=8").ready()
    pair = SglangPair(prefill, decode, alone, port)
    for _ in range(8):
        assert pair.complete("hi").text == pair.single("hi").text


# One leg alone.


def test_prefill_alone_times_out(engines: Engines, pair: SglangPair) -> None:
    other = prefill_beside(engines, pair, SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT="10")
    reply = other.prefill.post("/v1/completions", other.body("hi", bootstrap_room=9, rid="lonely"))
    assert reply.status == 500
    assert reply.body["message"].startswith(
        "Prefill bootstrap failed for request rank=0 req.rid='lonely' req.bootstrap_room=9 with exception "
        "KVTransferError(bootstrap_room=9): Request 9 timed out after 10."
    )
    assert reply.body["message"].endswith("s in KVPoll.Bootstrapping")
    assert other.prefill.metric("sglang:num_bootstrap_failed_reqs_total") == 1


def test_decode_alone_times_out_and_gives_its_pages_back(engines: Engines, pair: SglangPair) -> None:
    other = decode_beside(engines, pair, SGLANG_DISAGGREGATION_WAITING_TIMEOUT="10")
    future = pair.legs.submit(other.decode.post, "/v1/completions", other.body("hi", bootstrap_room=8))
    eventually(lambda: other.decode.state()["free_blocks"] < other.decode.state()["blocks"] - 1)
    reply = future.result(DEADLINE)
    assert reply.status == 500
    assert "Decode transfer failed" in reply.body["message"]
    assert "Request 8 timed out after 10." in reply.body["message"]
    assert other.decode.state()["free_blocks"] == other.decode.state()["blocks"] - 1
    assert other.decode.metric("sglang:num_transfer_failed_reqs_total") == 1


def test_a_prefill_that_fails_is_no_news_to_decode(engines: Engines, pair: SglangPair) -> None:
    other = decode_beside(engines, pair, SGLANG_DISAGGREGATION_WAITING_TIMEOUT="15")
    pair.prefill.fault(fail_prefill=1)
    start = time.monotonic()
    decode, prefill = other.both(other.body("doomed"))
    assert (prefill.status, decode.status) == (500, 500)
    assert "timed out" in decode.body["message"]
    assert time.monotonic() - start >= 1.5


def test_a_decode_that_does_not_want_it_any_more_tells_prefill(pair: SglangPair) -> None:
    body = pair.body("left " * 50)
    pair.prefill.fault(hang=True)
    try:
        with closing(pair.decode.connect()) as connection:
            connection.request(
                "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
            )
            eventually(lambda: pair.decode.state()["remote"] == 1)
            prefill = pair.send(body)
            eventually(lambda: pair.prefill.state()["waiting"] + pair.prefill.state()["running"] == 1)
        eventually(lambda: pair.decode.state()["remote"] == 0)
    finally:
        pair.prefill.fault(hang=False)
    reply = prefill.result(DEADLINE)
    assert (reply.status, "Aborted by decode-side abort notification." in reply.body["message"]) == (
        500,
        True,
    )
    assert pair.prefill.state()["leases"] == 0


def test_a_request_can_be_ended_by_its_id(pair: SglangPair) -> None:
    prefill = pair.send(pair.body("hi", rid="waits"))
    eventually(lambda: pair.prefill.metric("sglang:num_prefill_bootstrap_queue_reqs") == 1)
    assert pair.prefill.post("/abort_request", {"rid": "waits"}).status == 200
    assert "Aborted by AbortReq." in prefill.result(DEADLINE).body["message"]
    pair.alone.fault(slow=20.0)
    running = pair.legs.submit(pair.single, "hi", rid="runs", **PATIENT)
    eventually(lambda: pair.alone.state()["running"] == 1)
    pair.alone.post("/abort_request", {"rid": "runs"})
    pair.alone.fault(slow=1.0)
    reply = running.result(DEADLINE)
    assert (reply.status, reply.finish_reason) == (200, "abort")


# Rooms that are not one request's.


def test_a_room_that_is_taken_fails_in_prefill(pair: SglangPair) -> None:
    body = pair.body("hi")
    first = pair.send(body)
    eventually(lambda: pair.prefill.metric("sglang:num_prefill_bootstrap_queue_reqs") == 1)
    second = pair.prefill.post("/v1/completions", body)
    assert (second.status, "unknown reason" in second.body["message"]) == (500, True)
    assert pair.decode.post("/v1/completions", body).status == 200
    assert first.result(DEADLINE).status == 200


def test_a_room_that_is_taken_ends_decode(engines: Engines, pair: SglangPair) -> None:
    other = decode_beside(engines, pair)
    body = other.body("hi")
    pair.legs.submit(other.decode.post, "/v1/completions", body)
    eventually(lambda: other.decode.state()["remote"] == 1)
    with pytest.raises(OSError, match=r"closed|reset"):
        other.decode.post("/v1/completions", body)
    assert other.decode.process.wait(DEADLINE) == 1


def test_samples_of_one_prompt_never_meet(engines: Engines, pair: SglangPair) -> None:
    timeouts = {"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "5", "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "5"}
    other = prefill_beside(engines, decode_beside(engines, pair, **timeouts), **timeouts)
    decode, prefill = other.both(other.body("hi", n=2))
    assert (decode.status, prefill.status) == (500, 500)
    assert "timed out" in decode.body["message"]
    assert other.complete("hi").status == 200


# A peer that is gone.


def test_a_prefill_that_dies_fails_all_that_waits_for_it(engines: Engines, pair: SglangPair) -> None:
    other = prefill_beside(
        engines, decode_beside(engines, pair, SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL="2")
    )
    assert other.complete("hi").status == 200
    future = pair.legs.submit(other.decode.post, "/v1/completions", other.body("hi"))
    eventually(lambda: other.decode.state()["remote"] == 1)
    other.prefill.stop()
    reply = future.result(DEADLINE)
    assert reply.status == 500
    assert (
        f"Lost connection with prefill instance (bootstrap_addr: 127.0.0.1:{other.port})"
        in reply.body["message"]
    )
    assert other.decode.get("/health").status == 200
    # Another prefill at another address is none the worse.
    beside = SglangPair(pair.prefill, other.decode, pair.alone, pair.port)
    assert beside.complete("hi").text == pair.single("hi").text


def test_a_prefill_that_comes_back_is_met_anew(engines: Engines, pair: SglangPair) -> None:
    other = prefill_beside(
        engines, decode_beside(engines, pair, SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL="2")
    )
    assert other.complete("hi").status == 200
    other.prefill.stop()
    time.sleep(1)
    back = SglangPair(start_prefill(engines, other.port).ready(), other.decode, pair.alone, other.port)
    assert back.complete("hi").text == pair.single("hi").text


def test_a_prefill_that_is_not_there_is_asked_fifteen_times(pair: SglangPair) -> None:
    start = time.monotonic()
    reply = pair.decode.post("/v1/completions", pair.body("hi", bootstrap_port=free_port()))
    assert (reply.status, "Decode handshake failed" in reply.body["message"]) == (500, True)
    # 14 pauses of a second, ten times faster.
    assert time.monotonic() - start >= 1.4


def test_a_pair_can_be_broken_while_both_look_healthy(engines: Engines, pair: SglangPair) -> None:
    other = decode_beside(engines, pair, SGLANG_DISAGGREGATION_WAITING_TIMEOUT="5")
    other.decode.fault(stale_peers=[f"127.0.0.1:{pair.port}"])
    body = other.body("hi")
    prefill = other.send(body)
    assert other.decode.post("/v1/completions", body).status == 500
    assert [engine.get("/health").status for engine in (pair.prefill, other.decode)] == [200, 200]
    pair.prefill.post("/abort_request", {"abort_all": True})
    assert prefill.result(DEADLINE).status == 500
    other.decode.fault(stale_peers=[])
    assert other.complete("hi").status == 200


def test_a_bootstrap_server_that_answers_nobody_counts_as_gone(engines: Engines, pair: SglangPair) -> None:
    other = prefill_beside(
        engines, decode_beside(engines, pair, SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL="2")
    )
    assert other.complete("hi").status == 200
    future = pair.legs.submit(other.decode.post, "/v1/completions", other.body("hi"))
    eventually(lambda: other.decode.state()["remote"] == 1)
    other.prefill.fault(side_channel_dropped=True)
    assert "Lost connection" in future.result(DEADLINE).body["message"]
    assert other.prefill.get("/health").status == 200


def test_a_rank_follows_from_its_room(engines: Engines) -> None:
    port = free_port()
    prefill = start_prefill(engines, port, "--dp-size=2").ready()
    decode = start_sglang(engines, "decode").ready()
    alone: Engine = start_sglang(engines, "null").ready()
    pair = SglangPair(prefill, decode, alone, port)
    for room in (20, 21):
        assert pair.complete("hi", bootstrap_room=room).text == pair.single("hi").text
    reply = prefill.post("/v1/completions", pair.body("hi", bootstrap_room=21, routed_dp_rank=0))
    assert (
        "follow_bootstrap_room conflict: dispatched to dp_rank 0 but bootstrap_room 21 implies dp_rank 1"
        in (reply.body["message"])
    )
    assert (
        prefill.post("/v1/completions", {"model": MODEL, "prompt": "hi", "routed_dp_rank": 5}).status == 500
    )
