"""Answers as server-sent events.

Events are written to the connection from the engine's step, without waking a task: with many streams at once that is
most of the cost of a token. What does not change between events of a stream is formatted once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from disagg.engine_sim.api.errors import dead, internal_error
from disagg.engine_sim.engine import DEAD
from disagg.engine_sim.request import Output

DONE = b"data: [DONE]\n\n"
_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_MAX_BUFFERED = 64 << 20
"""Bytes that a client may leave unread before its connection is closed."""


def event(body: Any) -> bytes:  # noqa: ANN401 - JSON, or whatever is given
    """One event."""
    return b"data: " + orjson.dumps(body) + b"\n\n"


class EventStream:
    """The connection that a stream goes to."""

    def __init__(self, http: web.Request, headers: dict[str, str]) -> None:
        self._http = http
        self._response = web.StreamResponse(headers=_HEADERS | headers)
        self._transport: asyncio.Transport | None = None
        self._chunked = True

    async def open(self) -> None:
        """Send the headers, at once as the real one does: routers take the time to them."""
        self._chunked = self._http.version.minor > 0 or self._http.version.major > 1
        if self._chunked:
            self._response.enable_chunked_encoding()
        await self._response.prepare(self._http)
        transport = self._http.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Send events; nothing if the client has gone."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if transport.get_write_buffer_size() > _MAX_BUFFERED:
            transport.abort()

    async def close(self) -> web.StreamResponse:
        """End the stream."""
        await self._response.write_eof()
        return self._response

    def cut(self) -> web.StreamResponse:
        """End the connection in the middle of the stream, as a server does whose generator has failed."""
        if self._transport is not None:
            self._transport.abort()
        return self._response


class Streamer:
    """Turns outputs of all sequences of a call into events.

    Attributes:
        done: Set when all sequences are over.
        failed: Whether one of them ended with an error.
        opening: Events that come with the first output.
    """

    def __init__(
        self,
        count: int,
        head: dict[str, Any],
        choice: Callable[[int, Output], dict[str, Any] | None],
        plain: Callable[[int], tuple[bytes, bytes]] | None,
    ) -> None:
        """Not yet connected: outputs that come before are kept.

        Args:
            count: Sequences.
            head: Fields of each event.
            choice: The choice of an output, and None if it is not worth an event.
            plain: What stands before and after the text in the choice of a sequence's output that has nothing but text.
        """
        self._left = count
        self.head = head
        self._choice = choice
        self._stream: EventStream | None = None
        self._early: list[bytes] = []
        self._plain: list[tuple[bytes, bytes]] | None = None
        if plain is not None:
            start = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
            self._plain = [
                (start + before, after + b"]}\n\n")
                for before, after in (plain(index) for index in range(count))
            ]
        self.done = asyncio.Event()
        self.failed = False
        self.opening = b""
        self.last_extra: Callable[[Output], dict[str, Any]] = lambda _output: {}
        self.usage: Callable[[int], dict[str, Any]] | None = None

    def sink(self, index: int) -> Callable[[Output], None]:
        """What takes the outputs of one sequence."""
        return lambda output: self._take(index, output)

    def connect(self, stream: EventStream) -> None:
        """Send what has come already, and everything from now on."""
        self._stream = stream
        for data in self._early:
            stream.write(data)
        self._early.clear()

    def _take(self, index: int, output: Output) -> None:
        if self.failed:
            return
        if self.opening:
            self._send(self.opening)
            self.opening = b""
        if output.finish_reason in {"error", DEAD}:
            self.failed = True
            self._send(event((dead() if output.finish_reason == DEAD else internal_error()).body()))
            self.done.set()
            return
        if self._plain is not None and output.finish_reason is None and self.usage is None:
            if output.text:
                before, after = self._plain[index]
                self._send(before + orjson.dumps(output.text) + after)
            return
        self._tell(index, output)
        if output.finish_reason is not None:
            self._left -= 1
            if self._left == 0:
                self.done.set()

    def _tell(self, index: int, output: Output) -> None:
        """Send the event of an output that has more than text."""
        choice = self._choice(index, output)
        if choice is None:
            return
        body = self.head | {"choices": [choice]}
        if self.usage is not None:
            body["usage"] = self.usage(index)
        if output.finish_reason is not None:
            body |= self.last_extra(output)
        self._send(event(body))

    def _send(self, data: bytes) -> None:
        if self._stream is None:
            self._early.append(data)
        else:
            self._stream.write(data)


async def serve(
    http: web.Request,
    streamer: Streamer,
    closing: Callable[[], bytes],
    headers: dict[str, str],
) -> web.StreamResponse:
    """Stream a call to its end.

    Args:
        http: The call.
        streamer: Its events.
        closing: Events after the last one.
        headers: Of the answer.
    """
    stream = EventStream(http, headers)
    await stream.open()
    streamer.connect(stream)
    await streamer.done.wait()
    stream.write(DONE if streamer.failed else closing() + DONE)
    return await stream.close()
