"""How the two legs of a request meet in SGLang, and what becomes of one that they don't meet in."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from tests.engine_sim.conformance.sglang_pair import (
    MODEL,
    SglangPair,
    new_room,
    sglang_pair,
    start_prefill,
    start_sglang,
)
from tests.engine_sim.conformance.test_sglang_process import ALL, bootstrap
from tests.engine_sim.processes import DEADLINE, Engine, Engines, eventually, free_port

PROMPT = "the memory of a cluster is what a prompt leaves behind, block by block, " * 12
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def pair(shared_engines: Engines) -> SglangPair:
    return sglang_pair(shared_engines)


def without_room(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if not key.startswith("bootstrap_")}


# The bootstrap server.


def test_the_bootstrap_server_tells_where_each_rank_is(pair: SglangPair) -> None:
    boot = bootstrap(pair.prefill, pair.port)
    rank = "/route?prefill_dp_rank={}&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0"
    found = boot.get(rank.format(0))
    assert (found.status, found.body["rank_ip"]) == (200, "127.0.0.1")
    assert found.body["rank_port"] not in {pair.port, pair.prefill.port}
    assert boot.get(rank.format(1)).status == 404
    assert boot.get("/route").status == 400
    with closing(boot.connect()) as connection:
        connection.request("DELETE", "/route")
        assert connection.getresponse().status == 405


def test_ranks_of_rooms_are_entered_and_asked_for(pair: SglangPair) -> None:
    boot = bootstrap(pair.prefill, pair.port)
    assert boot.post("/register_dp_rank", {"bootstrap_room": 5, "dp_rank": 3}).body == "OK"
    found = boot.post("/query_dp_ranks", {"bootstrap_rooms": [5, 6]})
    assert found.body == {"5": 3}


def test_all_ranks_of_data_parallel_attention_are_there(engines: Engines) -> None:
    port = free_port()
    prefill = start_prefill(engines, port, "--tp-size=4", "--attn-dp-size=2").ready()
    info = bootstrap(prefill, port).get(ALL).body
    assert (info["attn_tp_size"], info["dp_size"]) == (2, 2)


# A room.


@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_without_a_room_a_request_is_refused(pair: SglangPair, side: str, path: str) -> None:
    engine: Engine = getattr(pair, side)
    body = {
        "model": MODEL,
        "prompt": "hi",
        "messages": [{"role": "user", "content": "hi"}],
        "rid": f"r{side}{path}",
    }
    reply = engine.post(path, body)
    assert (reply.status, reply.body["code"], reply.body["object"]) == (400, 400, "error")
    assert reply.body["message"] == (
        f"Invalid request: Disaggregated request received without bootstrap room id. req.rid='r{side}{path}'"
    )


def test_a_stream_without_a_room_is_refused_in_the_stream(pair: SglangPair) -> None:
    events = pair.decode.stream("/v1/completions", {"model": MODEL, "prompt": "hi"})
    (error,) = events.chunks
    assert (events.status, error["error"]["code"], error["error"]["type"], events.done) == (
        200,
        400,
        "BAD_REQUEST",
        True,
    )


def test_an_engine_alone_needs_no_room_and_ignores_one(pair: SglangPair) -> None:
    assert pair.single("hi").text == pair.single("hi", **pair.meeting()).text


def test_prefill_answers_one_token_which_is_decodes_first(pair: SglangPair) -> None:
    decode, prefill = pair.both(pair.body("first " + PROMPT, max_tokens=20, ignore_eos=True))
    assert (decode.status, prefill.status) == (200, 200)
    assert prefill.body["usage"]["completion_tokens"] == 1
    assert decode.text.startswith(prefill.text)
    assert decode.body["usage"]["completion_tokens"] == 20


def test_the_first_token_is_prefills_and_the_others_are_decodes(pair: SglangPair) -> None:
    body = pair.body(PROMPT, seed=1, ignore_eos=True)
    prefill = pair.send(body)
    mixed = pair.decode.post("/v1/completions", {**body, "seed": 2}).text
    assert (
        mixed.split()[0]
        == prefill.result(DEADLINE).text.strip()
        == pair.single(PROMPT, seed=1, ignore_eos=True).text.split()[0]
    )
    assert mixed.split()[1:] == pair.single(PROMPT, seed=2, ignore_eos=True).text.split()[1:]


def test_prefill_waits_for_decode_and_answers_when_all_is_there(pair: SglangPair) -> None:
    body = pair.body("late")
    prefill = pair.send(body)
    eventually(lambda: pair.prefill.metric("sglang:num_prefill_bootstrap_queue_reqs") == 1)
    assert (pair.prefill.state()["running"], prefill.done()) == (0, False)
    assert pair.decode.post("/v1/completions", body).text == pair.single("late").text
    assert prefill.result(DEADLINE).status == 200


def test_decode_may_come_first(pair: SglangPair) -> None:
    body = pair.body("early")
    decode = pair.legs.submit(pair.decode.post, "/v1/completions", body)
    eventually(lambda: pair.decode.metric("sglang:num_decode_transfer_queue_reqs") == 1)
    assert pair.prefill.post("/v1/completions", body).status == 200
    assert decode.result(DEADLINE).text == pair.single("early").text


def test_a_chat_goes_the_same_way(pair: SglangPair) -> None:
    chat = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 12}
    decode, prefill = pair.both({**chat, **pair.meeting()}, CHAT)
    assert decode.text == pair.alone.post(CHAT, chat).text
    assert prefill.body["object"] == "chat.completion"


def test_a_tool_call_goes_the_same_way(pair: SglangPair) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"properties": {"where": {}}}}}
    chat = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "look"}],
        "max_tokens": 200,
        "tools": [tool],
        "tool_choice": "required",
    }
    decode, _prefill = pair.both({**chat, **pair.meeting()}, CHAT)
    choice = decode.body["choices"][0]
    assert (choice["finish_reason"], choice["message"]["tool_calls"][0]["function"]["name"]) == (
        "tool_calls",
        "look",
    )
    alone = pair.alone.post(CHAT, chat).body["choices"][0]["message"]["tool_calls"][0]["function"]
    assert choice["message"]["tool_calls"][0]["function"] == alone


def test_batches_take_a_list_of_rooms(pair: SglangPair) -> None:
    prompts = [PROMPT, "two", "three " + PROMPT]
    lists = {
        "bootstrap_host": ["127.0.0.1"] * 3,
        "bootstrap_port": [pair.port] * 3,
        "bootstrap_room": [new_room() for _ in range(3)],
    }
    decode, prefill = pair.both(pair.body(prompts, **lists))
    assert [choice["text"] for choice in decode.body["choices"]] == [
        pair.single(each).text for each in prompts
    ]
    assert prefill.body["usage"]["completion_tokens"] == 3


def test_a_batch_with_one_room_takes_those_after_it(pair: SglangPair) -> None:
    decode, _prefill = pair.both(pair.body(["one", "two"], bootstrap_room=1000))
    assert [choice["text"] for choice in decode.body["choices"]] == [
        pair.single(each).text for each in ("one", "two")
    ]


def test_lists_of_another_length_are_an_error(pair: SglangPair) -> None:
    reply = pair.decode.post("/v1/completions", pair.body(["one", "two"], bootstrap_room=[1]))
    assert (reply.status, reply.body["message"]) == (500, "Internal server error: list index out of range")


def test_health_checks_need_no_other_half(pair: SglangPair) -> None:
    body = {"model": MODEL, "prompt": "hi", "bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
    assert [engine.post("/v1/completions", body).status for engine in (pair.prefill, pair.decode)] == [
        200,
        200,
    ]


# Caches.


def test_decode_has_no_cache_and_cached_tokens_are_prefills(pair: SglangPair) -> None:
    prompt = "cached " + PROMPT
    for _ in range(2):
        decode, prefill = pair.both(pair.body(prompt))
    usage = decode.body["usage"]
    assert usage["prompt_tokens_details"] == prefill.body["usage"]["prompt_tokens_details"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == (usage["prompt_tokens"] - 1) // 64 * 64
    moved = pair.decode.metric("sglang:kv_transfer_total_mb_sum")
    pair.complete(prompt)
    pages = -(-usage["prompt_tokens"] // 64)
    assert pair.decode.metric("sglang:kv_transfer_total_mb_sum") - moved == pytest.approx(
        pages * 64 * 1024 / 1e6
    )
    assert pair.decode.get("/server_info").body["disable_radix_cache"] is True


def test_with_a_cache_decode_takes_only_what_it_lacks(engines: Engines, pair: SglangPair) -> None:
    decode = start_sglang(engines, "decode", "--disaggregation-decode-enable-radix-cache").ready()
    other = SglangPair(pair.prefill, decode, pair.alone, pair.port)
    prompt = "again " + PROMPT
    texts = {other.complete(prompt).text for _ in range(3)}
    assert texts == {pair.single(prompt).text}
    pages = -(-len(other.alone.post("/tokenize", {"prompt": prompt}).body["tokens"]) // 64)
    assert decode.metric("sglang:kv_transfer_total_mb_sum") < 2 * pages * 64 * 1024 / 1e6


def test_pages_of_one_token_are_the_default(engines: Engines) -> None:
    port = free_port()
    prefill = start_prefill(engines, port, "--page-size=1").ready()
    decode = start_sglang(engines, "decode", "--page-size=1").ready()
    alone = start_sglang(engines, "null", "--page-size=1").ready()
    pair = SglangPair(prefill, decode, alone, port)
    assert pair.complete(PROMPT).text == pair.single(PROMPT).text


# Chunks.


def test_chunks_go_while_the_next_is_computed(engines: Engines) -> None:
    """With 4 chunks of 37 ms to compute and as much to move, all of it takes 5 times that rather than 8 times."""
    port = free_port()
    model = ("--sim-profile=llama-8b-l40s", "--sim-time-scale=0.2", "--chunked-prefill-size=256")
    environment = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
    prefill = start_prefill(engines, port, *model, "--sim-bandwidth=910e6", **environment).ready()
    decode = start_sglang(engines, "decode", *model, **environment).ready()
    pair = SglangPair(prefill, decode, decode, port)
    # The first request also meets the other side.
    pair.both(pair.body([1000] * 64, max_tokens=1))
    before = decode.state()["time"]
    pair.both(pair.body([2000] * 1024, max_tokens=1))
    took = decode.state()["time"] - before
    assert 4 * 0.037 < took < 7 * 0.037


def test_streams_have_their_headers_with_the_first_token(pair: SglangPair) -> None:
    body = pair.body("headers")
    with closing(pair.decode.connect(1)) as connection:
        connection.request(
            "POST",
            "/v1/completions",
            json.dumps({**body, "stream": True}),
            {"Content-Type": "application/json"},
        )
        with pytest.raises(TimeoutError):
            connection.getresponse()
    eventually(lambda: pair.decode.state()["remote"] == 0)
