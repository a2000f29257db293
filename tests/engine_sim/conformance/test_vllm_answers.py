"""How answers of vLLM look."""

from __future__ import annotations

import json
import re

import pytest

from tests.engine_sim.conformance.pairs import MODEL, SCALE, block_size, slow
from tests.engine_sim.conformance.vllm_requests import (
    CHAT,
    COMPLETIONS,
    TOOL,
    chat,
    complete,
    tool_caller,
    with_adapter,
)
from tests.engine_sim.processes import Engine, Engines, eventually

ANSWER = {
    "id",
    "object",
    "created",
    "model",
    "choices",
    "service_tier",
    "system_fingerprint",
    "usage",
    "ec_transfer_params",
    "metrics",
}
USAGE = {
    "prompt_tokens",
    "total_tokens",
    "completion_tokens",
    "prompt_tokens_details",
    "completion_tokens_details",
}
CHOICE_0_18 = {"index", "logprobs", "finish_reason", "stop_reason"}
CHOICE_0_32 = CHOICE_0_18 | {"routed_experts"}
CHOICE = {"0.32.0": CHOICE_0_32, "0.33.0": CHOICE_0_32 | {"weight_versions"}}


@pytest.fixture(scope="module")
def engine(shared_engines: Engines) -> Engine:
    return with_adapter(shared_engines)


@pytest.fixture(scope="module")
def caller(shared_engines: Engines) -> Engine:
    return tool_caller(shared_engines)


def test_a_completion_has_the_fields_of_vllm(engine: Engine) -> None:
    reply = engine.post(
        COMPLETIONS,
        {
            "model": MODEL,
            "prompt": "hello",
            "max_tokens": 3,
            "temperature": 0,
            "logprobs": 2,
            "ignore_eos": True,
        },
        {"X-Request-Id": "mine"},
    )
    body = reply.body
    assert body["id"] == "cmpl-mine"
    assert body.keys() == ANSWER | {"kv_transfer_params"}
    assert body["usage"].keys() == USAGE
    version = engine.get("/version").body["version"]
    assert re.fullmatch(rf"vllm-{re.escape(version)}-[0-9a-f]{{8}}", body["system_fingerprint"])
    (choice,) = body["choices"]
    assert choice.keys() == CHOICE[version] | {"text", "token_ids", "prompt_logprobs", "prompt_token_ids"}
    assert choice["finish_reason"] == "length"
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert [len(each) for each in logprobs["top_logprobs"]] == [2, 2, 2]
    assert logprobs["text_offset"][0] == 0
    assert all(each <= 0 for each in logprobs["token_logprobs"])


def test_a_chat_has_the_fields_of_vllm(engine: Engine) -> None:
    body = chat(engine).body
    assert body.keys() == ANSWER | {
        "prompt_logprobs",
        "prompt_token_ids",
        "prompt_text",
        "kv_transfer_params",
    }
    assert body["usage"].keys() == USAGE
    (choice,) = body["choices"]
    assert choice.keys() == CHOICE[engine.get("/version").body["version"]] | {"message", "token_ids"}
    # Without calls of tools there is no field for them.
    assert choice["message"].keys() == {
        "role",
        "content",
        "refusal",
        "annotations",
        "audio",
        "function_call",
        "reasoning",
    }


@pytest.mark.stand_in_only("is of older releases")
@pytest.mark.parametrize(
    ("version", "answer", "choice", "message"),
    [
        ("0.18.0", ANSWER - {"ec_transfer_params", "metrics"}, CHOICE_0_18, {"tool_calls"}),
        ("0.22.0", ANSWER - {"ec_transfer_params", "metrics"} | {"prompt_text"}, CHOICE_0_32, {"tool_calls"}),
        ("0.25.0", ANSWER - {"ec_transfer_params"} | {"prompt_text"}, CHOICE_0_32, set()),
        ("0.28.0", ANSWER | {"prompt_text"}, CHOICE_0_32, set()),
    ],
)
def test_older_releases_have_fewer_fields(
    engines: Engines, version: str, answer: set[str], choice: set[str], message: set[str]
) -> None:
    old = engines.start("serve", MODEL, *SCALE, f"--sim-engine-version={version}").ready()
    body = chat(old).body
    assert body.keys() == answer | {"prompt_logprobs", "prompt_token_ids", "kv_transfer_params"}
    assert body["choices"][0].keys() == choice | {"message", "token_ids"}
    assert body["choices"][0]["message"].keys() & {"tool_calls"} == message
    assert (body["system_fingerprint"] is None) is (version == "0.18.0")


