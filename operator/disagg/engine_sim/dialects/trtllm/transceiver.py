"""The cache transceiver: a generation worker pulls from the context worker that the opaque state names."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from disagg.engine_sim.clock import Clock
from disagg.engine_sim.dialects.trtllm.opaque import CacheState, OpaqueState, decode
from disagg.engine_sim.dialects.trtllm.protocol import CONTEXT, GENERATION
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.request import Output, Request
from disagg.engine_sim.scheduler import Pull, Scheduler
from disagg.engine_sim.text import Voice, encode, voice
from disagg.engine_sim.timing import Link
from disagg.engine_sim.transfer.connector import TransferError, TransferObserver
from disagg.engine_sim.transfer.data import DataClient, DataServer

_log = logging.getLogger("engine_sim.trtllm")


@dataclass(frozen=True)
class TransceiverSettings:
    """How the transceiver works.

    Attributes:
        cache: Form of this side's KV.
        backend: What moves KV, and over what.
        timeout: Seconds that the other side has; None for no limit.
        data_port: Where blocks are read; 0 for any.
        token_bytes: Bytes of KV of one token.
        rank: Of attention data parallelism.
    """

    cache: CacheState
    backend: str
    timeout: float | None
    data_port: int
    token_bytes: float
    rank: int = 0


def own_address() -> str:
    """The address of this host that others may know; UCX finds it by its interfaces."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    return str(found[0][4][0])


