"""What vLLM refuses of a request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine_sim.conformance.pairs import MODEL, start_vllm
from tests.engine_sim.conformance.vllm_requests import (
    COMPLETIONS,
    TOOL,
    chat,
    complete,
    tool_caller,
    with_adapter,
)
from tests.engine_sim.processes import Engine, Engines


@pytest.fixture(scope="module")
def engine(shared_engines: Engines) -> Engine:
    return with_adapter(shared_engines)


@pytest.fixture(scope="module")
def caller(shared_engines: Engines) -> Engine:
    return tool_caller(shared_engines)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 1, "min_tokens": 2}, "min_tokens must be less than or equal to max_tokens=1, got 2."),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0."),
        (
            {"stream_options": {"include_usage": True}},
            "Stream options can only be defined when `stream=True`.",
        ),
        (
            {"stream": False, "stream_options": {"include_usage": True}},
            "Stream options can only be defined when `stream=True`.",
        ),
        ({"prompt": [5] * 513}, "maximum context length is 512 tokens"),
        ({"prompt": [5] * 512}, "max_tokens must be at least 1, got 0."),
        ({"max_tokens": 513}, "max_tokens=513 cannot be greater than max_model_len=512."),
        (
            {"prompt": [5] * 500, "max_tokens": 50, "min_tokens": 13},
            "less than or equal to max_tokens=12, got 13.",
        ),
        ({"prompt": ""}, "Either prompt or prompt_embeds must be provided and non-empty."),
        ({"prompt": [10**7]}, "out of vocabulary"),
        ({"logprobs": 21}, "Requested sample logprobs of 21, which is greater than max allowed: 20"),
        ({"prompt_logprobs": 21}, "Requested prompt logprobs of 21, which is greater than max allowed: 20"),
        ({"n": 16385, "temperature": 1}, "n must be at most 16384, got 16385."),
        ({"prompt": {"text": "no"}}, "4 validation errors"),
        ({"prompt": ["text", 5]}, "5 validation errors"),
        ({"prompt": [[5], []]}, "The decoder prompt cannot be empty"),
        ({"kv_transfer_params": "all"}, "Input should be a valid dictionary"),
        ({"n": 0}, "n must be at least 1, got 0."),
        ({"n": 2, "temperature": 0}, "n must be 1 when using greedy sampling, got 2."),
        ({"temperature": -1}, "temperature must be non-negative, got -1"),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0"),
        ({"stream": True, "prompt_logprobs": 1}, "`prompt_logprobs` are not available when `stream=True`."),
        ({"max_tokens": "many"}, "Input should be a valid integer, unable to parse string as an integer"),
    ],
    ids=str,
)
def test_a_completion_is_refused(engine: Engine, fields: dict[str, Any], message: str) -> None:
    reply = complete(engine, **fields)
    assert reply.status == 400
    assert message in reply.message
    assert reply.body["error"].keys() == {"message", "type", "param", "code"}
    assert reply.body["error"]["code"] == 400


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens must be less than or equal to max_tokens=4, got 5."),
        # max_completion_tokens wins over max_tokens.
        (
            {"max_tokens": 9, "max_completion_tokens": 1, "min_tokens": 5},
            "min_tokens must be less than or equal to max_tokens=1, got 5.",
        ),
        (
            {"stream_options": {"include_usage": True}},
            "Stream options can only be defined when `stream=True`.",
        ),
        ({"top_logprobs": 2}, "when using `top_logprobs`, `logprobs` must be set to true."),
        ({"tools": []}, "`tools` must not be an empty array."),
        ({"tool_choice": "required"}, "When using `tool_choice`, `tools` must be set."),
        (
            {"tools": [TOOL]},
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        ),
        ({"tools": [TOOL], "tool_choice": "some"}, "Invalid value for `tool_choice`: some!"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}},
            "does not match any of the specified `tools`",
        ),
        ({"messages": ...}, "'loc': 'body.messages', 'msg': 'Field required'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            " is not a multimodal model",
        ),
    ],
    ids=str,
)
def test_a_chat_is_refused(engine: Engine, fields: dict[str, Any], message: str) -> None:
    reply = chat(engine, **fields)
    assert (reply.status, message in reply.message) == (400, True), reply.body


def test_an_unknown_model_is_not_found(engine: Engine) -> None:
    for reply in (complete(engine, model="other"), chat(engine, model="other")):
        assert reply.status == 404
        assert reply.body["error"] == {
            "message": f"The model `other` does not exist. Valid aliases: {MODEL}.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        }


def test_what_is_no_json_is_refused(engine: Engine) -> None:
    assert engine.post(COMPLETIONS, b"{nonsense").status == 400
    reply = engine.post(COMPLETIONS, b"{}", {"Content-Type": "text/plain"})
    assert (reply.status, reply.message) == (
        400,
        "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed",
    )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/models/" + MODEL, 404),
        ("GET", COMPLETIONS, 405),
        ("PUT", "/health", 405),
        ("POST", "/v1/models", 405),
        ("HEAD", "/health", 405),
        ("HEAD", "/ping", 405),
        ("PUT", "/ping", 405),
    ],
)
def test_errors_of_the_server_are_no_errors_of_the_api(
    engine: Engine, method: str, path: str, status: int
) -> None:
    reply = engine.request(method, path)
    phrase = {404: "Not Found", 405: "Method Not Allowed"}[status]
    assert (reply.status, reply.body) == (status, "" if method == "HEAD" else {"detail": phrase})


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD"])
def test_metrics_are_told_to_every_method(engine: Engine, method: str) -> None:
    assert engine.request(method, "/metrics").status == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_slash_too_many_is_a_redirection(engine: Engine, method: str) -> None:
    reply = engine.request(method, "/health/?a=b")
    assert (reply.status, reply.headers["location"]) == (307, f"http://127.0.0.1:{engine.port}/health?a=b")


# A prefill leg that a router has left as it was.


PREFILL = {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"min_tokens": 5}, 400),
        ({"stream_options": {"include_usage": True}}, 400),
        ({"min_tokens": 1}, 200),
        ({"logprobs": 1}, 200),
        ({"n": 2, "temperature": 1}, 200),
        ({"stop": ["the", " "]}, 200),
    ],
    ids=str,
)
def test_fields_on_the_prefill_leg_of_a_completion(
    engine: Engine, fields: dict[str, Any], status: int
) -> None:
    assert complete(engine, **PREFILL, **fields).status == status


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"tools": [TOOL], "tool_choice": "required"}, 400),
        ({"tools": [TOOL], "tool_choice": "none"}, 200),
        ({"max_completion_tokens": 1}, 200),
        ({"max_completion_tokens": 40}, 200),
        ({"response_format": {"type": "json_object"}}, 200),
        ({"logprobs": True, "top_logprobs": 2}, 200),
    ],
    ids=str,
)
def test_fields_on_the_prefill_leg_of_a_chat(engine: Engine, fields: dict[str, Any], status: int) -> None:
    assert chat(engine, **PREFILL, **fields).status == status


REQUIRED: dict[str, Any] = {"tools": [TOOL], "tool_choice": "required"}
NAMED = {**REQUIRED, "tool_choice": {"type": "function", "function": {"name": "weather"}}}


def test_a_forced_tool_call_that_is_cut(caller: Engine) -> None:
    for forced in (REQUIRED, NAMED):
        (choice,) = chat(caller, **PREFILL, **forced).body["choices"]
        assert (choice["finish_reason"], "tool_calls" in choice["message"]) == ("length", False)


def test_an_answer_that_does_not_fit_beside_its_prompt_is_made_shorter(engine: Engine) -> None:
    reply = complete(engine, prompt=[5] * 500, max_tokens=13, ignore_eos=True)
    assert reply.body["usage"]["completion_tokens"] == 12


@pytest.mark.stand_in_only("is of an older release")
def test_older_releases_fail_where_newer_ones_make_do(engines: Engines) -> None:
    old = start_vllm(engines, "kv_both", "--sim-engine-version=0.18.0", "--max-model-len=512").ready()
    for fields in (REQUIRED, NAMED):
        assert chat(old, **PREFILL, **fields).status == 500
    reply = complete(old, prompt=[5] * 500, max_tokens=13)
    assert (reply.status, "is too large: 13" in reply.message) == (400, True)


def test_max_completion_tokens_overrides_max_tokens_on_the_prefill_leg(engine: Engine) -> None:
    reply = chat(engine, **PREFILL, max_completion_tokens=6, ignore_eos=True)
    assert reply.body["usage"]["completion_tokens"] == 6


def test_log_probabilities_of_a_prompt_are_computed_whoever_has_its_cache(engine: Engine) -> None:
    for fields in ({"prompt_logprobs": 0}, {"echo": True, "logprobs": 0}):
        expected = complete(engine, **fields).body["choices"]
        params = complete(engine, **PREFILL).body["kv_transfer_params"]
        reply = complete(engine, kv_transfer_params=params, **fields)
        assert (reply.status, reply.body["choices"]) == (200, expected)


@pytest.mark.stand_in_only("is of an older release")
def test_before_0_32_log_probabilities_of_pulled_tokens_break(engines: Engines) -> None:
    old = start_vllm(engines, "kv_both", "--sim-engine-version=0.28.0").ready()
    params = complete(old, **PREFILL).body["kv_transfer_params"]
    assert complete(old, kv_transfer_params=params, prompt_logprobs=1).status == 500
    assert complete(old, kv_transfer_params=params, echo=True, logprobs=1).status == 500