def test_a_stream_names_its_engine_at_the_end(engine: Engine) -> None:
    body = {"model": MODEL, "prompt": "hi", "max_tokens": 3, "ignore_eos": True}
    name = engine.post(COMPLETIONS, body).body["system_fingerprint"]
    for options in (None, {"include_usage": True}):
        *chunks, last = engine.stream(COMPLETIONS, {**body, "stream_options": options}).chunks
        assert [chunk for chunk in chunks if "system_fingerprint" in chunk] == []
        assert last["system_fingerprint"] == name


def test_log_probabilities_of_a_prompt(engine: Engine) -> None:
    tokens = engine.post("/tokenize", {"prompt": "the cache"}).body["tokens"]
    (choice,) = complete(engine, prompt="the cache", prompt_logprobs=0).body["choices"]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert [list(each) for each in others] == [[str(token)] for token in tokens[1:]]
    assert "the cache".endswith("".join(entry["decoded_token"] for each in others for entry in each.values()))


def test_several_prompts_and_samples_are_numbered_in_order(engine: Engine) -> None:
    fields = {"n": 2, "temperature": 1, "seed": 7, "ignore_eos": True}
    body = complete(engine, prompt=["one", "two"], **fields).body
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    single = complete(engine, prompt="two", **fields).body
    assert [choice["text"] for choice in body["choices"][2:]] == [
        choice["text"] for choice in single["choices"]
    ]
    assert body["usage"]["completion_tokens"] == 32


def test_echo_repeats_the_prompt(engine: Engine) -> None:
    alone = complete(engine).text
    assert complete(engine, echo=True).text == "tell me of the cache" + alone


def test_echo_without_an_answer_repeats_the_prompt_alone(engine: Engine) -> None:
    reply = complete(engine, echo=True, max_tokens=0, logprobs=0)
    assert (reply.status, reply.text, reply.finish_reason) == (200, "tell me of the cache", "length")
    assert reply.body["usage"]["completion_tokens"] == 1
    tokens = reply.body["choices"][0]["logprobs"]["tokens"]
    assert "".join(tokens).removeprefix("<s>") == "tell me of the cache"


def test_echo_with_log_probabilities_has_those_of_the_prompt(engine: Engine) -> None:
    (choice,) = complete(engine, echo=True, logprobs=1).body["choices"]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]).removeprefix("<s>") == choice["text"]
    assert [each is None for each in logprobs["token_logprobs"][:2]] == [True, False]
    assert logprobs["top_logprobs"][0] is None
    assert choice["prompt_logprobs"][0] is None
    assert len(choice["prompt_logprobs"]) == len(logprobs["tokens"]) - 8


def test_a_stream_that_echoes_tells_the_tokens_of_the_prompt_first(engine: Engine) -> None:
    body = {"model": MODEL, "prompt": "hi", "max_tokens": 2, "ignore_eos": True, "echo": True}
    tokens = engine.post("/tokenize", {"prompt": "hi"}).body["tokens"]
    first, *others = engine.stream(COMPLETIONS, body).chunks
    assert first["choices"][0]["prompt_token_ids"] == tokens
    assert first["choices"][0]["text"].startswith("hi")
    assert {chunk["choices"][0]["prompt_token_ids"] for chunk in others} <= {None}


