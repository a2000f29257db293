"""The same requests to a real vLLM and to a stand-in of its release: status, error, and the form of what is said are the same.

Texts are not, nor numbers, nor what hangs on a vocabulary.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest

from tests.engine_sim.conformance.pairs import MODEL, start_vllm
from tests.engine_sim.processes import Engine, Engines, Reply

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
ARGUMENTS = ("--max-model-len=512", "--enable-lora", "--max-loras=2")
OWN: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "tell me of the cache"},
    CHAT: {"messages": [{"role": "user", "content": "tell me"}]},
}
COMMON = {"model": MODEL, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
VALUES: tuple[Any, ...] = ("x", 1.5, -1, True, None, [], {}, ["x"], {"a": 1}, 10**30)
FIELDS = """
 max_tokens min_tokens n seed temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty priority
 stream stream_options ignore_eos stop stop_token_ids include_stop_str_in_output prompt_logprobs cache_salt response_format
 kv_transfer_params logit_bias user request_id return_token_ids skip_special_tokens bad_words allowed_token_ids model logprobs
 echo truncate_prompt_tokens structured_outputs
""".split()  # noqa: SIM905 - a list of strings is unreadable
FIELDS_OF_CHATS = """
 messages max_completion_tokens top_logprobs tools tool_choice parallel_tool_calls add_generation_prompt chat_template_kwargs
 continue_final_message reasoning_effort documents
""".split()  # noqa: SIM905 - as above
FIELDS_OF_COMPLETIONS = ["prompt", "suffix", "best_of"]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
PREFILL = {"do_remote_decode": True}
TOOLS: tuple[Any, ...] = ([], [TOOL], [{}], None)
PROMPTS: tuple[Any, ...] = ("", [], [[]], ["a", "b"], ["a", [5]], [5, "a"], [[5], []], [5], 5)
BODIES: dict[str, list[dict[str, Any]]] = {
    "lengths": [
        {"max_tokens": 0},
        {"max_tokens": 513},
        {"max_tokens": None},
        {"min_tokens": 5},
        {"max_tokens": 1, "stream": True},
    ],
    "ranges": [
        {"temperature": -0.1},
        {"temperature": 2.1},
        {"top_p": 0},
        {"top_p": 1.01},
        {"top_k": -2},
        {"min_p": 1.1},
        {"presence_penalty": -2.1},
        {"frequency_penalty": 2.1},
        {"repetition_penalty": 0},
        {"seed": 2**63},
        {"prompt_logprobs": -2},
        {"prompt_logprobs": 21},
        {"n": 0},
        {"n": 2},
        {"n": 16385, "temperature": 1},
    ],
    "stops": [{"stop": ""}, {"stop": ["a", ""]}, {"stop": ["a"] * 5}, {"stop_token_ids": [-1]}],
    "samples": [{"n": 2, "temperature": 1}, {"n": 2, "temperature": 1, "stream": True}],
    "streams": [
        {"stream": True},
        {"stream": True, "stream_options": {}},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        {"stream": True, "stream_options": {"include_usage": "x"}},
        {"stream": True, "stream_options": {"other": 1}},
        {"stream": True, "prompt_logprobs": 1},
        {"stream": True, "model": "other"},
        {"stream": True, "return_token_ids": True},
        {"stream_options": {"include_usage": True}},
    ],
    "formats": [
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "other"}},
        {"response_format": {"type": "json_schema"}},
    ],
    "transfers": [
        {"kv_transfer_params": params, **fields}
        for params in ({}, PREFILL, {"do_remote_decode": False}, {"other": 1}, {"do_remote_decode": "yes"})
        for fields in ({}, {"max_tokens": 1}, {"max_tokens": 1, "stream": True})
    ],
}
BODIES_OF_COMPLETIONS: dict[str, list[dict[str, Any]]] = {
    "prompts": [{"prompt": prompt} for prompt in PROMPTS],
    "echo": [
        {"echo": True},
        {"echo": True, "max_tokens": 0},
        {"echo": True, "logprobs": 0},
        {"echo": True, "logprobs": 0, "stream": True},
        {"echo": True, "stream": True},
    ],
    "log probabilities": [
        {"logprobs": 0},
        {"logprobs": 2},
        {"logprobs": 21},
        {"logprobs": -2},
        {"logprobs": 2, "stream": True},
        {"prompt_logprobs": 0},
    ],
    "transfers of several": [
        {"kv_transfer_params": PREFILL, "prompt": ["a", "b"]},
        {"kv_transfer_params": PREFILL, "n": 2, "temperature": 1},
    ],
}
BODIES_OF_CHATS: dict[str, list[dict[str, Any]]] = {
    "messages": [
        {"messages": messages}
        for messages in (
            [{"role": "user"}],
            [{"role": "user", "content": []}],
            [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
            [{"role": "assistant", "content": "x", "tool_calls": []}],
            [{"role": "tool", "content": "x"}],
            [{"role": "other", "content": "x"}],
        )
    ],
    "log probabilities": [
        {"logprobs": True},
        {"logprobs": True, "top_logprobs": 2},
        {"logprobs": True, "top_logprobs": 21},
        {"top_logprobs": 2},
        {"logprobs": True, "stream": True},
    ],
    "tools": [
        {"tools": tools, "tool_choice": choice}
        for tools in TOOLS
        for choice in (
            "none",
            "auto",
            "required",
            "other",
            None,
            {"type": "function", "function": {"name": "no"}},
        )
    ],
}
PATHS = """
 /v1/models /health /ping /metrics /load /version /v1/models/other / /v1 /v1/ /v1/nothing /health/ /v1/completions
 /v1/completions/ /tokenize /v1/load_lora_adapter /reset_prefix_cache /sleep /v1/embeddings /score /server_info
