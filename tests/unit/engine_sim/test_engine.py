"""What an engine tells its observer of requests that end while others hold their KV."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from disagg.engine_sim.blocks import BlockPool
from disagg.engine_sim.clock import Clock
from disagg.engine_sim.engine import Engine, Observer
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.request import Output, Request, Sampling
from disagg.engine_sim.scheduler import Limits, Pull, Scheduler
from disagg.engine_sim.timing import PROFILES
from disagg.engine_sim.transfer.connector import Connector, TransferError


class Counting:
    """Counts what ends, and hears nothing else."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def finished(self, request: Request) -> None:
        self.ended.append(request.id)

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args, **_more: None


class LatePeer:
    """A peer that fails when it is told to."""

    recomputes = False

    def __init__(self) -> None:
        self.asked, self.fails = asyncio.Event(), asyncio.Event()

    def arrived(self, request: Request) -> None:
        request.remote = True

    async def fetch(self, _pull: Pull) -> list[bytes]:
        self.asked.set()
        await self.fails.wait()
        raise TransferError("it is gone")

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def finished(self, _request: Request, _output: Output, _now: float) -> None: ...

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args, **_more: None


async def ended(*, leaves: bool) -> list[str]:
    """What ends when a pull fails, of a request whose sender has left before or waits."""
    observer, peer = Counting(), LatePeer()
    scheduler = Scheduler(BlockPool(64, 16, caching=True), PROFILES["tiny"], Limits())
    engine = Engine(0, scheduler, Clock(100.0), Faults(), cast("Observer", observer), cast("Connector", peer))
    await engine.start()
    done = asyncio.Event()
    engine.submit(
        Request("r", [5] * 40, Sampling(4), 0.0, lambda output: done.set() if output.finish_reason else None)
    )
    await asyncio.wait_for(peer.asked.wait(), 5)
    if leaves:
        engine.abort("r")
    peer.fails.set()
    await asyncio.wait_for(done.wait(), 5)
    await asyncio.sleep(0.05)
    await engine.stop()
    return observer.ended


async def test_a_pull_that_fails_ends_its_request_once() -> None:
    assert await ended(leaves=False) == ["r"]


async def test_a_request_that_was_ended_before_its_pull_fails_is_counted_once() -> None:
    assert await ended(leaves=True) == ["r"]