def test_stop_strings_end_the_answer_and_are_not_part_of_it(engine: Engine) -> None:
    whole = complete(engine, max_tokens=30, ignore_eos=True, min_tokens=0).text
    stop = whole[9:12]
    expected = whole[: whole.index(stop)]
    body = {
        "model": MODEL,
        "prompt": "tell me of the cache",
        "max_tokens": 30,
        "temperature": 0,
        "ignore_eos": True,
        "stop": [stop],
    }
    reply = engine.post(COMPLETIONS, body)
    assert (reply.text, reply.finish_reason) == (expected, "stop")
    assert reply.body["choices"][0]["stop_reason"] == stop
    events = engine.stream(COMPLETIONS, body)
    assert events.text == expected
    assert engine.post(COMPLETIONS, {**body, "include_stop_str_in_output": True}).text == expected + stop


def test_a_stream_of_a_completion(engine: Engine) -> None:
    body = {"model": MODEL, "prompt": "hi", "max_tokens": 3, "ignore_eos": True, "n": 2, "seed": 1}
    prompt_tokens = engine.post("/tokenize", {"prompt": "hi"}).body["count"]
    events = engine.stream(COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    *chunks, last = events.chunks
    assert events.done
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + 6,
        "completion_tokens": 6,
    }
    assert "usage" not in chunks[0]
    whole = engine.post(COMPLETIONS, body).body
    for choice in whole["choices"]:
        pieces = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        # A token each, or several where the server is slow.
        assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]


def test_usage_comes_with_every_event_if_wanted(engine: Engine) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = engine.stream(
        COMPLETIONS,
        {"model": MODEL, "prompt": "hi", "max_tokens": 3, "ignore_eos": True, "stream_options": options},
    )
    told = [chunk["usage"]["completion_tokens"] for chunk in events.chunks]
    assert (told, told[-2:]) == (sorted(told), [3, 3])


def test_a_stream_of_a_chat_begins_with_the_role(engine: Engine) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 3,
        "temperature": 0,
        "ignore_eos": True,
    }
    events = engine.stream(CHAT, body)
    deltas = [chunk["choices"][0]["delta"] for chunk in events.chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta["content"] for delta in deltas) == engine.post(CHAT, body).text
    assert {chunk["object"] for chunk in events.chunks} == {"chat.completion.chunk"}
    assert events.chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_a_chat_has_log_probabilities_as_openai_has_them(engine: Engine) -> None:
    (choice,) = chat(engine, logprobs=True, top_logprobs=2, ignore_eos=True).body["choices"]
    content = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content) == choice["message"]["content"]
    assert [len(entry["top_logprobs"]) for entry in content] == [2] * 8
    assert bytes(content[0]["bytes"]).decode() == content[0]["token"]


