"""POST /v1/completions and /v1/chat/completions."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from disagg.engine_sim.api.admission import Sequences, chat_sequences, check_engine, completion_sequences
from disagg.engine_sim.api.answers import Answer, chat_logprobs, prompt_logprobs
from disagg.engine_sim.api.echo import said_of
from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.api.protocol import ChatRequest, Common
from disagg.engine_sim.api.reading import read_chat, read_completion
from disagg.engine_sim.api.serving import Serving, failed, request_id
from disagg.engine_sim.api.streams import DONE, EventStream, Streamer, event, serve
from disagg.engine_sim.api.tools import delta_of, forced_tool, message_of
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.request import Output, Request


async def completions(serving: Serving, http: web.Request) -> web.StreamResponse:
    """A completion, of one prompt or several.

    Raises:
        ApiError: It is refused, or fails.
    """
    call = read_completion(await body(http))
    if call.stream and call.use_beam_search:
        raise ApiError("Streaming is not currently supported with beam search")
    async with _ready(serving, http, call) as engine:
        sequences = completion_sequences(serving, call)
        late = _late(serving, call, sequences)
    name = request_id(http, call, "cmpl")
    head = _head(name, "text_completion", call, serving)
    own = name + "-{prompt}"
    echo = call.echo or False
    if call.stream:

        def choice(index: int, output: Output) -> dict[str, Any] | None:
            if not output.text and not output.tokens and output.finish_reason is None:
                return None
            prompt = None if index in begun else sequences[index][0]
            begun.add(index)
            text, logprobs = said_of(call, prompt or [], output.text, output.tokens, output.logprobs or [])
            return {
                "index": index,
                "text": text,
                "logprobs": logprobs,
                "finish_reason": output.finish_reason,
                "stop_reason": output.stop_reason,
                "prompt_token_ids": prompt if echo or call.return_token_ids else None,
                "token_ids": output.tokens if call.return_token_ids else None,
            }

        def plain(index: int) -> tuple[bytes, bytes]:
            return (
                b'{"index":%d,"text":' % index,
                b',"logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}',
            )

        begun: set[int] = set()
        fancy = echo or call.logprobs is not None or bool(call.return_token_ids)
        streamer = Streamer(len(sequences), head, choice, None if fancy else plain)
        if late is not None:
            return await _broken(serving, http, call, late)
        return await _stream(serving, http, engine, call, own, sequences, streamer)
    answers, requests = await _whole(serving, engine, call, own, sequences)
    said = [
        said_of(call, request.prompt, answer.text, answer.tokens, answer.logprobs)
        for answer, request in zip(answers, requests, strict=True)
    ]
    choices = [
        {
            "index": index,
            "text": said[index][0],
            "logprobs": said[index][1],
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
            "token_ids": answer.tokens if call.return_token_ids else None,
            "prompt_logprobs": prompt_logprobs(request.prompt, call.of_prompt),
            "prompt_token_ids": request.prompt if call.return_token_ids else None,
            **serving.shape.choice,
        }
        for index, (answer, request) in enumerate(zip(answers, requests, strict=True))
    ]
    return _respond(serving, http, head, choices, answers, requests, call)


async def chat_completions(serving: Serving, http: web.Request) -> web.StreamResponse:
    """A chat.

    Raises:
        ApiError: It is refused, or fails.
    """
    call = read_chat(await body(http))
    async with _ready(serving, http, call) as engine:
        sequences = chat_sequences(serving, call)
        late = _late(serving, call, sequences)
    name = request_id(http, call, "chatcmpl")
    tool = forced_tool(call)
    if call.stream:
        head = _head(name, "chat.completion.chunk", call, serving)
        if late is not None:
            return await _broken(serving, http, call, late)
        return await _chat_stream(serving, http, engine, call, name, head, sequences, tool)
    head = _head(name, "chat.completion", call, serving)
    answers, requests = await _whole(serving, engine, call, name, sequences)
    choices = [
        {
            "index": index,
            **_message(serving, answer, tool),
            "logprobs": chat_logprobs(answer.tokens, answer.logprobs) if call.logprobs else None,
            "stop_reason": answer.stop_reason,
            "token_ids": answer.tokens if call.return_token_ids else None,
            **serving.shape.choice,
        }
        for index, answer in enumerate(answers)
    ]
    return _respond(serving, http, head, choices, answers, requests, call)


def _message(serving: Serving, answer: Answer, tool: str | None) -> dict[str, Any]:
    found = message_of(answer, tool, lenient=serving.lenient)
    if not found["message"]["tool_calls"] and not serving.shape.empty_tool_calls:
        del found["message"]["tool_calls"]
    return found


async def body(http: web.Request) -> bytes:
    """The body of a call that must be JSON.

    Raises:
        ApiError: It says that it is something else.
    """
    kind = http.headers.get("Content-Type", "").partition(";")[0].lower()
    if kind != "application/json":
        raise ApiError(
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed",
            kind="Bad Request",
        )
    return await http.read()


@asynccontextmanager
async def _ready(serving: Serving, http: web.Request, call: Common) -> AsyncIterator[Engine]:
    """Check a call; if it is refused, let prefill know that nobody will read its blocks."""
    try:
        serving.models.adapter(call.model)
        yield serving.choose(http)
    except ApiError:
        serving.refuse(call)
        raise


def _late(serving: Serving, call: Common, sequences: Sequences) -> ApiError | None:
    """What the engine says against a call whose stream has begun by then.

    Raises:
        ApiError: It says it, and the call has no stream.
    """
    try:
        check_engine(serving, call, sequences)
        serving.admit(call)
    except ApiError as error:
        if not call.stream:
            raise
        return error
    return None


async def _broken(serving: Serving, http: web.Request, call: Common, error: ApiError) -> web.StreamResponse:
    """A stream that has nothing but an error."""
    serving.refuse(call)
    stream = EventStream(http, _headers(serving, http))
    await stream.open()
    stream.write(event(error.body()) + DONE)
    return await stream.close()


def _head(name: str, kind: str, call: Common, serving: Serving) -> dict[str, Any]:
    return {
        "id": name,
        "object": kind,
        "created": int(time.time()),
        "model": serving.models.shown(call.model),
    }


def _headers(serving: Serving, http: web.Request) -> dict[str, str]:
    if not serving.echo_ids:
        return {}
    return {"X-Request-Id": http.headers.get("X-Request-Id") or uuid.uuid4().hex}


async def _whole(
    serving: Serving,
    engine: Engine,
    call: Common,
    name: str,
    sequences: Sequences,
) -> tuple[list[Answer], list[Request]]:
    answers = [Answer() for _sequence in sequences]
    requests = _submit(serving, engine, call, name, sequences, answers)
    try:
        for answer in answers:
            await answer.done.wait()
            failed([answer])
    except asyncio.CancelledError:
        # vLLM tells prefill so of every answer whose client has gone, also of one that decode has read the blocks for.
        serving.refuse(call)
        raise
    finally:
        # The client has gone, or one sequence has failed.
        for request in requests:
            engine.abort(request.id)
    return answers, requests


async def _stream(  # noqa: PLR0913, PLR0917 - the parts it is made of
    serving: Serving,
    http: web.Request,
    engine: Engine,
    call: Common,
    name: str,
    sequences: Sequences,
    streamer: Streamer,
) -> web.StreamResponse:
    options = call.stream_options
    wants_usage = serving.force_usage or (options is not None and options.include_usage)
    sinks = [streamer.sink(index) for index in range(len(sequences))]
    # Where usage follows, it is the last to say who has answered.
    last = {} if wants_usage else serving.shape.last

    def last_extra(output: Output) -> dict[str, Any]:
        told = output.transfer is not None and serving.stream_transfer
        return last | ({"kv_transfer_params": output.transfer} if told else {})

    streamer.last_extra = last_extra
    requests: list[Request] = []
    if wants_usage and options is not None and options.continuous_usage_stats:
        # Chats say in each event also what is null.
        nulls = dict(serving.shape.usage) if isinstance(call, ChatRequest) else {}
        streamer.usage = lambda index: _known(serving.usage([requests[index]], 1)) | nulls
    requests += _submit(serving, engine, call, name, sequences, sinks)

    def closing() -> bytes:
        if not wants_usage:
            return b""
        usage = _known(serving.usage(requests, call.choices))
        return event(streamer.head | {"choices": [], "usage": usage} | serving.shape.last)

    try:
        return await serve(http, streamer, closing, _headers(serving, http))
    finally:
        for request in requests:
            engine.abort(request.id)


def _known(usage: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in usage.items() if value is not None}


def _submit(  # noqa: PLR0913, PLR0917 - the parts it is made of
    serving: Serving,
    engine: Engine,
    call: Common,
    name: str,
    sequences: Sequences,
    sinks: Sequence[Callable[[Output], None]],
) -> list[Request]:
    try:
        return serving.submit(engine, call, name, sequences, sinks)
    except ApiError:
        serving.refuse(call)
        raise


def _respond(  # noqa: PLR0913, PLR0917 - the parts it is made of
    serving: Serving,
    http: web.Request,
    head: dict[str, Any],
    choices: list[dict[str, Any]],
    answers: Sequence[Answer],
    requests: Sequence[Request],
    call: Common,
) -> web.Response:
    whole = head | {
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": serving.shape.fingerprint,
        "usage": serving.usage(requests, call.choices),
    }
    if head["object"] == "chat.completion":
        whole |= {
            "prompt_logprobs": prompt_logprobs(requests[0].prompt, call.of_prompt),
            "prompt_token_ids": requests[0].prompt if call.return_token_ids else None,
            **serving.shape.chat,
        }
    whole |= {**serving.extra(answers), **serving.shape.answer}  # noqa: S610 - not of Django
    return web.Response(
        body=orjson.dumps(whole), content_type="application/json", headers=_headers(serving, http)
    )


async def _chat_stream(  # noqa: PLR0913, PLR0917 - the parts it is made of
    serving: Serving,
    http: web.Request,
    engine: Engine,
    call: ChatRequest,
    name: str,
    head: dict[str, Any],
    sequences: Sequences,
    tool: str | None,
) -> web.StreamResponse:
    started: set[int] = set()

    def choice(index: int, output: Output) -> dict[str, Any] | None:
        if not output.tokens and output.finish_reason is None:
            return None
        delta: dict[str, Any] = {"content": output.text}
        if tool is not None:
            delta = delta_of(index, output.text, tool, call, started)
        last = {"stop_reason": output.stop_reason} if output.finish_reason else {}
        return {
            "index": index,
            "delta": delta,
            "logprobs": chat_logprobs(output.tokens, output.logprobs) if output.logprobs else None,
            "finish_reason": "tool_calls"
            if tool == "" and output.finish_reason == "stop"
            else output.finish_reason,
            **last,
            "token_ids": output.tokens if call.return_token_ids else None,
        }

    def plain(index: int) -> tuple[bytes, bytes]:
        return (
            b'{"index":%d,"delta":{"content":' % index,
            b'},"logprobs":null,"finish_reason":null,"token_ids":null}',
        )

    fancy = tool is not None or bool(call.logprobs) or bool(call.return_token_ids)
    streamer = Streamer(len(sequences), head, choice, None if fancy else plain)
    options = call.stream_options
    told = bool(options and options.include_usage and options.continuous_usage_stats)

    def usage(prompt: list[int]) -> dict[str, Any]:
        size = len(prompt)
        counts = {"prompt_tokens": size, "total_tokens": size, "completion_tokens": 0}
        return {"usage": {**counts, **serving.shape.usage}} if told else {}

    # With the first output and not before: routers take the time to it.
    streamer.opening = b"".join(
        event(
            head
            | {
                "choices": [
                    {
                        "index": index,
                        "delta": {"role": "assistant", "content": ""},
                        "logprobs": None,
                        "finish_reason": None,
                    }
                ],
                "prompt_token_ids": sequences[index][0] if call.return_token_ids else None,
                **serving.shape.chat,
                **usage(sequences[index][0]),
            }
        )
        for index in range(len(sequences))
    )
    return await _stream(serving, http, engine, call, name, sequences, streamer)
