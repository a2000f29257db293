"""POST /v1/completions and /v1/chat/completions.

Whatever fails is answered with 400, as the real server does for all that its engine raises; a stream that fails is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from disagg.engine_sim.api.answers import Answer
from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.api.streams import DONE, EventStream, event
from disagg.engine_sim.dialects.trtllm import answers
from disagg.engine_sim.dialects.trtllm.protocol import GENERATION, Call, ChatCall, CompletionCall, body, read
from disagg.engine_sim.dialects.trtllm.worker import TRANSFER_FAILED, Worker
from disagg.engine_sim.request import Output, Request
from disagg.engine_sim.text import decode


async def completions(worker: Worker, http: web.Request) -> web.StreamResponse:
    """A completion.

    Raises:
        ApiError: It is refused, or fails.
        ValidationError: The body is none.
    """
    return await _answer(worker, http, read(await body(http), CompletionCall))


async def chat_completions(worker: Worker, http: web.Request) -> web.StreamResponse:
    """A chat.

    Raises:
        ApiError: It is refused, or fails.
        ValidationError: The body is none.
    """
    return await _answer(worker, http, read(await body(http), ChatCall))


async def probe(worker: Worker) -> None:
    """Generate a token, as /health_generate does.

    Raises:
        ApiError: That fails.
    """
    call = ChatCall(
        model=worker.args.name, messages=[{"role": "user", "content": "hi"}], max_tokens=1, temperature=0.0
    )
    await _whole(worker, call)


async def _answer(worker: Worker, http: web.Request, call: Call) -> web.StreamResponse:
    if call.stream:
        return await _stream(worker, http, call)
    return web.Response(body=orjson.dumps(await _whole(worker, call)), content_type="application/json")


async def _whole(worker: Worker, call: Call) -> dict[str, Any]:
    collected: list[Answer] = []

    def sink(_index: int) -> Answer:
        collected.append(Answer())
        return collected[-1]

    requests = worker.requests(call, worker.prompts(call), sink)
    engine = worker.choose(requests)
    try:
        for request in requests:
            engine.submit(request)
        for answer in collected:
            await answer.done.wait()
            if answer.finish_reason == "error":
                raise ApiError(_failure(call))
    finally:
        # The client has gone, or one sequence has failed.
        for request in requests:
            engine.abort(request.id)
    return answers.whole(call, answers.head(call, worker.args.name), collected, requests)


def _failure(call: Call) -> str:
    params = call.disaggregated_params
    if params is not None and params.request_type == GENERATION:
        return TRANSFER_FAILED
    return "Encountered an error in forward function"


class _Events:
    """Writes what sequences say as events."""

    def __init__(self, call: Call, start: dict[str, Any], stream: EventStream) -> None:
        self._call = call
        self._start = start
        self._stream = stream
        self._left = 0
        self._opened: set[int] = set()
        self.requests: list[Request] = []
        self.done = asyncio.Event()
        self.failed = False
        options = call.stream_options
        self._usage = options is not None and bool(options.include_usage)
        self._running_usage = options is not None and bool(options.continuous_usage_stats)

    def sink(self, index: int) -> Callable[[Output], None]:
        """What hears one sequence."""
        self._left += 1
        return lambda output: self._take(index, output)

    def closing(self) -> bytes:
        """Events after the last one."""
        if not self._usage:
            return b""
        return event(self._start | {"choices": [], "usage": answers.usage(self._call, self.requests)})

    def _take(self, index: int, output: Output) -> None:
        if output.finish_reason == "error":
            self.failed = True
            self.done.set()
        if self.failed:
            return
        if index not in self._opened:
            self._open(index, output)
        if output.text or output.finish_reason is not None or output.logprobs:
            self._tell(answers.chunk(self._call, index, output))
        if output.finish_reason is not None:
            self._left -= 1
            if self._left == 0:
                self.done.set()

    def _open(self, index: int, output: Output) -> None:
        self._opened.add(index)
        if isinstance(self._call, ChatCall):
            self._tell(answers.opening(index))
        elif getattr(self._call, "echo", False):
            output.text = decode(self.requests[index].prompt) + output.text

    def _tell(self, choice: dict[str, Any]) -> None:
        usage = None
        if self._running_usage:
            usage = answers.usage(self._call, self.requests)
        self._stream.write(event(self._start | {"choices": [choice], "usage": usage}))


async def _stream(worker: Worker, http: web.Request, call: Call) -> web.StreamResponse:
    stream = EventStream(http, {})
    events = _Events(call, answers.head(call, worker.args.name), stream)
    events.requests = worker.requests(call, worker.prompts(call), events.sink)
    engine = worker.choose(events.requests)
    await stream.open()
    try:
        for request in events.requests:
            engine.submit(request)
        await events.done.wait()
        if events.failed:
            return stream.cut()
        stream.write(events.closing() + DONE)
        return await stream.close()
    finally:
        for request in events.requests:
            engine.abort(request.id)
