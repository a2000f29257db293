"""What decode knows of prefills: how they are made, where their ranks are, whether they are still there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from disagg.engine_sim.clock import Clock
from disagg.engine_sim.dialects.sglang.places import KVTransferError, Place
from disagg.engine_sim.faults import Faults

_log = logging.getLogger("engine_sim.sglang.peers")

_TRIES = 15
_TRY_EVERY = 1.0
_HTTP = aiohttp.ClientTimeout(total=5)
_BEAT = aiohttp.ClientTimeout(connect=2, sock_read=3)


@dataclass(frozen=True)
class Own:
    """What of decode must fit prefill.

    Attributes:
        page_size: Tokens of a page.
        kv_cache_dtype: Number format.
        attn_tp_size: GPUs that attention's heads are spread over.
        pp_size: Stages of the pipeline.
        latent: Multi-head latent attention, whose cache is the same on all of them.
        staging: Whether heads are gathered on their way.
        query_rank: Whether the rank of a room is always asked for.
    """

    page_size: int
    kv_cache_dtype: str
    attn_tp_size: int
    pp_size: int
    latent: bool
    staging: bool = False
    query_rank: bool = False


def misfit(own: Own, info: dict[str, Any]) -> str | None:
    """Why nothing of a prefill can be used; None if all can.

    Args:
        own: Of this engine.
        info: What the bootstrap server says of prefill.
    """
    page_size, dtype = info.get("page_size"), info.get("kv_cache_dtype")
    if page_size is not None and page_size != own.page_size:
        return (
            f"Page size mismatch: prefill server has page_size={page_size}, but decode server has "
            f"page_size={own.page_size}. Both servers must use the same --page-size value."
        )
    if dtype is not None and dtype != own.kv_cache_dtype:
        return (
            f"KV cache dtype mismatch: prefill server has kv_cache_dtype={dtype}, but decode server has "
            f"kv_cache_dtype={own.kv_cache_dtype}. Both servers must use the same --kv-cache-dtype value."
        )
    tp = int(info["attn_tp_size"])
    if tp != own.attn_tp_size and not own.latent:
        if own.kv_cache_dtype == "mxfp8":
            return (
                "PD Disaggregation does NOT support different attention TP sizes with MXFP8 KV cache: prefill "
                f"attn_tp_size={tp}, decode attn_tp_size={own.attn_tp_size}, state types ['block_scale']."
            )
        if not own.staging or max(tp, own.attn_tp_size) % min(tp, own.attn_tp_size):
            return (
                "PD Disaggregation does NOT support PD different TP sizes for non-MLA models without "
                f"SGLANG_DISAGG_STAGING_BUFFER: prefill attn_tp_size={tp}, decode attn_tp_size={own.attn_tp_size}."
            )
    pp = int(info["pp_size"])
    if own.pp_size not in {pp, 1}:
        return f"Decode pp size ({own.pp_size}) should be equal to prefill pp size ({pp}) or 1"
    return None


class Peers:
    """The prefills that this engine has met. Shared by its ranks."""

    def __init__(self, own: Own, clock: Clock, faults: Faults, heartbeat: float, failures: int) -> None:
        """Nobody yet.

        Args:
            own: What must fit.
            clock: Time.
            faults: What goes wrong.
            heartbeat: Seconds between two looks.
            failures: Looks after which one is gone.
        """
        self._own, self._clock, self._faults = own, clock, faults
        self._heartbeat, self._failures = heartbeat, failures
        self._info: dict[str, dict[str, Any]] = {}
        self._ranks: dict[tuple[str, int], tuple[str, int]] = {}
        self._asking: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._missed: dict[str, int] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._beating: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    def watch(self, lost: Callable[[str], None]) -> None:
        """Call `lost` with the address of a prefill that is gone; looking begins."""
        self._listeners.append(lost)
        if self._beating is None:
            self._session = aiohttp.ClientSession()
            self._beating = asyncio.ensure_future(self._beat())

    async def stop(self) -> None:
        """Stop looking."""
        for task in [self._beating, *self._asking.values()]:
            if task is not None:
                task.cancel()
        if self._session is not None:
            await self._session.close()

    def broken(self, place: Place) -> bool:
        """Whether nothing of what a prefill sends arrives, by a fault, though both sides look healthy."""
        return bool({place.address, "*"} & set(self._faults.stale_peers))

    async def rank(self, place: Place) -> tuple[str, int]:
        """Where the rank of a prefill listens that has a request.

        Raises:
            KVTransferError: Prefill can't be asked, does not fit, or has no such rank.
        """
        info = await self._known(place)
        size = int(info["dp_size"])
        if place.prefill_rank is not None:
            dp = place.prefill_rank
        elif size == 1:
            dp = 0
        elif info["follow_bootstrap_room"] and not self._own.query_rank:
            dp = place.room % size
        else:
            dp = await self._asked(place)
        key = (place.address, dp)
        if key not in self._ranks:
            tp = 0
            query = f"prefill_dp_rank={dp}&prefill_cp_rank=0&target_tp_rank={tp}&target_pp_rank=0"
            found = await self._get(f"http://{place.address}/route?{query}")
            if found is None:
                raise KVTransferError(
                    place.room,
                    f"Could not fetch bootstrap info for: prefill_dp_rank: {dp} prefill_cp_rank: 0 target_tp_rank: {tp} "
                    "and target_pp_rank 0",
                )
            self._ranks[key] = (str(found["rank_ip"]), int(found["rank_port"]))
        return self._ranks[key]

    async def _known(self, place: Place) -> dict[str, Any]:
        address = place.address
        if address in self._info:
            return self._info[address]
        task = self._asking.get(address)
        if task is None:
            task = asyncio.ensure_future(self._ask(address))
            self._asking[address] = task
            task.add_done_callback(lambda _done: self._asking.pop(address, None))
        try:
            # Others wait for the same: one that leaves must not end it.
            info = await asyncio.shield(task)
        except LookupError as error:
            raise KVTransferError(place.room, str(error.args[0])) from error
        refusal = misfit(self._own, info)
        if refusal is not None:
            raise KVTransferError(place.room, refusal)
        self._info[address] = info
        return info

    async def _ask(self, address: str) -> dict[str, Any]:
        query = "prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(self._clock.wall(_TRY_EVERY))
            found = await self._get(f"http://{address}/route?{query}")
            if found is not None:
                return found
        _log.error("Could not fetch prefill parallel info from %s after %s attempts", address, _TRIES)
        # What the real one tells of it is only that it has given up.
        raise LookupError("Aborted by AbortReq.")

    async def _asked(self, place: Place) -> int:
        """The rank that prefill's has entered for a room; it is asked until there is one."""
        while True:
            body = {"bootstrap_rooms": [place.room]}
            with suppress(aiohttp.ClientError, TimeoutError, ValueError):
                async with self._client.post(
                    f"http://{place.address}/query_dp_ranks", json=body, timeout=_HTTP
                ) as reply:
                    found = (await reply.json()).get(str(place.room)) if reply.ok else None
                if found is not None:
                    return int(found)
            await asyncio.sleep(self._clock.wall(0.05))

    async def _get(self, url: str) -> dict[str, Any] | None:
        try:
            async with self._client.get(url, timeout=_HTTP) as reply:
                if reply.ok:
                    found: dict[str, Any] = await reply.json()
                    return found
                _log.error("Failed to get prefill server info: %s, %s", reply.status, await reply.text())
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            _log.error("Error fetching prefill server info from bootstrap: %s", error)
        return None

    @property
    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise AssertionError("nobody watches")
        return self._session

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._clock.wall(self._heartbeat))
            await asyncio.gather(*(self._look(address) for address in list(self._info)))

    async def _look(self, address: str) -> None:
        try:
            async with self._client.get(f"http://{address}/health", timeout=_BEAT) as reply:
                alive = reply.ok
        except (aiohttp.ClientError, TimeoutError):
            alive = False
        if alive:
            self._missed[address] = 0
            return
        _log.info("Attempting to reconnect to %s...", address)
        self._missed[address] = self._missed.get(address, 0) + 1
        if self._missed[address] >= self._failures:
            del self._missed[address]
            self._info.pop(address, None)
            self._ranks = {key: where for key, where in self._ranks.items() if key[0] != address}
            for lost in self._listeners:
                lost(address)