""".split()  # noqa: SIM905 - as above
JSON = (b"{nonsense", b"", b"null", b"[]", b"5", b'"x"', b"{}", b'{"a":1}{', b"\xff\xfe")
TOKENIZE: list[dict[str, Any]] = [
    {"prompt": "abc"},
    {"prompt": "abc", "model": "other"},
    {"prompt": 5},
    {"prompt": "abc", "return_token_strs": True},
    OWN[CHAT],
    {"messages": "x"},
    {"messages": []},
    {},
]
DETOKENIZE: list[dict[str, Any]] = [
    {"tokens": [70, 71]},
    {"tokens": []},
    {"tokens": "x"},
    {"tokens": [-1]},
    {"tokens": [2**32]},
    {"tokens": ["a"]},
    {},
]


@pytest.fixture(scope="module")
def both(
    shared_engines: Engines, tmp_path_factory: pytest.TempPathFactory
) -> Iterable[tuple[Engine, Engine]]:
    real = start_vllm(shared_engines, "kv_producer", *ARGUMENTS)
    version = "--sim-engine-version=0.32.0"
    stand_ins = Engines(tmp_path_factory.mktemp("stand-in"))
    try:
        ours = start_vllm(stand_ins, "kv_producer", *ARGUMENTS, version, "--dtype=float32", "--block-size=32")
        yield real.ready(), ours.ready()
    finally:
        stand_ins.stop()


def cases() -> Iterable[Any]:
    own = {COMPLETIONS: BODIES_OF_COMPLETIONS, CHAT: BODIES_OF_CHATS}
    more = {COMPLETIONS: FIELDS_OF_COMPLETIONS, CHAT: FIELDS_OF_CHATS}
    # Numbers of errors that a union of types of messages has are not simulated.
    values = {"messages": [value for value in VALUES if value != ["x"]]}
    for path in (COMPLETIONS, CHAT):
        for name, bodies in [*BODIES.items(), *own[path].items()]:
            yield pytest.param(path, bodies, id=f"{path}-{name}")
        for field in [*FIELDS, *more[path]]:
            yield pytest.param(
                path, [{field: value} for value in values.get(field, VALUES)], id=f"{path}-{field}"
            )


@pytest.mark.parametrize(("path", "bodies"), list(cases()))
def test_a_request_is_answered_the_same(
    both: tuple[Engine, Engine], path: str, bodies: list[dict[str, Any]]
) -> None:
    found = [[form(engine.post(path, COMMON | OWN[path] | body)) for engine in both] for body in bodies]
    assert differences(bodies, found) == []


@pytest.mark.parametrize(("path", "bodies"), [("/tokenize", TOKENIZE), ("/detokenize", DETOKENIZE)])
def test_tokens_are_told_the_same(
    both: tuple[Engine, Engine], path: str, bodies: list[dict[str, Any]]
) -> None:
    found = [[form(engine.post(path, body)) for engine in both] for body in bodies]
    assert differences(bodies, found) == []


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_what_is_no_request_is_refused_the_same(both: tuple[Engine, Engine], path: str) -> None:
    found = [[form(engine.post(path, data)) for engine in both] for data in JSON]
    found.append([form(engine.post(path, b"{}", {"Content-Type": "text/plain"})) for engine in both])
    assert differences([*JSON, "text/plain"], found) == []


@pytest.mark.parametrize("path", PATHS)
def test_a_path_knows_the_same_methods(both: tuple[Engine, Engine], path: str) -> None:
    methods = ("GET", "POST", "PUT", "HEAD", "OPTIONS")
    bodies: dict[str, Any] = {"POST": {}}
    found = [
        [form(engine.request(method, path, bodies.get(method))) for engine in both] for method in methods
    ]
    assert differences(methods, found) == []


def differences(asked: Iterable[Any], found: list[list[Any]]) -> list[str]:
    """Requests with what the real one and the stand-in have answered, where that differs."""
    return [
        f"{question}:\n  real {real}\n  ours {ours}"
        for question, (real, ours) in zip(asked, found, strict=True)
        if real != ours
    ]


def form(answer: Reply) -> Any:
    """What of an answer must be the same."""
    if not isinstance(answer.body, str):
        return answer.status, _form(answer.body)
    events = [json.loads(event) for event in re.findall(r"(?m)^data: (\{.*)$", answer.body)]
    if events:
        # Each kind of event once, in order.
        return answer.status, list(dict.fromkeys(json.dumps(_form(event)) for event in events))
    return answer.status, "" if answer.status == 200 else answer.body


def _form(value: Any, key: str = "") -> Any:
    if key in {"top_logprobs", "prompt_logprobs", "permission"} and value:
        # Of as many tokens as there are.
        return key
    if key == "message" and isinstance(value, str):
        # As long as the vocabulary and the prompt are.
        return re.sub(r"\b(98|66128)\b", "vocabulary", re.sub(r"\d+ input tokens", "input tokens", value))
    if isinstance(value, dict):
        return {name: _form(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(_form(each), sort_keys=True) for each in value})
    if key in {"type", "param", "code", "finish_reason", "object", "role", "detail"} or value is None:
        return value
    return type(value).__name__
