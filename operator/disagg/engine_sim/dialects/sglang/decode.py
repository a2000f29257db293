"""Decode's side of a transfer: finds the prefill, tells it where the pages go, waits for them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

from disagg.engine_sim.clock import Clock
from disagg.engine_sim.dialects.sglang.peers import Peers
from disagg.engine_sim.dialects.sglang.places import KVTransferError, Place, place_of
from disagg.engine_sim.dialects.sglang.prefill import Counts, RankSettings
from disagg.engine_sim.dialects.sglang.relay import relayed
from disagg.engine_sim.dialects.sglang.wire import Abort, Failed, First, Join, Message, Pages, Port, Wires
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.request import Output, Request
from disagg.engine_sim.scheduler import Pull, Scheduler

_log = logging.getLogger("engine_sim.sglang.decode")


@dataclass(eq=False)
class Landing:
    """Where a request's pages come to.

    Attributes:
        place: Its room.
        pages: What has come, by number.
        over: Done with the first token, or with why there is none.
        peer: Where prefill's rank listens, once that is known.
    """

    place: Place
    over: asyncio.Future[First]
    pages: dict[int, bytes] = field(default_factory=dict)
    peer: tuple[str, int] | None = None


class DecodeConnector:
    """See `disagg.engine_sim.transfer.connector.Connector`. Of one data-parallel rank."""

    recomputes = False

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it is made of
        self,
        settings: RankSettings,
        scheduler: Scheduler,
        clock: Clock,
        peers: Peers,
        counts: Counts,
        faults: Faults,
    ) -> None:
        self.settings = settings
        self.landings: dict[int, Landing] = {}
        self._rooms: dict[int, Request] = {}
        self._scheduler, self._clock, self._peers, self._counts, self._faults = (
            scheduler, clock, peers, counts, faults,
        )  # fmt: skip
        self._port = Port(self._told)
        self._wires = Wires()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen to prefill, and look after those that are known."""
        await self._port.start(self.settings.ip, self.settings.port)
        self._peers.watch(self._lost)

    async def stop(self) -> None:
        """Close everything."""
        for task in self._tasks:
            task.cancel()
        self._port.stop()
        self._wires.close()
        await self._peers.stop()

    def arrived(self, request: Request) -> None:
        """Nothing is ever computed here. A room that is taken is the end: the real scheduler dies of it."""
        place = place_of(request)
        request.remote = True
        if place is None or place.fake or place.stuck:
            return
        if place.room in self._rooms:
            _log.critical(
                "Scheduler hit an exception: KeyError: %s (two requests with one bootstrap room)", place.room
            )
            self._faults.die()
            return
        self._rooms[place.room] = request

    def rejected(self, transfer: dict[str, Any]) -> None:
        """Nobody keeps anything for it."""

    async def fetch(self, pull: Pull) -> list[bytes]:
        """Wait until prefill has written the pages."""
        request = pull.request
        place = place_of(request)
        if place is None or place.fake:
            # Whatever is in memory, as in the real one.
            return [b"\0" * 32 for _ in pull.blocks]
        landing = Landing(place, asyncio.get_running_loop().create_future())
        self.landings[place.room] = landing
        skip = pull.skip // self.settings.page_size
        began = self._clock.now()
        phase = "handshake"
        try:
            if place.stuck:
                await self._clock.sleep_until(began + self.settings.timeout)
                raise self._timeout(place, began)
            peer = await self._or_over(landing, self._peers.rank(place))
            self._counts.bootstrapped(self._clock.now() - began)
            phase, began = "transfer", self._clock.now()
            if not self._peers.broken(place):
                landing.peer = peer
                await self._join(Join(place.room, self.settings.ip, self._port.number, skip), peer)
            first = await self._wait(landing, began)
        except KVTransferError as error:
            if request.finish_reason is not None:
                # It has ended meanwhile: whatever this gives, nobody takes it.
                return []
            self._count_failure(phase)
            if landing.peer is not None:
                self._spawn(self._abort(place.room, landing.peer))
            place.fail(
                f"Decode {phase} failed for request rank={self.settings.tp_rank} decode_req.req.rid={request.id!r} "
                f"decode_req.req.bootstrap_room={place.room} with exception {error}"
            )
            raise
        finally:
            self.landings.pop(place.room, None)
        pages = range(skip, skip + len(pull.blocks))
        content = [landing.pages.get(page, b"\0") for page in pages]
        self._counts.transferred(
            seconds=self._clock.now() - began,
            posted=0.0,
            size=len(content) * self.settings.page_size * self.settings.token_bytes,
            descriptors=len(content),
        )
        request.voice = relayed(self._scheduler, pull, content, first.token)
        request.cached_tokens = first.cached
        return content

    def finished(self, request: Request, output: Output, now: float) -> float | None:
        """It is over. If prefill still works for it, it is told."""
        del now
        place = place_of(request)
        if place is None:
            return None
        if self._rooms.get(place.room) is request:
            del self._rooms[place.room]
        landing = self.landings.get(place.room)
        if landing is None or landing.place is not place:
            return None
        if output.finish_reason == "abort" and not landing.over.done():
            if landing.peer is not None:
                self._spawn(self._abort(place.room, landing.peer))
            # What comes of the wait has no request any more.
            landing.over.set_result(First(0, 0))
        return None

    async def _or_over(self, landing: Landing, look: Any) -> tuple[str, int]:  # noqa: ANN401 - a coroutine
        """Look for the peer, unless the request is over before."""
        search: asyncio.Task[tuple[str, int]] = asyncio.ensure_future(look)
        both: set[asyncio.Future[Any]] = {search, landing.over}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if search.done():
            return search.result()
        search.cancel()
        landing.over.result()
        raise KVTransferError(landing.place.room, "Aborted by AbortReq.")

    async def _join(self, join: Join, peer: tuple[str, int]) -> None:
        try:
            await self._wires.send(*peer, join)
        except (OSError, TimeoutError) as error:
            # The real one's queue of messages takes it all the same: it waits for pages that don't come.
            _log.error("prefill at %s:%s does not listen: %s", *peer, error)

    async def _wait(self, landing: Landing, began: float) -> First:
        try:
            async with asyncio.timeout(self._clock.wall(self.settings.timeout)):
                return await asyncio.shield(landing.over)
        except TimeoutError:
            raise self._timeout(landing.place, began) from None

    def _timeout(self, place: Place, began: float) -> KVTransferError:
        waited = self._clock.now() - began
        return KVTransferError(
            place.room, f"Request {place.room} timed out after {waited:.1f}s in KVPoll.WaitingForInput"
        )

    def _count_failure(self, phase: str) -> None:
        if phase == "transfer":
            self._counts.transfer_failed()
        else:
            self._counts.bootstrap_failed()

    def _told(self, message: Message) -> None:
        if isinstance(message, Pages):
            landing = self.landings.get(message.room)
            if landing is None or landing.over.done():
                # Of a request that has gone.
                return
            landing.pages.update(enumerate(message.content, message.start))
            if message.first is not None:
                landing.over.set_result(message.first)
        elif isinstance(message, Failed):
            self._fail(message.room, message.reason)

    def _lost(self, address: str) -> None:
        """A prefill is gone: so is everything that was to come from it."""
        affected = [landing for landing in self.landings.values() if landing.place.address == address]
        for landing in affected:
            self._fail(
                landing.place.room, f"Lost connection with prefill instance (bootstrap_addr: {address})"
            )
        _log.error(
            "Lost connection with prefill instance (bootstrap_addr: %s), %s requests affected",
            address,
            len(affected),
        )

    def _fail(self, room: int, reason: str) -> None:
        landing = self.landings.get(room)
        if landing is not None and not landing.over.done():
            landing.over.set_exception(KVTransferError(room, reason))

    async def _abort(self, room: int, peer: tuple[str, int]) -> None:
        try:
            await self._wires.send(*peer, Abort(room))
        except (OSError, TimeoutError) as error:
            _log.debug("Failed to send abort notification for room %s: %s", room, error)

    def _spawn(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
