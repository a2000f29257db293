"""What vLLM refuses in a request, to the letter: each of these was sent to vLLM 0.32, and answered so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine_sim.conformance.pairs import MODEL, start_vllm
from tests.engine_sim.processes import Engine, Engines, Reply

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def engine(shared_engines: Engines) -> Engine:
    return start_vllm(shared_engines, "kv_producer", "--max-model-len=512").ready()


def ask(engine: Engine, path: str, fields: dict[str, Any]) -> Reply:
    given = {"prompt": "hello"} if path == COMPLETIONS else {"messages": HELLO}
    body = {"model": MODEL, "max_tokens": 4, "temperature": 0, **given, **fields}
    return engine.post(path, {key: value for key, value in body.items() if value is not ...})


def assert_refused(reply: Reply, message: str, param: str | None, kind: str = "BadRequestError") -> None:
    assert reply.status == 400, reply.body
    assert reply.body["error"] == {"message": message, "type": kind, "param": param, "code": 400}


def of_type(name: str, what: str, message: str, value: str) -> str:
    """What is said of a field of another type."""
    return f"1 validation error:\n  {{'type': '{what}', 'loc': 'body.{name}', 'msg': '{message}', 'input': '{value}'}}"


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("name", "value", "what", "message", "told"),
    [
        ("max_tokens", 2.5, "int_from_float", "Input should be a valid integer, got a number with a fractional part", "2.5"),
        ("seed", "x", "int_parsing", "Input should be a valid integer, unable to parse string as an integer", "x"),
        ("min_tokens", None, "int_type", "Input should be a valid integer", "None"),
        ("temperature", [], "float_type", "Input should be a valid number", "<list of 0 items>"),
        ("stream", "8", "bool_parsing", "Input should be a valid boolean, unable to interpret input", "8"),
        ("ignore_eos", None, "bool_type", "Input should be a valid boolean", "None"),
        ("stop_token_ids", "8", "list_type", "Input should be a valid list", "8"),
        ("logit_bias", 3, "dict_type", "Input should be a valid dictionary", "3"),
        ("kv_transfer_params", [1], "dict_type", "Input should be a valid dictionary", "<list of 1 items>"),
        ("request_id", 3, "string_type", "Input should be a valid string", "3"),
        ("user", {}, "string_type", "Input should be a valid string", "<dict of 0 items>"),
    ],
)  # fmt: skip
def test_a_field_of_another_type(  # noqa: PLR0913, PLR0917 - a table
    engine: Engine, path: str, name: str, value: object, what: str, message: str, told: str
) -> None:
    reply = ask(engine, path, {name: value})
    assert_refused(reply, of_type(name, what, message, told), f"body.{name}", "Bad Request")


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    "fields",
    [{"max_tokens": "4"}, {"max_tokens": 4.0}, {"n": True}, {"stream": "no"}, {"stream_options": {}}, {"best_of": "x"}],
    ids=str,
)  # fmt: skip
def test_values_that_are_as_good_as_of_the_type(engine: Engine, path: str, fields: dict[str, Any]) -> None:
    assert ask(engine, path, fields).status == 200


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"temperature": 2.1}, "temperature must be in [0, 2], got 2.1. (parameter=temperature, value=2.1)", "temperature"),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)", "top_p"),
        ({"top_k": -2}, "top_k must be 0 (disable), or at least 1, got -2.", None),
        ({"min_p": 1.1}, "min_p must be in [0, 1], got 1.1.", None),
        ({"presence_penalty": 2.1}, "presence_penalty must be in [-2, 2], got 2.1.", None),
        ({"repetition_penalty": 0}, "repetition_penalty must be greater than zero, got 0.0.", None),
        ({"stop": ["a", ""]}, "stop cannot contain an empty string.", None),
        ({"bad_words": [""]}, "bad_words cannot contain an empty string. Got bad_words=['']", None),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", "max_tokens"),
        ({"min_tokens": -1}, "min_tokens must be greater than or equal to 0, got -1.", None),
        (
            {"max_tokens": 513},
            ("max_tokens=513 cannot be greater than max_model_len=512. Please request fewer output tokens. "
            "(parameter=max_tokens, value=513)"),
            "max_tokens",
        ),
        (
            {"cache_salt": "a/b"},
            ("Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL. "
            "(parameter=cache_salt)"),
            "cache_salt",
        ),
        (
            {"logit_bias": {"a": 1}},
            ("logit_bias contains key(s) that cannot be converted to integer token IDs: ['a'] (parameter=logit_bias, "
            "value=['a'])"),
            "logit_bias",
        ),
        (
            {"allowed_token_ids": []},
            "allowed_token_ids is not None and empty! (parameter=allowed_token_ids, value=[])",
            "allowed_token_ids",
        ),
        (
            {"allowed_token_ids": [-1]},
            "allowed_token_ids contains out-of-vocab token id! (parameter=allowed_token_ids, value=[-1])",
            "allowed_token_ids",
        ),
        (
            {"prompt_logprobs": "1"},
            "`prompt_logprobs` must be an integer. (parameter=prompt_logprobs, value=1)",
            "prompt_logprobs",
        ),
        (
            {"kv_transfer_params": {"x": [2**64]}},
            "extra_args integers must be between -2**63 and 2**64 - 1. (parameter=extra_args)",
            "extra_args",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            ("When response_format type is 'json_schema', the 'json_schema' field must be provided. "
            "(parameter=response_format)"),
            "response_format",
        ),
        ({"structured_outputs": {"choice": []}}, "Choice '[]' cannot be an empty list", None),
        ({"structured_outputs": {"json": "{"}}, "Invalid JSON grammar specification.", None),
        ({"structured_outputs": {"grammar": ""}}, "structured_outputs.grammar cannot be an empty string", None),
        (
            {"thinking_token_budget": 5},
            ("thinking_token_budget is set but reasoning_config is not configured. Please set --reasoning-parser and/or "
            "--reasoning-config to use thinking_token_budget."),
            None,
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_can_not_be(
    engine: Engine, path: str, fields: dict[str, Any], message: str, param: str | None
) -> None:
    assert_refused(ask(engine, path, fields), message, param)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("fields", "what"),
    [
        # Contradictions before types, types before the model, lengths before all else.
        ({"stream_options": {"include_usage": True}, "max_tokens": "x"}, "Stream options"),
        ({"max_tokens": "x", "n": "y"}, "2 validation errors"),
        ({"max_tokens": 600, "temperature": -1}, "cannot be greater than max_model_len"),
        ({"temperature": -1, "allowed_token_ids": []}, "temperature must be non-negative"),
    ],
    ids=str,
)
def test_which_of_two_errors_is_told(engine: Engine, path: str, fields: dict[str, Any], what: str) -> None:
    assert what in ask(engine, path, fields).message


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"allowed_token_ids": []}, "allowed_token_ids is not None and empty!"),
        ({"stop_token_ids": [10**7]}, "in stop_token_ids contain out-of-vocab token ids"),
        ({"structured_outputs": {"choice": []}}, "Choice '[]' cannot be an empty list"),
    ],
    ids=str,
)
def test_what_the_engine_refuses_comes_in_a_stream_that_has_begun(
    engine: Engine, path: str, fields: dict[str, Any], message: str
) -> None:
    body = {"model": MODEL, "prompt": "hello", "messages": HELLO, "max_tokens": 4, **fields}
    events = engine.stream(path, body)
    assert (events.status, len(events.chunks), events.done) == (200, 1, True)
    assert message in events.chunks[0]["error"]["message"]
    assert events.chunks[0]["error"]["code"] == 400


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"prompt": [[1], []]}, "The decoder prompt cannot be empty", None),
        ({"prompt": []}, "You must pass at least one prompt", None),
        ({"prompt": [10**7]}, "Token id 10000000 is out of vocabulary", None),
        ({"suffix": "x"}, "suffix is only supported for models with FIM completion rendering", "suffix"),
        (
            {"logprobs": -2},
            "`logprobs` must be a positive value or -1. (parameter=logprobs, value=-2)",
            "logprobs",
        ),
        (
            {"prompt_embeds": "AAAA"},
            "You must set `--enable-prompt-embeds` to input `prompt_embeds`. (parameter=prompt_embeds)",
            "prompt_embeds",
        ),
        ({"use_beam_search": True, "stream": True}, "Streaming is not currently supported with beam search", None),
        (
            {"prompt": [5] * 513},
            ("This model's maximum context length is 512 tokens. However, your prompt contains at least 513 input tokens, "
            "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
            "(parameter=input_tokens, value=513)"),
            "input_tokens",
        ),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_a_completion_that_can_not_be(
    engine: Engine, fields: dict[str, Any], message: str, param: str | None
) -> None:
    assert_refused(ask(engine, COMPLETIONS, fields), message, param)


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"messages": []}, "Cannot apply chat template to an empty conversation. Provide at least one message.", None),
        ({"messages": None}, "'NoneType' object is not iterable", None),
        ({"top_logprobs": -1}, "when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)", "top_logprobs"),
        ({"tools": [TOOL], "tool_choice": "required"}, 'tool_choice="required" requires --tool-call-parser to be set', None),
        (
            {"tools": [TOOL], "tool_choice": TOOL},
            'tool_choice=function "weather" requires --tool-call-parser to be set',
            None,
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function"}},
            ('Invalid value for `function`: `None` in `tool_choice`! Correct usage: `{"type": "function", "function": '
            '{"name": "my_function"}}` (parameter=tool_choice.function)'),
            "tool_choice.function",
        ),
        (
            {"structured_outputs": {"regex": "a"}, "tools": [TOOL], "tool_choice": TOOL},
            "You can only either use constraints for structured outputs or tools, not both.",
            None,
        ),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
            None,
        ),
        (
            {"chat_template": "{{ x }}"},
            ("Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with "
            "untrusted chat template."),
            None,
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
            ("Unsupported chat content part type: 'file'. Supported types: audio_embeds, audio_url, image_embeds, image_pil, "
            "image_url, input_audio, input_image, input_text, output_text, prompt_embeds, refusal, text, thinking, "
            "tool_reference, video_embeds, video_url. (parameter=type, value=file)"),
            "type",
        ),
        (
            {"kv_transfer_params": {"prompt_token_ids": [True]}},
            ("`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers. "
            "(parameter=kv_transfer_params.prompt_token_ids)"),
            "kv_transfer_params.prompt_token_ids",
        ),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_a_chat_that_can_not_be(
    engine: Engine, fields: dict[str, Any], message: str, param: str | None
) -> None:
    assert_refused(ask(engine, CHAT, fields), message, param)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"content": "x"},
        {"role": 5, "content": "x"},
        {"role": "user", "content": None},
        {"role": "user", "content": 5},
        {"role": "user", "content": ["a"]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]},
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]},
        "x",
    ],
    ids=str,
)
def test_a_message_that_can_not_be(engine: Engine, message: object) -> None:
    assert ask(engine, CHAT, {"messages": [message]}).status == 400


@pytest.mark.parametrize(
    "message",
    [
        {"role": "wizard", "content": "x"},
        {"role": "assistant"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": []},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": "x", "more": 1},
    ],
    ids=str,
)
def test_a_message_that_can_be(engine: Engine, message: object) -> None:
    assert ask(engine, CHAT, {"messages": [message]}).status == 200


@pytest.mark.parametrize(
    "tool",
    [{}, {"type": "function", "function": {}}, {"type": "x", "function": {"name": "a"}}, "a",
     {"type": "function", "function": {"name": "a", "parameters": "x"}}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("choice", ["none", "required"])
def test_a_tool_that_can_not_be_ends_no_engine(engine: Engine, tool: object, choice: str) -> None:
    assert ask(engine, CHAT, {"tools": [tool], "tool_choice": choice}).status == 400


@pytest.mark.parametrize(
    ("body", "what", "param"),
    [
        (b"{x", "Expecting property name enclosed in double quotes", "body.1"),
        (b'{"model":"m"', "Expecting ',' delimiter", "body.12"),
        (b"{} {}", "Extra data", "body.3"),
        (b"", "'loc': 'body', 'msg': 'Field required', 'input': 'None'", "body"),
        (b"null", "Field required", "body"),
        (b"[]", "Input should be a valid dictionary or object to extract fields from", "body"),
    ],
)
def test_a_body_that_is_no_object(engine: Engine, body: bytes, what: str, param: str) -> None:
    reply = engine.post(COMPLETIONS, body)
    assert (reply.status, reply.body["error"]["param"]) == (400, param)
    assert what in reply.message


@pytest.mark.parametrize(
    ("field", "status"),
    [("prompt", 400), ("model", 400), ("cache_salt", 400), ("stop", 500), ("bad_words", 500), ("user", 200)],
)
def test_half_a_character_is_refused_by_who_looks_at_it(engine: Engine, field: str, status: int) -> None:
    half = ["\ud800"] if field == "bad_words" else "\ud800"
    assert ask(engine, COMPLETIONS, {field: half}).status == status