@pytest.mark.stand_in_only("a model that knows nothing does not end its calls")
def test_a_tool_that_must_be_called_is_called(caller: Engine) -> None:
    reply = chat(caller, tools=[TOOL], tool_choice="required", max_tokens=100)
    (choice,) = reply.body["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], call["function"]["name"]) == ("tool_calls", "weather")
    assert json.loads(call["function"]["arguments"]).keys() == {"city"}
    named = {"type": "function", "function": {"name": "weather"}}
    (choice,) = chat(caller, tools=[TOOL], tool_choice=named, max_tokens=100).body["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"


def test_min_tokens_keeps_answers_from_ending(engine: Engine) -> None:
    lengths = {
        complete(engine, prompt=f"number {index}", max_tokens=400, min_tokens=390).body["usage"][
            "completion_tokens"
        ]
        for index in range(4)
    }
    assert all(length >= 390 for length in lengths)


# Models.


def test_adapters_are_models_with_a_parent(engine: Engine) -> None:
    base, adapter = engine.get("/v1/models").body["data"]
    assert (base["id"], base["root"], base["parent"], base["max_model_len"]) == (MODEL, MODEL, None, 512)
    assert (adapter["id"], adapter["root"], adapter["parent"]) == ("poet", "adapters/poet", MODEL)
    assert complete(engine, model="poet", ignore_eos=True).text != complete(engine, ignore_eos=True).text


def test_adapters_are_loaded_only_if_the_environment_allows_it(engines: Engines, engine: Engine) -> None:
    load = {"lora_name": "new", "lora_path": "adapters/new"}
    assert engine.post("/v1/load_lora_adapter", load).status == 404
    open_one = engines.start(
        "serve", MODEL, *SCALE, "--enable-lora", VLLM_ALLOW_RUNTIME_LORA_UPDATING="1"
    ).ready()
    reply = open_one.post("/v1/load_lora_adapter", load)
    assert (reply.status, reply.body) == (200, "Success: LoRA adapter 'new' added successfully.")
    assert open_one.post("/v1/load_lora_adapter", load).status == 400
    assert complete(open_one, model="new").status == 200
    assert 'running_lora_adapters=""' in open_one.get("/metrics").body
    assert open_one.post("/v1/unload_lora_adapter", {"lora_name": "new"}).status == 200
    assert open_one.post("/v1/unload_lora_adapter", {"lora_name": "new"}).status == 404
    assert complete(open_one, model="new").status == 404


def test_tokens_of_a_prompt_and_back(engine: Engine) -> None:
    # What no vocabulary has is lost, and there are small ones.
    text = "Tokens of {the} network\n"
    reply = engine.post("/tokenize", {"model": MODEL, "prompt": text})
    assert (reply.body["count"], reply.body["max_model_len"]) == (len(reply.body["tokens"]), 512)
    back = engine.post("/detokenize", {"tokens": reply.body["tokens"]}).body["prompt"]
    # Some begin texts with a token of their own.
    assert back.removeprefix("<s>") == text


def test_served_names_are_the_models(engines: Engines) -> None:
    engine = engines.start("serve", MODEL, *SCALE, "--served-model-name", "a", "b").ready()
    assert [card["id"] for card in engine.get("/v1/models").body["data"]] == ["a", "b"]
    assert complete(engine, model="b").body["model"] == "a"
    assert complete(engine).status == 404
    assert 'model_name="a"' in engine.get("/metrics").body


def test_a_key_is_needed_where_one_is_set(engines: Engines) -> None:
    engine = engines.start("serve", MODEL, *SCALE, VLLM_API_KEY="secret").ready()
    assert engine.get("/v1/models").status == 401
    assert engine.request("GET", "/v1/models", headers={"Authorization": "Bearer secret"}).status == 200


def test_the_prefix_cache_is_emptied_in_development(engines: Engines, engine: Engine) -> None:
    assert engine.post("/reset_prefix_cache", {}).status == 404
    found = engines.start(
        "serve", MODEL, *SCALE, "--enable-prompt-tokens-details", VLLM_SERVER_DEV_MODE="1"
    ).ready()

    def cached() -> int:
        details = complete(found, prompt=[5] * 100).body["usage"]["prompt_tokens_details"]
        return int(details["cached_tokens"])

    whole = 100 // block_size(found) * block_size(found)
    assert [cached(), cached()] == [0, whole]
    assert found.post("/reset_prefix_cache", {}).status == 200
    assert cached() == 0


def test_a_client_that_leaves_ends_its_request(engine: Engine) -> None:
    connection = engine.connect()
    body = {"model": MODEL, "prompt": "hi", "max_tokens": 400, "ignore_eos": True, "stream": True}
    with slow(engine):
        connection.request("POST", COMPLETIONS, json.dumps(body), {"Content-Type": "application/json"})
        connection.getresponse().read(10)
        eventually(lambda: engine.metric("vllm:num_requests_running") == 1)
        connection.close()
        eventually(lambda: engine.metric("vllm:num_requests_running") == 0)
    # Nobody counts it.
    assert engine.metric("vllm:request_success_total", finished_reason="abort") == 0
    assert engine.get("/load").body == {"server_load": 0}
