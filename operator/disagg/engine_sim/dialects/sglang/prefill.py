"""Prefill's side of a transfer: a request waits until decode has room for it, then goes over chunk by chunk."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from disagg.engine_sim.blocks import BlockPool, Leases
from disagg.engine_sim.clock import Clock
from disagg.engine_sim.dialects.sglang.places import UNKNOWN, KVTransferError, Place, place_of
from disagg.engine_sim.dialects.sglang.wire import Abort, First, Join, Message, Pages, Port, Wires
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.request import Output, Request, Status
from disagg.engine_sim.scheduler import Pull
from disagg.engine_sim.timing import Link

_log = logging.getLogger("engine_sim.sglang.prefill")


class Keeper(Protocol):
    """What is needed of a scheduler."""

    pool: BlockPool
    leases: Leases


class Counts(Protocol):
    """Told of what becomes of rooms, for metrics."""

    def bootstrapped(self, seconds: float) -> None:
        """Decode has room for a request, so long after it came."""

    def bootstrap_failed(self) -> None:
        """It never had."""

    def transferred(self, *, seconds: float, posted: float, size: int, descriptors: int) -> None:
        """A request is over there."""

    def transfer_failed(self) -> None:
        """It did not get there."""


@dataclass(eq=False)
class Room:
    """A request on its way.

    Attributes:
        request: The request.
        place: Its room, and what went wrong in it.
        start: Hands it to the scheduler.
        came: When it came.
        join: Decode, once it has room.
        sent: Pages that are queued or gone.
        queue: What is to go.
        answer: Prefill's own answer, which waits until everything is over there.
        sender: Sends.
    """

    request: Request
    place: Place
    start: Callable[[Request], None]
    came: float
    sink: Callable[[Output], None]
    join: Join | None = None
    sent: int = 0
    size: int = 0
    queue: asyncio.Queue[Pages] = field(default_factory=asyncio.Queue)
    answer: Output | None = None
    sender: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None


@dataclass(frozen=True)
class RankSettings:
    """What a rank of either side is told.

    Attributes:
        ip: Where the other side reaches it.
        port: As well; 0 for any.
        tp_rank: As messages name it.
        page_size: Tokens of a page.
        token_bytes: Bytes of KV cache of a token.
        timeout: Seconds that a request waits for the other side.
    """

    ip: str
    port: int
    page_size: int
    token_bytes: int
    timeout: float
    tp_rank: int = 0


class PrefillConnector:
    """See `disagg.engine_sim.transfer.connector.Connector`. Of one data-parallel rank."""

    recomputes = False

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it is made of
        self,
        settings: RankSettings,
        keeper: Keeper,
        clock: Clock,
        link: Link,
        counts: Counts,
        faults: Faults,
        on_start: Callable[[Port], None] = lambda _port: None,
    ) -> None:
        self.settings = settings
        self.rooms: dict[int, Room] = {}
        self.port = Port(self._told)
        self._joined: dict[int, Join] = {}
        self._keeper, self._clock, self._link, self._counts, self._faults = (
            keeper,
            clock,
            link,
            counts,
            faults,
        )
        self._on_start = on_start
        self._wires = Wires()

    async def start(self) -> None:
        """Listen to decode, and say that this rank is there."""
        await self.port.start(self.settings.ip, self.settings.port)
        self._on_start(self.port)

    async def stop(self) -> None:
        """Close everything."""
        for room in self.rooms.values():
            if room.sender is not None:
                room.sender.cancel()
        self.port.stop()
        self._wires.close()

    @property
    def bootstrapping(self) -> int:
        """Requests that wait for decode."""
        return sum(room.join is None for room in self.rooms.values())

    @property
    def inflight(self) -> int:
        """Requests that are computed and not yet over there."""
        return sum(room.answer is not None for room in self.rooms.values())

    # A request comes.

    def enter(self, request: Request, start: Callable[[Request], None]) -> None:
        """Take a request, which starts when decode has room for it.

        Args:
            request: The request; its answer is one token, whatever it asks for.
            start: Hands it to the scheduler.
        """
        request.sampling = replace(request.sampling, max_tokens=1, min_tokens=0)
        place = place_of(request)
        if place is None or place.fake:
            start(request)
            return
        if place.room in self.rooms and not place.stuck:
            # The real one's senders share the room: the later one finds it gone.
            self._refuse(request, place, UNKNOWN)
            return
        room = Room(request, place, start, self._clock.now(), request.sink)
        request.sink = lambda output: self._answer(room, output)
        key = -id(room) if place.stuck else place.room
        self.rooms[key] = room
        room.timer = asyncio.get_running_loop().call_later(
            self._clock.wall(self.settings.timeout), lambda: self._timed_out(key, room)
        )
        join = None if place.stuck else self._joined.pop(place.room, None)
        if join is not None:
            self._meet(room, join)

    def leave(self, request: Request) -> bool:
        """A request is not wanted any more; False if it waits for nobody here."""
        for key, room in list(self.rooms.items()):
            if room.request is request:
                waits = room.join is None
                self._drop(key, room)
                if waits:
                    room.sink(Output("", [], finish_reason="abort"))
                return waits
        return False

    # Decode comes.

    def _told(self, message: Message) -> None:
        if isinstance(message, Join):
            room = self.rooms.get(message.room)
            if self._faults.side_channel_dropped:
                return
            if room is None:
                self._joined[message.room] = message
            elif room.join is None:
                self._meet(room, message)
        elif isinstance(message, Abort):
            self._joined.pop(message.room, None)
            room = self.rooms.get(message.room)
            if room is not None:
                self._fail(message.room, room, "Aborted by decode-side abort notification.")

    def _meet(self, room: Room, join: Join) -> None:
        if room.timer is not None:
            room.timer.cancel()
        room.join = join
        room.sent = join.skip
        self._counts.bootstrapped(self._clock.now() - room.came)
        room.sender = asyncio.ensure_future(self._send(room, join))
        room.start(room.request)

    # The prompt is computed.

    def arrived(self, request: Request) -> None:
        """All of it is computed here."""

    def rejected(self, transfer: dict[str, Any]) -> None:
        """Nobody keeps anything for it."""

    async def fetch(self, pull: Pull) -> list[bytes]:
        """Prefill fetches nothing."""
        raise NotImplementedError

    def stepped(self) -> None:
        """Send the pages that have become full."""
        for room in self.rooms.values():
            request = room.request
            if room.join is not None and room.answer is None and request.status is Status.RUNNING:
                # The last page goes with the first token.
                full = min(request.computed, len(request.prompt) - 1) // self.settings.page_size
                if full > room.sent:
                    self._queue(room, full)

    def finished(self, request: Request, output: Output, now: float) -> float | None:
        """Send what is left, with the first token; pages are kept until that is over there."""
        del now
        place = place_of(request)
        room = None if place is None else self.rooms.get(place.room)
        if room is None or room.request is not request or output.finish_reason not in {"stop", "length"}:
            return None
        pages = -(-len(request.prompt) // self.settings.page_size)
        self._queue(room, pages, First(output.tokens[0], request.cached_tokens))
        return math.inf

    def _queue(self, room: Room, until: int, first: First | None = None) -> None:
        content = self._keeper.pool.content
        pages = [content.get(block, b"") for block in room.request.blocks[room.sent : until]]
        room.queue.put_nowait(Pages(room.place.room, room.sent, pages, first))
        room.size += len(pages) * self.settings.page_size * self.settings.token_bytes
        room.sent = max(until, room.sent)

    async def _send(self, room: Room, join: Join) -> None:
        began = 0.0
        try:
            while True:
                pages = await room.queue.get()
                began = began or self._clock.now()
                size = len(pages.content) * self.settings.page_size * self.settings.token_bytes
                await self._clock.sleep_until(self._link.reserve(self._clock.now(), size * self._faults.slow))
                await self._wires.send(join.ip, join.port, pages)
                if pages.first is not None:
                    break
        except (OSError, TimeoutError) as error:
            self._fail(room.place.room, room, f"Failed to send kv chunk to {join.ip}:{join.port}: {error}")
            return
        self._counts.transferred(
            seconds=self._clock.now() - began, posted=0.0, size=room.size, descriptors=room.sent
        )
        self.rooms.pop(room.place.room, None)
        self._keeper.leases.release(room.request.id)
        if room.answer is not None:
            room.sink(room.answer)

    # It ends.

    def _answer(self, room: Room, output: Output) -> None:
        if self.rooms.get(room.place.room) is room and output.finish_reason in {"stop", "length"}:
            # The real one answers when the transfer is through.
            room.answer = output
            return
        if output.finish_reason in {"error", "abort"}:
            # Decode hears nothing of it: it waits until its own timeout.
            self._drop(room.place.room, room)
        room.sink(output)

    def _timed_out(self, key: int, room: Room) -> None:
        waited = self._clock.now() - room.came
        self._fail(
            key, room, f"Request {room.place.room} timed out after {waited:.1f}s in KVPoll.Bootstrapping"
        )

    def _fail(self, key: int, room: Room, reason: str) -> None:
        error = KVTransferError(room.place.room, reason)
        where = f"request rank={self.settings.tp_rank} req.rid={room.request.id!r}"
        phase = "bootstrap" if room.join is None else "transfer"
        room.place.fail(
            f"Prefill {phase} failed for {where} req.bootstrap_room={room.place.room} with exception {error}"
        )
        _log.warning("%s", room.place.failure and room.place.failure[1])
        if room.join is None:
            self._counts.bootstrap_failed()
        else:
            self._counts.transfer_failed()
        running = room.request.status is not Status.FINISHED and room.join is not None
        self._drop(key, room)
        if running:
            # The scheduler has it: its end comes by the way that all ends come.
            room.request.doomed = True
        else:
            room.sink(Output("", [], finish_reason="error"))

    def _drop(self, key: int, room: Room) -> None:
        if self.rooms.get(key) is room:
            del self.rooms[key]
        if room.timer is not None:
            room.timer.cancel()
        if room.sender is not None and room.sender is not asyncio.current_task():
            room.sender.cancel()
        self._keeper.leases.release(room.request.id)

    def _refuse(self, request: Request, place: Place, reason: str) -> None:
        error = KVTransferError(place.room, reason)
        place.fail(
            f"Prefill bootstrap failed for request rank={self.settings.tp_rank} req.rid={request.id!r} "
            f"req.bootstrap_room={place.room} with exception {error}"
        )
        self._counts.bootstrap_failed()
        request.sink(Output("", [], finish_reason="error"))
