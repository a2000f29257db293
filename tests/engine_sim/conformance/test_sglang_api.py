"""SGLang's answers, errors, metrics and routes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine_sim.conformance.sglang_pair import MODEL, SglangPair, sglang_pair, start_sglang
from tests.engine_sim.processes import Engine, Engines, eventually

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def pair(shared_engines: Engines) -> SglangPair:
    return sglang_pair(shared_engines)


@pytest.fixture(scope="module")
def engine(pair: SglangPair) -> Engine:
    return pair.alone


def test_a_completion_has_sglangs_form(engine: Engine) -> None:
    body = engine.post(COMPLETIONS, {"model": MODEL, "prompt": "hi", "rid": "mine", "ignore_eos": True}).body
    assert body.keys() == {"id", "object", "created", "model", "choices", "usage", "metadata"}
    assert (body["id"], body["object"], body["model"]) == ("mine", "text_completion", MODEL)
    (choice,) = body["choices"]
    assert choice.keys() == {"index", "text", "logprobs", "finish_reason", "matched_stop"}
    assert choice["finish_reason"] == "length"
    usage = body["usage"]
    assert (usage["completion_tokens"], usage["total_tokens"]) == (16, 16 + usage["prompt_tokens"])


def test_a_chat_has_sglangs_form(engine: Engine) -> None:
    body = engine.post(CHAT, {"messages": USER, "max_completion_tokens": 5, "ignore_eos": True}).body
    assert (body["object"], body["model"]) == ("chat.completion", "default")
    (choice,) = body["choices"]
    assert choice["message"].keys() == {"role", "content", "reasoning_content"}
    assert body["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_stream_says_what_the_whole_says(pair: SglangPair, path: str) -> None:
    call = {"prompt": "hi", "messages": USER, "max_tokens": 10, "ignore_eos": True, **pair.meeting()}
    prefill = pair.send(call, path)
    events = pair.decode.stream(path, {**call, "stream_options": {"include_usage": True}})
    assert prefill.result(20).status == 200
    *pieces, last = events.chunks
    choices = [chunk["choices"][0] for chunk in pieces]
    text = "".join(each.get("text") or each.get("delta", {}).get("content") or "" for each in choices)
    assert text == pair.alone.post(path, call).text
    assert (len(pieces), last["choices"], last["usage"]["completion_tokens"], events.done) == (
        10,
        [],
        10,
        True,
    )
    assert choices[-1]["finish_reason"] == "length"


def test_stop_strings_end_an_answer_and_are_told(engine: Engine) -> None:
    free = engine.post(COMPLETIONS, {"prompt": "hi", "ignore_eos": True}).text
    word = free.split()[3]
    reply = engine.post(COMPLETIONS, {"prompt": "hi", "ignore_eos": True, "stop": word})
    assert (reply.finish_reason, reply.body["choices"][0]["matched_stop"]) == ("stop", word)
    assert reply.text == free[: free.index(word)]


def test_several_answers_of_one_engine(engine: Engine) -> None:
    choices = engine.post(COMPLETIONS, {"prompt": "hi", "n": 3}).body["choices"]
    assert len({choice["text"] for choice in choices}) == 3


# What is refused.


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": ""}, "Prompt cannot be empty"),
        ({"prompt": []}, "Prompt cannot be empty"),
        ({"max_tokens": 0}, "max_tokens must be positive"),
        ({"temperature": -1}, "temperature must be a non-negative finite number, got -1"),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0"),
        ({"top_k": 0}, "top_k must be -1 (disable) or at least 1, got 0."),
        ({"min_tokens": 17}, "min_new_tokens must be in [0, max_new_tokens(16)], got 17."),
        ({"max_tokens": "many"}, "max_tokens"),
        (
            {"max_tokens": 32768},
            "Requested token count exceeds the model's maximum context length of 32768 tokens.",
        ),
        (
            {"prompt": [1000] * 32768},
            "The input (32768 tokens) is longer than the model's context length (32768 tokens).",
        ),
        ({"prompt": [9_999_999]}, "greater than the vocab size"),
        ({"model": f"{MODEL}:adapter"}, "LoRA adapter 'adapter' was requested, but LoRA is not enabled."),
        ({"rid": ["a", "a"], "n": 2}, "Duplicate request ID detected: a"),
    ],
)
def test_what_can_not_be_is_refused(engine: Engine, fields: dict[str, Any], message: str) -> None:
    reply = engine.post(COMPLETIONS, {"prompt": "hi", **fields})
    assert (reply.status, reply.body["object"], reply.body["code"]) == (400, "error", 400)
    assert message in reply.body["message"], reply.body


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": []}, "Messages cannot be empty."),
        ({"tool_choice": "required"}, "Tools cannot be empty if tool choice is set to required."),
    ],
)
def test_a_chat_that_can_not_be_is_refused(engine: Engine, fields: dict[str, Any], message: str) -> None:
    reply = engine.post(CHAT, {"messages": USER, **fields})
    assert (reply.status, reply.body["message"]) == (400, message)


def test_no_name_of_a_model_is_refused(engine: Engine) -> None:
    assert engine.post(COMPLETIONS, {"model": "whatever", "prompt": "hi"}).body["model"] == "whatever"


def test_a_body_that_is_no_json_is_refused(engine: Engine) -> None:
    assert engine.post(COMPLETIONS, b"{").status == 400
    assert engine.request("POST", COMPLETIONS, b"{}", {"Content-Type": "text/plain"}).status == 400


# Other routes.


def test_models_are_listed(engine: Engine) -> None:
    (card,) = engine.get("/v1/models").body["data"]
    assert (card["id"], card["owned_by"], card["max_model_len"]) == (MODEL, "sglang", 32768)
    assert engine.get(f"/v1/models/{MODEL}").body["id"] == MODEL
    assert engine.get("/v1/models/other").status == 404


def test_it_tells_what_it_is(pair: SglangPair) -> None:
    for mode, engine in (("prefill", pair.prefill), ("decode", pair.decode), ("null", pair.alone)):
        assert engine.get("/model_info").body["disaggregation_mode"] == mode
        info = engine.get("/server_info").body
        assert (info["disaggregation_mode"], info["page_size"], info["version"]) == (mode, 64, "0.5.23")
    assert pair.alone.get("/get_model_info").body == pair.alone.get("/model_info").body


def test_loads_are_told(pair: SglangPair) -> None:
    (load,) = pair.decode.get("/v1/loads").body["loads"]
    assert (load["dp_rank"], load["num_running_reqs"], load["disaggregation"]["mode"]) == (0, 0, "decode")
    assert 'sglang_num_running_reqs{dp_rank="0"} 0' in pair.prefill.get("/v1/loads?format=prometheus").body


def test_the_cache_can_be_flushed_unless_it_is_in_use(engine: Engine) -> None:
    prompt = {"prompt": "flush " * 100, "max_tokens": 1}

    def cached() -> int:
        usage = engine.post(COMPLETIONS, prompt).body["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    cached()
    assert cached() > 0
    assert engine.post("/flush_cache", {}).status == 200
    assert cached() == 0


def test_adapters_come_and_go(engines: Engines) -> None:
    engine = start_sglang(engines, "null", "--lora-paths", "one=/one", "--max-lora-rank=8").ready()
    assert [card["id"] for card in engine.get("/v1/models").body["data"]] == [MODEL, "one"]
    two = {"lora_name": "two", "lora_path": "/two"}
    assert engine.post("/load_lora_adapter", two).body["success"] is True
    assert (again := engine.post("/load_lora_adapter", two)).status == 400, again.body
    texts = {
        name: engine.post(COMPLETIONS, {"model": name, "prompt": "hi"}).text
        for name in (MODEL, f"{MODEL}:one", f"{MODEL}:two", "one")
    }
    assert len(set(texts.values())) == 3
    # A name alone is no adapter: the model's name is not looked at.
    assert texts["one"] == texts[MODEL]
    assert (
        engine.post(COMPLETIONS, {"model": MODEL, "prompt": "hi", "lora_path": "two"}).text
        == texts[f"{MODEL}:two"]
    )
    assert engine.post("/unload_lora_adapter", {"lora_name": "two"}).status == 200
    assert engine.post(COMPLETIONS, {"model": f"{MODEL}:two", "prompt": "hi"}).status == 400


def test_a_key_is_asked_for(engines: Engines) -> None:
    engine = start_sglang(engines, "null", "--api-key=secret").ready()
    assert engine.post(COMPLETIONS, {"prompt": "hi"}).status == 401
    assert engine.post(COMPLETIONS, {"prompt": "hi"}, {"Authorization": "Bearer secret"}).status == 200


# Metrics.


def test_without_the_flag_there_are_no_metrics(engines: Engines) -> None:
    engine = engines.start("--dialect=sglang", f"--model-path={MODEL}").ready()
    assert engine.get("/metrics").status == 404


def test_metrics_are_labelled_by_role_and_rank(pair: SglangPair) -> None:
    assert pair.complete("metrics").status == 200
    labels = {"model_name": MODEL, "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
    for kind, engine in (("prefill", pair.prefill), ("decode", pair.decode), ("unified", pair.alone)):
        for name in ("num_running_reqs", "num_queue_reqs", "token_usage", "num_prefill_bootstrap_queue_reqs"):
            assert engine.metric(f"sglang:{name}", engine_type=kind, **labels) == 0
        assert "dp_rank" not in engine.get("/metrics").body
    assert pair.prefill.metric("sglang:kv_transfer_bootstrap_ms_count") > 0


def test_prefill_never_observes_a_first_token(pair: SglangPair) -> None:
    before = pair.decode.metric("sglang:time_to_first_token_seconds_count")
    assert pair.complete("first").status == 200
    assert pair.decode.metric("sglang:time_to_first_token_seconds_count") == before + 1
    assert "sglang:time_to_first_token_seconds_count{" not in pair.prefill.get("/metrics").body


def test_tokens_are_counted_by_kind_of_answer(pair: SglangPair) -> None:
    pair.complete("counted", ignore_eos=True)
    whole = pair.decode.metric("sglang:generation_tokens_total", is_streaming="false")
    assert pair.stream("counted", ignore_eos=True).done
    assert pair.decode.metric("sglang:generation_tokens_total", is_streaming="true") >= 20
    assert pair.decode.metric("sglang:generation_tokens_total", is_streaming="false") == whole


def test_queues_of_both_roles_show(pair: SglangPair) -> None:
    body = pair.body("queues")
    prefill = pair.send(body)
    eventually(lambda: pair.prefill.metric("sglang:num_prefill_bootstrap_queue_reqs") == 1)
    pair.prefill.post("/abort_request", {"abort_all": True})
    assert prefill.result(20).status == 500
    assert pair.prefill.metric("sglang:num_prefill_bootstrap_queue_reqs") == 0
