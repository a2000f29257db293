"""What a worker of TensorRT-LLM takes, refuses and answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from typing import Any

import pytest

from tests.engine_sim.conformance.trtllm import MODEL, completion, config, start
from tests.engine_sim.processes import DEADLINE, Engine, Engines

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "tell me more"}]}


@pytest.fixture(scope="module")
def engine(shared_engines: Engines) -> Engine:
    content = {"enable_chunked_prefill": False, "max_num_tokens": 100, "max_seq_len": 160}
    return start(shared_engines, content).ready()


@pytest.mark.parametrize(
    "field",
    [
        {"kv_transfer_params": {}},
        {"bootstrap_room": 1},
        {"request_id": "a"},
        {"max_completion_tokens": 3},
        {"return_token_ids": True},
        {"stream_options": {"include_usage": True, "more": 1}, "stream": True},
        {"stream_options": {"include_usage": True}},
        {"disaggregated_params": {"request_type": "context_only", "do_remote_decode": True}},
        {"disaggregated_params": {}},
        {"max_tokens": "many"},
        {"suffix": "end"},
        {"prompt": None},
    ],
)
def test_a_body_that_is_none_of_the_api(engine: Engine, field: dict[str, Any]) -> None:
    reply = engine.post("/v1/completions", completion("hi") | field)
    assert (reply.status, list(reply.body)) == (400, ["error"])
    assert isinstance(reply.body["error"], str)


def test_a_body_must_be_json(engine: Engine) -> None:
    reply = engine.post("/v1/completions", b"{", {})
    assert (reply.status, list(reply.body)) == (400, ["error"])
    form = engine.post(
        "/v1/completions", completion("hi"), {"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert form.status == 400
    assert engine.post("/v1/completions", {"prompt": "hi"}).status == 400


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": [1000] * 101}, "The sum of prompt length (101.0), query length (0) should not exceed"),
        ({"prompt": ""}, "empty"),
        ({"prompt": [10**9]}, "out of vocabulary"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 0}, "best_of"),
        ({"n": 3, "best_of": 2}, "cannot be less than n"),
        ({"use_beam_search": True, "n": 2}, "max_beam_width"),
        ({"response_format": {"type": "json_object"}}, "guided decoding"),
        ({"lora_request": {"lora_name": "a"}}, "not simulated"),
        ({"disaggregated_params": {"request_type": "prefill_only"}}, "Unknown request type"),
    ],
)
def test_what_the_engine_refuses_has_the_form_of_its_errors(
    engine: Engine, fields: dict[str, Any], message: str
) -> None:
    reply = engine.post("/v1/completions", completion("hi") | fields)
    assert message in reply.body["message"]
    assert {**reply.body, "message": ""} == {
        "object": "error",
        "message": "",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }


def test_a_prompt_of_the_whole_context_is_refused(engines: Engines) -> None:
    engine = start(
        engines, {"max_seq_len": 100, "enable_chunked_prefill": True, "max_num_tokens": 50}
    ).ready()
    reply = engine.post("/v1/completions", completion([1000] * 100))
    assert reply.body["message"].startswith("`default_max_tokens` (0) must be greater than 0")
    # With chunks a prompt may be longer than a step; an answer is cut at the end of the context.
    cut = engine.post("/v1/completions", completion([1000] * 80, max_tokens=500, ignore_eos=True))
    assert (cut.finish_reason, cut.body["usage"]["completion_tokens"]) == ("length", 20)


def test_without_a_limit_an_answer_may_fill_the_context(engine: Engine) -> None:
    body = completion([1000] * 10, ignore_eos=True)
    del body["max_tokens"]
    assert engine.post("/v1/completions", body).body["usage"]["completion_tokens"] == 150


def test_any_model_is_answered_by_the_one_there_is(engine: Engine) -> None:
    reply = engine.post("/v1/completions", completion("hi") | {"model": "other"})
    assert (reply.status, reply.body["model"]) == (200, MODEL)


def test_a_completion(engine: Engine) -> None:
    reply = engine.post("/v1/completions", completion("hi", n=2, echo=True, logprobs=2, ignore_eos=True))
    assert reply.status == 200
    assert [choice["index"] for choice in reply.body["choices"]] == [0, 1]
    texts = {choice["text"] for choice in reply.body["choices"]}
    assert len(texts) == 2
    assert all(text.startswith("hi") for text in texts)
    assert len(reply.body["choices"][0]["logprobs"]["tokens"]) == 20
    assert reply.body["choices"][0]["disaggregated_params"] is None
    assert reply.body["usage"]["completion_tokens"] == 40
    assert reply.body["prompt_token_ids"] is None


def test_several_prompts_without_roles(engine: Engine) -> None:
    reply = engine.post("/v1/completions", completion(["one", "two"], n=2))
    assert [choice["index"] for choice in reply.body["choices"]] == [0, 1, 2, 3]


def test_a_chat_and_its_stream_say_the_same(engine: Engine) -> None:
    whole = engine.post("/v1/chat/completions", CHAT | {"max_tokens": 10})
    assert whole.body["object"] == "chat.completion"
    assert whole.text == engine.post("/v1/chat/completions", CHAT | {"max_completion_tokens": 10}).text
    events = engine.stream(
        "/v1/chat/completions", CHAT | {"max_tokens": 10, "stream_options": {"include_usage": True}}
    )
    choices = [choice for chunk in events.chunks for choice in chunk["choices"]]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(choice["delta"]["content"] for choice in choices) == whole.text
    assert events.chunks[-1]["usage"] == whole.body["usage"]
    assert events.done


def test_guided_answers_with_a_backend(engines: Engines) -> None:
    engine = start(engines, {"guided_decoding_backend": "xgrammar"}).ready()
    reply = engine.post("/v1/completions", completion("hi", response_format={"type": "json_object"}))
    assert reply.text.startswith('{"answer"')


def test_what_there_is_not_is_said_as_fastapi_does(engine: Engine) -> None:
    assert engine.get("/v1/nothing").body == {"detail": "Not Found"}
    assert (engine.get("/v1/completions").status, engine.get("/ping").status) == (405, 404)


def test_health_is_blind_to_an_engine_that_hangs(engines: Engines) -> None:
    engine = start(engines, config()).ready()
    assert engine.get("/health_generate").body == "Generation health check OK"
    engine.fault(hang=True)
    assert engine.get("/health").status == 200
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(engine.get, "/health_generate")
        with pytest.raises(NotYetError):
            future.result(1)
        engine.fault(hang=False)
        assert future.result(DEADLINE).status == 200


def test_a_prefill_that_fails(engines: Engines) -> None:
    engine = start(engines, config("context")).ready()
    engine.fault(fail_prefill=1)
    body = completion("hi", disaggregated_params={"request_type": "context_only"})
    assert engine.post("/v1/completions", body).status == 400
    assert engine.post("/v1/completions", body).status == 200


def test_about_the_server(engine: Engine) -> None:
    assert engine.get("/version").body == {"version": "1.2.0"}
    card = engine.get("/v1/models").body["data"][0]
    assert (card["id"], card["owned_by"]) == (MODEL, "tensorrt_llm")
    assert engine.get("/server_info").body["disaggregated_params"]["ctx_dp_size"] == 1
    assert engine.get("/steady_clock_offset").body["receive_ts"] > 0