class CacheTransceiver:
    """See `disagg.engine_sim.transfer.connector.Connector`."""

    recomputes = False
    """A request whose KV does not come fails."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it is made of
        self,
        settings: TransceiverSettings,
        scheduler: Scheduler,
        clock: Clock,
        link: Link,
        observer: TransferObserver,
        faults: Faults,
    ) -> None:
        self.settings = settings
        self._scheduler = scheduler
        self._clock = clock
        self._link = link
        self._observer = observer
        self._faults = faults
        self._data = DataServer(self.read, self.notified)
        self._host = own_address()
        self._peers: dict[tuple[str, int], DataClient] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the data port."""
        await self._data.start("::" if ":" in self._host else "0.0.0.0", self.settings.data_port)

    async def stop(self) -> None:
        """Close it, and connections to others."""
        for task in self._tasks:
            task.cancel()
        for peer in self._peers.values():
            peer.close()
        await self._data.stop()

    # The generation side.

    def arrived(self, request: Request) -> None:
        """Whether its KV is to be pulled."""
        request.remote = (request.transfer or {}).get("request_type") == GENERATION

    def rejected(self, transfer: dict[str, Any]) -> None:
        """Nobody is told: KV stays at the context worker until its time is over."""

    async def fetch(self, pull: Pull) -> list[bytes]:
        """Find the context worker, wait for the wire, read, and let it free what was read."""
        started = self._clock.now()
        request = pull.request
        try:
            content = await self._pull(pull, started)
        except TransferError as error:
            self._observer.transfer_failed()
            _log.error("Error in kv cache transfer for request %s: %s", request.id, error)
            raise
        self._observer.transferred(
            seconds=self._clock.now() - started,
            posted=0.0,
            size=int(self._bytes(len(pull.blocks))),
            descriptors=len(pull.blocks),
        )
        self._resume(pull, content)
        return content

    async def _pull(self, pull: Pull, started: float) -> list[bytes]:
        transfer = pull.request.transfer or {}
        state = decode(transfer.get("encoded_opaque_state"))
        if state.backend != self.settings.backend:
            raise TransferError(f"KV moves by {state.backend} there and by {self.settings.backend} here")
        different = self.settings.cache.mismatch(state.cache)
        if different is not None:
            raise TransferError(f"the cache states are not compatible: {different}")
        peer = await self._peer(state)
        through = self._link.reserve(self._clock.now(), self._bytes(len(pull.blocks)) * self._faults.slow)
        until = started + (self.settings.timeout or math.inf)
        await self._clock.sleep_until(min(through, until))
        if through > until:
            raise TransferError(f"no end of the transfer after {self.settings.timeout} s")
        have = self._have(pull)
        wanted = range(have, have + len(pull.blocks))
        name = str(transfer.get("ctx_request_id"))
        try:
            content = await peer.read(wanted, name)
        except TransferError as error:
            if error.__cause__ is not None:
                # The connection is gone. It stays if only the request is not known: others use it.
                self._forget(state)
            raise
        cancelled = pull.request.finish_reason is not None
        if not (cancelled and self._faults.cancel_leaks) and not peer.notify(name):
            self._observer.notification_failed()
        return content

    def _have(self, pull: Pull) -> int:
        """Blocks that are here already. Those of the request are gone if it was cancelled since."""
        return pull.skip // self.settings.cache.tokens_per_block

    def _bytes(self, blocks: int) -> float:
        return blocks * self.settings.token_bytes * self.settings.cache.tokens_per_block

    async def _peer(self, state: OpaqueState) -> DataClient:
        where = f"{state.host}:{state.port}"
        if where in self._faults.stale_peers or "*" in self._faults.stale_peers:
            raise TransferError(f"{where} does not answer")
        found = self._peers.get((state.host, state.port))
        if found is None:
            found = await DataClient.connect(state.host, state.port)
            self._peers[state.host, state.port] = found
        return found

    def _forget(self, state: OpaqueState) -> None:
        peer = self._peers.pop((state.host, state.port), None)
        if peer is not None:
            peer.close()

    def _resume(self, pull: Pull, content: list[bytes]) -> None:
        """Let the voice say the tokens that the context worker has said already."""
        request, pool = pull.request, self._scheduler.pool
        if request.finish_reason is not None:
            return
        here = request.blocks[: self._have(pull)]
        whole = [pool.content.get(block, b"") for block in here] + content
        speaker = voice(whole, request.sampling.key, mean_length=self._scheduler.limits.mean_length)
        if request.sampling.script is not None:
            speaker.script = encode(request.sampling.script(speaker.state))
        for token in request.output:
            _say(speaker, token)
        request.voice = speaker

    # The context side.

    def finished(self, request: Request, output: Output, now: float) -> float | None:
        """Keep what a context has computed, and say where it is."""
        transfer = request.transfer or {}
        kind = transfer.get("request_type")
        if kind == GENERATION and request.remote and not request.pulled:
            self._given_up(transfer, output)
        if kind != CONTEXT or output.finish_reason not in {"length", "stop"} or not request.blocks:
            return None
        where = OpaqueState(self._host, self._data.port, self.settings.backend, self.settings.cache)
        output.transfer = {"encoded_opaque_state": where.encode(), "ctx_dp_rank": self.settings.rank}
        if output.finish_reason == "stop":
            # The answer is whole: nobody will come for it.
            return None
        return now + (self.settings.timeout or math.inf)

    def _given_up(self, transfer: dict[str, Any], output: Output) -> None:
        if output.finish_reason == "error" or self._faults.cancel_leaks:
            return
        task = asyncio.create_task(self._release(transfer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, transfer: dict[str, Any]) -> None:
        try:
            peer = await self._peer(decode(transfer.get("encoded_opaque_state")))
        except TransferError:
            return
        peer.notify(str(transfer.get("ctx_request_id")))

    def read(self, blocks: Sequence[int], request_id: str) -> list[bytes] | None:
        """What a generation worker gets that asks for the KV of a request, by position; None if there is none."""
        lease = self._scheduler.leases.held.get(request_id)
        if lease is None or self._faults.side_channel_dropped:
            return None
        if any(not 0 <= position < len(lease.blocks) for position in blocks):
            return None
        return [self._scheduler.pool.content.get(lease.blocks[position], b"") for position in blocks]

    def notified(self, message: str) -> None:
        """A generation worker has what it needs, or needs it no longer."""
        if not self._scheduler.leases.release(message):
            self._observer.late()


def _say(speaker: Voice, token: int) -> None:
    """Say a token that was said elsewhere; another one than the voice would say turns all that follows."""
    if speaker.next(may_end=False) != token:
        speaker.state = hashlib.blake2b(speaker.state + token.to_bytes(4, "big"), digest_size=16).digest()
