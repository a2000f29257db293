"""The two legs of a disaggregated request with TensorRT-LLM."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import IncompleteRead
from typing import Any

import pytest

from tests.engine_sim.conformance.trtllm import (
    MODEL,
    TrtllmPair,
    completion,
    config,
    context_body,
    generation_body,
    start,
    trtllm_pair,
)
from tests.engine_sim.processes import Engine, Engines, Reply, eventually

FAILED = "Error in kv cache transfer for generation requests"
WORDS = "the cache of a network is a place for all the blocks that a request may want again "


@pytest.fixture(scope="module")
def pair(shared_engines: Engines) -> TrtllmPair:
    return trtllm_pair(shared_engines)


def failed(reply: Reply) -> bool:
    return reply.status == 400 and reply.body["message"] == FAILED


# The context worker's answer.


def test_what_a_context_worker_answers(pair: TrtllmPair) -> None:
    reply = pair.leg(completion(WORDS, min_tokens=5, max_tokens=50), disagg_request_id=4711)
    choice = reply.body["choices"][0]
    params = choice["disaggregated_params"]
    assert choice["finish_reason"] == "length"
    assert reply.body["usage"]["completion_tokens"] == 1
    assert len(reply.body["prompt_token_ids"]) == reply.body["usage"]["prompt_tokens"]
    assert set(params) == {
        "request_type",
        "first_gen_tokens",
        "first_gen_log_probs",
        "first_gen_logits",
        "ctx_request_id",
        "encoded_opaque_state",
        "draft_tokens",
        "disagg_request_id",
        "ctx_dp_rank",
        "ctx_info_endpoint",
        "schedule_style",
        "conversation_id",
        "ctx_usage",
    }
    assert (params["request_type"], params["ctx_request_id"], params["disagg_request_id"]) == (
        "context_only",
        4711,
        4711,
    )
    assert len(params["first_gen_tokens"]) == 1
    assert params["encoded_opaque_state"]


def test_an_id_that_is_still_in_use_is_refused(pair: TrtllmPair) -> None:
    body = completion("once")
    assert pair.leg(body, disagg_request_id=99).status == 200
    assert pair.leg(body, disagg_request_id=99).status == 400


def test_an_answer_of_one_token_has_no_second_leg(pair: TrtllmPair) -> None:
    first = pair.single(WORDS).text.split()[0]
    before = pair.prefill.state()["leases"]
    reply = pair.leg(completion(WORDS, stop=[first]))
    assert reply.finish_reason == "stop"
    assert reply.body["choices"][0]["disaggregated_params"]["ctx_request_id"] is not None
    assert pair.prefill.state()["leases"] == before


# The generation worker.


def test_the_first_token_is_that_of_the_context_worker(pair: TrtllmPair) -> None:
    body = completion(WORDS * 3, ignore_eos=True)
    context = pair.leg(body)
    reply = pair.decode.post("/v1/completions", generation_body(body, context))
    assert reply.text.startswith(context.text)
    assert reply.text == pair.single(WORDS * 3, ignore_eos=True).text
    assert reply.body["usage"]["completion_tokens"] == 20
    assert reply.body["usage"]["prompt_tokens"] == context.body["usage"]["prompt_tokens"]


def test_another_first_token_gives_another_answer(pair: TrtllmPair) -> None:
    body = completion(WORDS * 4, ignore_eos=True)
    reply = pair.decode.post(
        "/v1/completions", generation_body(body, pair.leg(body), first_gen_tokens=[1000])
    )
    whole = pair.single(WORDS * 4, ignore_eos=True).text
    assert reply.status == 200
    assert not set(reply.text.split()[-10:]) <= set(whole.split())


def test_one_token_is_all_that_max_tokens_may_want(pair: TrtllmPair) -> None:
    reply = pair.complete(WORDS * 2, max_tokens=1)
    assert (reply.status, reply.finish_reason) == (200, "length")
    assert (reply.text, reply.body["usage"]["completion_tokens"]) == (
        pair.single(WORDS * 2, max_tokens=1).text,
        1,
    )


def test_stop_strings_and_log_probabilities_over_both(pair: TrtllmPair) -> None:
    words = pair.single(WORDS * 5, ignore_eos=True).text.split()
    for stop in (" ".join(words[:2]), words[6]):
        reply = pair.complete(WORDS * 5, stop=[stop])
        assert reply.finish_reason == "stop"
        assert reply.text == pair.single(WORDS * 5, stop=[stop]).text
    found = pair.complete(WORDS * 5, logprobs=2).body["choices"][0]["logprobs"]
    assert found == pair.single(WORDS * 5, logprobs=2).body["choices"][0]["logprobs"]


def test_a_chat_over_both(pair: TrtllmPair) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": WORDS}], "max_tokens": 9}
    context = pair.prefill.post("/v1/chat/completions", context_body(body))
    reply = pair.decode.post("/v1/chat/completions", generation_body(body, context))
    assert reply.text == pair.alone.post("/v1/chat/completions", body).text


def test_a_generation_worker_does_a_whole_request_alone(pair: TrtllmPair) -> None:
    whole = pair.single(WORDS)
    for params in ({}, {"disaggregated_params": {"request_type": "context_and_generation"}}):
        reply = pair.decode.post("/v1/completions", completion(WORDS, **params))
        assert (reply.status, reply.text) == (200, whole.text)


def test_a_prompt_longer_than_a_step_can_be_pulled(engines: Engines, pair: TrtllmPair) -> None:
    decode = start(engines, config(max_num_tokens=64)).ready()
    body = completion([1000] * 300)
    reply = decode.post("/v1/completions", generation_body(body, pair.leg(body)))
    assert (reply.status, reply.text) == (200, pair.single([1000] * 300).text)
    assert decode.post("/v1/completions", body).status == 400


# What is refused.


@pytest.mark.parametrize(
    "fields", [{"n": 2}, {"best_of": 2}, {"use_beam_search": True}, {"prompt": ["a", "b"]}]
)
def test_one_prompt_one_sequence_one_beam(pair: TrtllmPair, fields: dict[str, Any]) -> None:
    assert pair.leg(completion("hi") | fields).status == 400


@pytest.mark.parametrize("missing", ["ctx_request_id", "first_gen_tokens"])
def test_a_generation_needs_what_the_context_worker_said(pair: TrtllmPair, missing: str) -> None:
    body = completion("hi")
    wanted = generation_body(body, pair.leg(body), **{missing: None})
    assert pair.decode.post("/v1/completions", wanted).status == 400


@pytest.mark.parametrize("kind", ["context_only", "generation_only"])
def test_without_a_backend_the_transfer_is_off(pair: TrtllmPair, kind: str) -> None:
    body = completion("hi")
    wanted = generation_body(body, pair.leg(body), request_type=kind)
    reply = pair.alone.post("/v1/completions", wanted)
    assert (reply.status, reply.body["message"].startswith("kv_cache_transceiver is disabled")) == (400, True)
    alone = {"request_type": "context_and_generation"}
    assert pair.alone.post("/v1/completions", completion("hi", disaggregated_params=alone)).status == 200


def test_the_overlap_scheduler_has_no_context_requests(pair: TrtllmPair) -> None:
    reply = pair.decode.post("/v1/completions", context_body(completion("hi")))
    assert (reply.status, "when overlap is enabled" in reply.body["message"]) == (400, True)


# Transfers that fail.


@pytest.mark.parametrize(
    "params",
    [
        {"encoded_opaque_state": None},
        {"encoded_opaque_state": "bm9uc2Vuc2U="},
        {"encoded_opaque_state": "!"},
        {"ctx_request_id": 123456789},
    ],
)
def test_a_wrong_state_fails(pair: TrtllmPair, params: dict[str, Any]) -> None:
    body = completion("hi there")
    assert failed(pair.decode.post("/v1/completions", generation_body(body, pair.leg(body), **params)))
    assert pair.decode.state()["running"] == 0


def test_kv_is_pulled_once(pair: TrtllmPair) -> None:
    body = completion("only once")
    wanted = generation_body(body, pair.leg(body))
    assert pair.decode.post("/v1/completions", wanted).status == 200
    assert failed(pair.decode.post("/v1/completions", wanted))


def test_a_context_worker_that_is_gone(engines: Engines, pair: TrtllmPair) -> None:
    context = start(engines, config("context")).ready()
    body = completion("gone")
    wanted = generation_body(body, context.post("/v1/completions", context_body(body)))
    context.stop()
    assert failed(pair.decode.post("/v1/completions", wanted))


@pytest.mark.parametrize(
    ("changes", "environment"),
    [
        ({"kv_cache_config": {"tokens_per_block": 64}}, {}),
        ({"kv_cache_config": {"dtype": "fp8"}}, {}),
        ({"cache_transceiver_config": {"backend": "UCX"}}, {}),
        ({}, {"TRTLLM_NIXL_KVCACHE_BACKEND": "LIBFABRIC"}),
    ],
)
def test_sides_that_differ_in_what_they_must_not(
    engines: Engines, pair: TrtllmPair, changes: dict[str, Any], environment: dict[str, str]
) -> None:
    decode = start(engines, config(**changes), **environment).ready()
    body = completion(WORDS)
    assert failed(decode.post("/v1/completions", generation_body(body, pair.leg(body))))


def test_default_is_what_the_environment_says(engines: Engines, pair: TrtllmPair) -> None:
    content = config(cache_transceiver_config={"backend": "DEFAULT"})
    decode = start(engines, content).ready()
    other = start(engines, content, TRTLLM_USE_UCX_KVCACHE="1").ready()
    body = completion(WORDS)
    assert (
        decode.post("/v1/completions", generation_body(body, pair.leg(body))).text == pair.single(WORDS).text
    )
    assert failed(other.post("/v1/completions", generation_body(body, pair.leg(body))))


def test_tensor_parallelism_may_differ(engines: Engines, pair: TrtllmPair) -> None:
    decode = start(engines, config(), "--tp_size=2").ready()
    body = completion(WORDS)
    reply = decode.post("/v1/completions", generation_body(body, pair.leg(body)))
    assert (reply.status, reply.text) == (200, pair.single(WORDS).text)


def test_another_model_of_the_same_form_says_something_else(engines: Engines, pair: TrtllmPair) -> None:
    context = start(engines, config("context"), model="org/finetuned").ready()
    body = completion("whose is it", ignore_eos=True)
    wanted = generation_body(body, context.post("/v1/completions", context_body(body)))
    reply = pair.decode.post("/v1/completions", wanted)
    assert reply.status == 200
    assert reply.text != pair.single("whose is it", ignore_eos=True).text


def test_a_stream_whose_transfer_fails_is_cut(pair: TrtllmPair) -> None:
    body = completion("hi", stream=True)
    wanted = generation_body(body, pair.leg(body), ctx_request_id=5)
    with closing(pair.decode.connect()) as connection:
        data = json.dumps(wanted | {"stream": True})
        connection.request("POST", "/v1/completions", data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200
        with pytest.raises((IncompleteRead, ConnectionError)):
            response.read()


def test_stale_peers_break_one_pair_only(pair: TrtllmPair) -> None:
    body = completion("stale")
    pair.decode.fault(stale_peers=["*"])
    try:
        assert failed(pair.decode.post("/v1/completions", generation_body(body, pair.leg(body))))
        assert pair.decode.get("/health").status == 200
    finally:
        pair.decode.fault(stale_peers=[])


def test_one_request_that_fails_harms_no_other(pair: TrtllmPair) -> None:
    prompts = [f"number {index} of " + WORDS for index in range(12)]
    bodies = [completion(prompt) for prompt in prompts]
    wanted = [generation_body(body, pair.leg(body)) for body in bodies]
    for body in wanted[::2]:
        body["disaggregated_params"]["ctx_request_id"] = 77
    with ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda body: pair.decode.post("/v1/completions", body), wanted))
    assert all(failed(reply) for reply in replies[::2])
    assert [reply.text for reply in replies[1::2]] == [pair.single(prompt).text for prompt in prompts[1::2]]


# Time.


def short(engines: Engines, role: str, *arguments: str, timeout: int | None = 10_000) -> Engine:
    """A worker that waits for its peer for a second of ours."""
    changed = config(role, cache_transceiver_config={"kv_transfer_timeout_ms": timeout})
    return start(engines, changed, *arguments).ready()


def test_kv_that_nobody_pulls_is_freed_in_time(engines: Engines, pair: TrtllmPair) -> None:
    context = short(engines, "context")
    body = completion(WORDS)
    wanted = generation_body(body, context.post("/v1/completions", context_body(body)))
    assert context.state()["leases"] == 1
    eventually(lambda: context.state()["leases"] == 0)
    assert failed(pair.decode.post("/v1/completions", wanted))


def test_without_a_timeout_it_is_kept(engines: Engines) -> None:
    content = config("context")
    del content["cache_transceiver_config"]["kv_transfer_timeout_ms"]
    context = start(engines, content, "--sim-time-scale=10000").ready()
    context.post("/v1/completions", context_body(completion(WORDS)))
    started = context.state()["time"]
    eventually(lambda: context.state()["time"] > started + 5000)
    assert context.state()["leases"] == 1


def test_a_transfer_that_takes_too_long_fails(engines: Engines, pair: TrtllmPair) -> None:
    decode = short(engines, "", "--sim-bandwidth=100")
    body = completion(WORDS)
    assert failed(decode.post("/v1/completions", generation_body(body, pair.leg(body))))


@pytest.mark.parametrize("leaks", [False, True])
def test_a_generation_that_is_cancelled(engines: Engines, leaks: bool) -> None:
    context, decode = short(engines, "context", timeout=150_000), short(engines, "", "--sim-bandwidth=100")
    decode.fault(cancel_leaks=leaks, hang=True)
    body = completion(WORDS)
    wanted = generation_body(body, context.post("/v1/completions", context_body(body)))
    with closing(decode.connect()) as connection:
        data = json.dumps(wanted).encode()
        connection.request("POST", "/v1/completions", data, {"Content-Type": "application/json"})
        eventually(lambda: decode.state()["waiting"] == 1)
    eventually(lambda: decode.state()["waiting"] == 0)
    if leaks:
        started = context.state()["time"]
        eventually(lambda: context.state()["time"] > started + 10)
        assert context.state()["leases"] == 1
    eventually(lambda: context.state()["leases"] == 0, 60)


def test_leaked_kv_stops_a_context_worker_that_looks_healthy(engines: Engines) -> None:
    content = config("context", kv_cache_config={"max_tokens": 128})
    del content["cache_transceiver_config"]["kv_transfer_timeout_ms"]
    context = start(engines, content).ready()
    for index in range(2):
        assert context.post("/v1/completions", context_body(completion([1000 + index] * 60))).status == 200
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(context.post, "/v1/completions", context_body(completion([1010] * 60)))
        eventually(lambda: context.state()["waiting"] == 1)
        assert context.get("/health").status == 200
        assert not future.done()
        context.stop()
        assert future.exception() is not None
