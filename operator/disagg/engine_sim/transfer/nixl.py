"""vLLM's NixlConnector in pull mode, from the answer of prefill to the blocks on decode."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from disagg.engine_sim.blocks import BlockPool, Leases
from disagg.engine_sim.clock import Clock
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.request import Output, Request
from disagg.engine_sim.scheduler import Pull
from disagg.engine_sim.timing import Link
from disagg.engine_sim.transfer.connector import FatalError, TransferError, TransferObserver
from disagg.engine_sim.transfer.data import DataClient, DataServer
from disagg.engine_sim.transfer.handshake import AgentMetadata, HandshakeError, Local, Payload, check
from disagg.engine_sim.transfer.params import blocks_of, has_source, required
from disagg.engine_sim.transfer.side_channel import SideChannel, ask

_log = logging.getLogger("engine_sim.nixl")

_NOT_ITSELF = (0, 20)
"""Release from which an engine does not read its own blocks as a peer's."""
_COMPUTES_PROMPTS = (0, 32)
"""Release from which decode computes a prompt of whose tokens log probabilities are wanted, and pulls nothing."""


class Keeper(Protocol):
    """What the connector needs of a scheduler."""

    pool: BlockPool
    leases: Leases


@dataclass(frozen=True)
class NixlSettings:
    """How the connector works, from command line and environment.

    Attributes:
        engine_id: Of this start, with the rank's suffix if there are several.
        host: Side channel, bound and advertised.
        port: As well.
        data_port: Where blocks are read; 0 for any.
        lease: Seconds that blocks wait for a peer.
        recompute: What becomes of a request whose KV can't be had.
        token_bytes: Bytes of KV of one token.
        release: Of the engine, as numbers.
    """

    engine_id: str
    host: str
    port: int
    data_port: int
    lease: float
    recompute: bool
    token_bytes: int
    release: tuple[int, int]

    @property
    def names_requests(self) -> bool:
        """Whether prefill says under which id it computed a request; before, both sides had to use the same."""
        return self.release >= (0, 13)


@dataclass
class _Peer:
    metadata: AgentMetadata
    client: DataClient


