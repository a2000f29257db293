"""Answers as server-sent events. Headers come with the first of them: before, the call can still be refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web

from disagg.engine_sim.api.streams import DONE, EventStream
from disagg.engine_sim.dialects.sglang.desk import why
from disagg.engine_sim.dialects.sglang.places import place_of
from disagg.engine_sim.dialects.sglang.shapes import event
from disagg.engine_sim.request import Output, Request


class Piece(Protocol):
    """Makes a choice of an output."""

    def __call__(self, index: int, request: Request, output: Output, /, *, first: bool) -> dict[str, Any]:
        """The choice; `first` tells whether it is the sequence's first one."""


class Stream:
    """Turns outputs of all sequences of a call into events.

    Attributes:
        requests: The sequences.
        usage: Tokens of one so far, if each event tells them.
    """

    def __init__(self, head: dict[str, Any], piece: Piece, count: int, *, in_one_go: bool) -> None:
        """Nothing has come yet.

        Args:
            head: Fields of each event.
            piece: Makes choices.
            count: Sequences.
            in_one_go: Whether text is told only when it is complete.
        """
        self.requests: list[Request] = []
        self.usage: Callable[[Request], dict[str, Any]] | None = None
        self._head, self._piece, self._left, self._in_one_go = head, piece, count, in_one_go
        self._held: dict[int, Output] = {}
        self._told: set[int] = set()
        self._stream: EventStream | None = None
        self._events: list[bytes] = []
        self._early: list[tuple[int, Output]] | None = []
        self._first = asyncio.Event()
        self._over = asyncio.Event()

    def sink(self, index: int) -> Callable[[Output], None]:
        """What takes the outputs of one sequence."""
        return lambda output: self._take(index, output)

    def begin(self) -> None:
        """The requests are known: tell what has come already."""
        early, self._early = self._early or [], None
        for index, output in early:
            self._take(index, output)

    async def serve(
        self, http: web.Request, closing: Callable[[], dict[str, Any]] | None
    ) -> web.StreamResponse:
        """Stream to the end.

        Args:
            http: The call.
            closing: Tokens of the call, if the last event tells them.
        """
        await self._first.wait()
        stream = EventStream(http, {})
        await stream.open()
        self._stream = stream
        for data in self._events:
            stream.write(data)
        await self._over.wait()
        if closing is not None and self._left == 0:
            stream.write(event({"id": self.requests[0].id, **self._head, "choices": [], "usage": closing()}))
        stream.write(DONE)
        return await stream.close()

    def _take(self, index: int, output: Output) -> None:
        if self._early is not None:
            self._early.append((index, output))
            return
        if self._over.is_set():
            return
        request = self.requests[index]
        place = place_of(request)
        if output.finish_reason == "error" or (
            output.finish_reason == "abort" and place is not None and place.failure is not None
        ):
            self._write(event(why(request).in_stream()))
            self._over.set()
            return
        if self._in_one_go:
            held = self._held.setdefault(index, Output("", []))
            held.text += output.text
            held.tokens = [*held.tokens, *output.tokens]
            if output.finish_reason is None:
                return
            held.finish_reason, held.stop_reason = output.finish_reason, output.stop_reason
            output = held
        choice = self._piece(index, request, output, first=index not in self._told)
        self._told.add(index)
        body = {"id": request.id, **self._head, "choices": [choice]}
        body["usage"] = None if self.usage is None else self.usage(request)
        self._write(event(body))
        if output.finish_reason is not None:
            self._left -= 1
            if self._left == 0:
                self._over.set()

    def _write(self, data: bytes) -> None:
        if self._stream is None:
            self._events.append(data)
        else:
            self._stream.write(data)
        self._first.set()