class NixlConnector:
    """See `disagg.engine_sim.transfer.connector.Connector`."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it is made of
        self,
        settings: NixlSettings,
        local: Local,
        keeper: Keeper,
        clock: Clock,
        link: Link,
        observer: TransferObserver,
        faults: Faults,
    ) -> None:
        self.settings = settings
        self._local = local
        self._keeper = keeper
        self._clock = clock
        self._link = link
        self._observer = observer
        self._faults = faults
        self._data = DataServer(self.read, self.notified)
        self._side: SideChannel | None = None
        self._payload = b""
        # One thread: handshakes with several peers wait for each other, as in vLLM.
        self._handshakes = ThreadPoolExecutor(1, "nixl_handshake")
        self._peers: dict[str, asyncio.Task[_Peer]] = {}
        self._beating: dict[str, dict[str, Any]] = {}
        self._fetching: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def recomputes(self) -> bool:
        """By `kv_load_failure_policy`."""
        return self.settings.recompute

    async def start(self) -> None:
        """Listen on data port and side channel."""
        await self._data.start("::" if ":" in self.settings.host else "0.0.0.0", self.settings.data_port)
        metadata = AgentMetadata(
            engine_id=self.settings.engine_id,
            agent_metadata=str(self._data.port).encode(),
            kv_caches_base_addr=[0],
            device_id=0,
            num_blocks=self._keeper.pool.count,
            block_lens=[self.settings.token_bytes * self._local.block_size],
            block_strides=[self.settings.token_bytes * self._local.block_size],
            kv_cache_layout="HND",
            block_size=self._local.block_size,
            ssm_sizes=(0, 0),
            attn_backend_name=self._local.compatibility.attn_backend_name,
            physical_blocks_per_logical_kv_block=1,
        )
        self._payload = msgspec.msgpack.encode(
            Payload(self._local.compatibility.hash, msgspec.msgpack.encode(metadata))
        )
        self._side = SideChannel(
            self.settings.host,
            self.settings.port,
            lambda: None if self._faults.side_channel_dropped else self._payload,
        )
        self._spawn(self._heartbeats())

    async def stop(self) -> None:
        """Close sockets and connections."""
        for task in [*self._tasks, *self._peers.values()]:
            task.cancel()
        if self._side is not None:
            await asyncio.to_thread(self._side.stop)
        await self._data.stop()
        self._handshakes.shutdown(wait=False, cancel_futures=True)

    # Decode.

    def arrived(self, request: Request) -> None:
        """Whether its KV is to be pulled."""
        params = request.transfer
        if not params or not params.get("do_remote_prefill"):
            return
        if request.uncached and self.settings.release >= _COMPUTES_PROMPTS:
            if params.get("remote_block_ids") and all(key in params for key in self._required):
                self._spawn(self._free_remote(dict(params)))
            return
        request.remote = True
        if all(params.get(key) is not None for key in self._required):
            self._beating[request.id] = {**params, "remote_request_id": self._remote_request_id(request)}

    def rejected(self, transfer: dict[str, Any]) -> None:
        """Tell prefill that its blocks won't be read."""
        if not transfer.get("do_remote_prefill"):
            return
        for key in ("remote_block_ids", *self._required):
            if key not in transfer:
                raise FatalError(f"KeyError: {key!r}")
        self._spawn(self._free_remote(dict(transfer)))

    @property
    def _required(self) -> tuple[str, ...]:
        return required(named=self.settings.names_requests)

    async def fetch(self, pull: Pull) -> list[bytes]:
        """Handshake if it is the first time, wait for the wire, read, notify."""
        request = pull.request
        params = request.transfer or {}
        if request.finish_reason is not None:
            raise TransferError("aborted before its transfer began")
        if not has_source(params, self._required):
            _log.warning("Got invalid KVTransferParams: %s. This request will not utilize KVTransfer", params)
            # It waits for KV that nobody fetches, until its sender leaves.
            await asyncio.Event().wait()
        started = self._clock.now()
        self._fetching.add(request.id)
        try:
            peer = await self._peer(params)
            posted = self._clock.now()
            content = await self._read(peer, pull, params)
        except TransferError as error:
            self._observer.transfer_failed()
            self._forget(params)
            _log.error("KV transfer for request %s failed: %s", request.id, error)
            raise
        finally:
            self._beating.pop(request.id, None)
            self._fetching.discard(request.id)
        size = self.settings.token_bytes * self._local.block_size * len(pull.blocks)
        self._observer.transferred(
            seconds=self._clock.now() - posted,
            posted=max(0.0, posted - started),
            size=size,
            descriptors=len(pull.blocks),
        )
        return content

    async def _read(self, peer: _Peer, pull: Pull, params: dict[str, Any]) -> list[bytes]:
        remote = blocks_of(params["remote_block_ids"], by_group=self.settings.release >= (0, 12))
        theirs = peer.metadata.block_size
        ratio = self._local.block_size // theirs
        tokens = len(pull.request.prompt) - pull.skip
        wanted = -(-tokens // theirs)
        if wanted > len(remote):
            raise FatalError(f"AssertionError: {wanted} blocks are needed, the peer has {len(remote)}")
        # Bytes are taken when the wire is through: what happens to the blocks until then, happens to the request.
        await self._clock.sleep_until(
            self._link.reserve(
                self._clock.now(), wanted * theirs * self.settings.token_bytes * self._faults.slow
            )
        )
        request_id = self._remote_request_id(pull.request) or ""
        found = await peer.client.read(remote[-wanted:], request_id)
        if not peer.client.notify(f"{request_id}:1"):
            self._observer.notification_failed()
        return [b"".join(found[index * ratio : (index + 1) * ratio]) for index in range(len(pull.blocks))]

    def _remote_request_id(self, request: Request) -> str | None:
        if self.settings.names_requests:
            found = (request.transfer or {}).get("remote_request_id")
            return None if found is None else str(found)
        return request.id

    async def _peer(self, params: dict[str, Any]) -> _Peer:
        engine_id = str(params["remote_engine_id"])
        where = f"{params['remote_host']}:{params['remote_port']}"
        if where in self._faults.stale_peers or "*" in self._faults.stale_peers:
            raise TransferError(f"NIXL_ERR_REMOTE_DISCONNECT: {where}")
        task = self._peers.get(engine_id)
        if task is None:
            task = asyncio.create_task(self._connect(engine_id, params))
            self._peers[engine_id] = task
        try:
            # Others may wait for the same handshake: one that leaves must not end it.
            return await asyncio.shield(task)
        except (HandshakeError, TransferError, ValueError, TypeError) as error:
            # Values of the sender's that are none also end here: they must not end the engine.
            if self._peers.get(engine_id) is task:
                del self._peers[engine_id]
            raise TransferError(str(error)) from error

    async def _connect(self, engine_id: str, params: dict[str, Any]) -> _Peer:
        host, port = str(params["remote_host"]), int(params["remote_port"])
        loop = asyncio.get_running_loop()
        payload = await loop.run_in_executor(self._handshakes, ask, host, port)
        metadata = check(self._local, payload, engine_id, int(params.get("tp_size") or 1))
        if engine_id == self.settings.engine_id and self.settings.release >= _NOT_ITSELF:
            raise TransferError(f"Cannot register local engine {engine_id} as remote.")
        _log.info("NIXL compatibility check passed with %s at %s:%s", engine_id, host, port)
        return _Peer(metadata, await DataClient.connect(host, int(metadata.agent_metadata)))

    def _forget(self, params: dict[str, Any]) -> None:
        task = self._peers.pop(str(params.get("remote_engine_id")), None)
        if task is not None and task.done() and not task.cancelled() and task.exception() is None:
            task.result().client.close()

    async def _free_remote(self, params: dict[str, Any]) -> None:
        try:
            peer = await self._peer(params)
        except TransferError:
            self._observer.notification_failed()
            return
        if not peer.client.notify(f"{params['remote_request_id']}:1"):
            self._observer.notification_failed()

    async def _heartbeats(self) -> None:
        """Tell prefill again and again which requests still wait here."""
        while True:
            await self._clock.sleep_until(self._clock.now() + max(1.0, self.settings.lease // 6))
            by_engine: dict[str, list[dict[str, Any]]] = {}
            for params in self._beating.values():
                by_engine.setdefault(str(params["remote_engine_id"]), []).append(params)
            for each in by_engine.values():
                self._spawn(self._beat(each))

    async def _beat(self, waiting: list[dict[str, Any]]) -> None:
        try:
            peer = await self._peer(waiting[0])
        except TransferError:
            return
        peer.client.notify("HB:" + ",".join(str(params["remote_request_id"]) for params in waiting))

    def _spawn(self, work: Any) -> None:  # noqa: ANN401 - JSON, or whatever is given
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Prefill.

    def finished(self, request: Request, output: Output, now: float) -> float | None:
        """Keep the blocks of a prefill and say where they are."""
        params = request.transfer
        waiting = self._beating.pop(request.id, None)
        if waiting is not None and not request.pulled and request.id not in self._fetching:
            # It ended before its turn came: prefill must not wait for us. A transfer on its way tells by itself.
            self._spawn(self._free_remote(waiting))
        if not params or not params.get("do_remote_decode"):
            return None
        if output.finish_reason not in self._complete or not request.blocks:
            return None
        output.transfer = self._offer(request)
        return now + self.settings.lease

    @property
    def _complete(self) -> tuple[str, ...]:
        return ("length", "stop") if self.settings.release >= (0, 12) else ("length",)

    def _offer(self, request: Request) -> dict[str, Any]:
        release = self.settings.release
        offer: dict[str, Any] = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [list(request.blocks)] if release >= (0, 12) else list(request.blocks),
            "remote_engine_id": self.settings.engine_id,
        }
        if self.settings.names_requests:
            offer["remote_request_id"] = request.id
        offer |= {
            "remote_host": self.settings.host,
            "remote_port": self.settings.port,
            "tp_size": self._local.tensor_parallel,
        }
        if release >= (0, 20):
            offer |= {
                "dcp_size": 1,
                "pp_size": 1,
                "remote_num_tokens": request.computed,
                "remote_blocks_expiry_time": None,
            }
        if release >= (0, 33):
            offer["remote_registration_generation"] = 0
        if release >= (0, 20):
            offer["transfer_mode"] = "pull"
        # What a prefill knows of its cache goes with its first token, and is there to be told if that is the last.
        if release >= (0, 32) and len(request.output) == 1:
            offer["remote_prefill_cached_tokens"] = request.cached_tokens
        return offer

    def read(self, blocks: Sequence[int], _request_id: str) -> list[bytes] | None:
        """What a peer gets that reads these blocks now: nobody asks for whom."""
        pool = self._keeper.pool
        if any(not 0 < block < pool.count for block in blocks):
            return None
        kept = {block for lease in self._keeper.leases.held.values() for block in lease.blocks}
        return [self._bytes_of(block, is_kept=block in kept) for block in blocks]

    def _bytes_of(self, block: int, *, is_kept: bool) -> bytes:
        content = self._keeper.pool.content.get(block, b"\0")
        if is_kept:
            return content
        # Freed, so somebody else's by now. The reader can't know.
        return b"".join(
            hashlib.blake2b(content + b"reused").digest()[:32] for _ in range(max(1, len(content) // 32))
        )

    def notified(self, message: str) -> None:
        """A peer has read blocks, or still wants them."""
        leases = self._keeper.leases
        if message.startswith("HB:"):
            until = self._clock.now() + self.settings.lease * 2 // 3
            for request_id in message[3:].split(","):
                leases.extend(request_id, until)
            return
        request_id = message.rpartition(":")[0]
        if not leases.release(request_id):
            self._observer.late()
            _log.error(
                "Potentially invalid KV blocks for unrecognized request %s were retrieved by a decode worker. "
                "They may have expired.",
                request_id,
            )
