"""One engine: runs the scheduler in time, lets the connector fetch, tells observers and listeners.

The edge around the pure core. All streams of a step are written in one go from here, so a token costs no task and no
wake-up of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from disagg.engine_sim.clock import Clock
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.kv_events import EventPublisher
from disagg.engine_sim.request import Output, Request
from disagg.engine_sim.scheduler import Pull, Scheduler, Step
from disagg.engine_sim.transfer.connector import Connector, FatalError, TransferError, TransferObserver

_log = logging.getLogger("engine_sim")

_SLACK = 0.05
"""Seconds that a step may be late before its time counts from now: a busy machine must not be caught up with at once."""


_LAST_WORDS = 0.2
"""Seconds that a dead engine's process has to tell its requests."""

DEAD = "dead"
"""How requests finish whose engine has died."""


class QueueFullError(Exception):
    """No more requests or tokens may queue.

    Attributes:
        limit: Which limit it is, by its flag.
    """

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


class Observer(TransferObserver, Protocol):
    """Told of what an engine does, for metrics."""

    def admitted(self, request: Request) -> None:
        """A request's prefix has been looked up."""

    def stepped(self, step: Step) -> None:
        """A step is over."""

    def token(self, request: Request, now: float) -> None:
        """A request has one more token; not yet counted in `request.last_token_at`."""

    def finished(self, request: Request) -> None:
        """A request is over."""

    def refused(self, limit: str) -> None:
        """A request was refused for a full queue."""


@dataclass(frozen=True)
class Queue:
    """Limits of the queue; None for no limit, which is the default."""

    requests: int | None = None
    tokens: int | None = None


class Engine:
    """A scheduler that runs.

    Attributes:
        rank: Of data parallelism.
        scheduler: What it runs.
        connector: Moves KV, if there is a connector.
        draining: Whether new requests end at once.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it is made of
        self,
        rank: int,
        scheduler: Scheduler,
        clock: Clock,
        faults: Faults,
        observer: Observer,
        connector: Connector | None = None,
        queue: Queue | None = None,
        events: EventPublisher | None = None,
        is_prefill: Callable[[Request], bool] = lambda request: bool(
            request.transfer and request.transfer.get("do_remote_decode")
        ),
    ) -> None:
        self.rank = rank
        self.scheduler = scheduler
        self.clock = clock
        self.connector = connector
        self.draining = False
        self._faults = faults
        self._observer = observer
        self._queue = queue or Queue()
        self._events = events
        self._is_prefill = is_prefill
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._due = 0.0
        self._is_dead = False
        scheduler.on_admit = observer.admitted
        scheduler.on_finish = self._finished
        if events is not None:
            scheduler.pool.on_event = events.record

    async def start(self) -> None:
        """Let the connector listen, and begin to run."""
        if self.connector is not None:
            await self.connector.start()
        self._spawn(self._run())

    async def stop(self) -> None:
        """Let go of everything."""
        for task in self._tasks:
            task.cancel()
        if self.connector is not None:
            await self.connector.stop()
        if self._events is not None:
            self._events.close()

    @property
    def load(self) -> int:
        """For choosing between ranks, as vLLM weighs it: who waits counts four times."""
        scheduler = self.scheduler
        return 4 * (scheduler.num_waiting + len(scheduler.remote)) + len(scheduler.running)

    def check_queue(self, amount: int) -> None:
        """Make sure that `amount` more requests may queue.

        Raises:
            QueueFullError: They may not.
        """
        limits = self._queue
        if limits.requests is not None and len(self.scheduler.requests) + amount > limits.requests:
            self._observer.refused("max_num_queued_reqs")
            raise QueueFullError("max_num_queued_reqs")
        if limits.tokens is not None:
            waiting = sum(len(request.prompt) for request in self.scheduler.waiting())
            if waiting >= limits.tokens:
                self._observer.refused("max_num_queued_tokens")
                raise QueueFullError("max_num_queued_tokens")

    def submit(self, request: Request) -> None:
        """Take a request. Its sink hears of everything that becomes of it."""
        if self.draining:
            self.refused(request.transfer)
            request.finish_reason = "abort"
            request.sink(Output("", [], finish_reason="abort"))
            return
        if self._is_dead:
            request.sink(Output("", [], finish_reason=DEAD))
            return
        if self.connector is not None:
            self.connector.arrived(request)
        elif request.transfer:
            _log.warning("kv_transfer_params of %s are ignored: there is no KV connector", request.id)
        if self._is_prefill(request):
            request.doomed = self._faults.prefill_fails()
        self.scheduler.add(request)
        self._idle.clear()
        self._work.set()

    def refused(self, transfer: dict[str, Any] | None) -> None:
        """A request with this transfer does not become one of the engine: whoever keeps blocks for it must know."""
        if self.connector is None or not transfer:
            return
        try:
            self.connector.rejected(transfer)
        except FatalError as error:
            self._die(error)

    def abort(self, request_id: str) -> None:
        """End a request whose sender has gone."""
        request = self.scheduler.abort(request_id, self.clock.now())
        if request is not None:
            self._over(request)

    def abort_all(self) -> None:
        """End everything."""
        for request_id in list(self.scheduler.requests):
            self.abort(request_id)

    async def drained(self) -> None:
        """Return when nothing is left to do; blocks that wait for a peer count."""
        await self._idle.wait()

    async def _run(self) -> None:
        scheduler, clock = self.scheduler, self.clock
        while True:
            await self._faults.gate()
            now = clock.now()
            self._expire(now)
            step = scheduler.step(now)
            if step is None:
                await self._rest()
                continue
            for pull in step.pulls:
                self._spawn(self._fetch(pull))
            if not step.scheduled:
                continue
            start = self._due if now - self._due < _SLACK * clock.scale else now
            self._due = start + step.seconds * self._faults.slow
            await clock.sleep_until(self._due)
            await self._faults.gate()
            self._finish(step, clock.now())

    def _finish(self, step: Step, now: float) -> None:
        outputs = self.scheduler.finish(step, now)
        observer = self._observer
        said = 0
        for request, output in outputs:
            if output.tokens:
                said += len(output.tokens)
                observer.token(request, now)
                request.last_token_at = now
            if output.finish_reason is not None:
                self._over(request)
        observer.stepped(step)
        if self._events is not None:
            self._events.flush()
        self._faults.said(said)

    def _over(self, request: Request) -> None:
        self._observer.finished(request)
        self._work.set()

    def _finished(self, request: Request, output: Output, now: float) -> float | None:
        return None if self.connector is None else self.connector.finished(request, output, now)

    async def _rest(self) -> None:
        """Wait for something to change: a request, a peer's bytes, a lease that ends or is given back."""
        scheduler = self.scheduler
        if not scheduler.requests and not scheduler.leases.held:
            self._idle.set()
        self._work.clear()
        expiry = scheduler.leases.next_expiry()
        if self._events is not None:
            self._events.flush()
        # Leases are given back without a word, and who wants events again does not knock: look now and then.
        seconds = 0.05 if scheduler.leases.held or self._events is not None else None
        if expiry is not None and scheduler.num_waiting:
            seconds = min(seconds or 1.0, max(0.0, self.clock.wall(expiry - self.clock.now())))
        try:
            async with asyncio.timeout(seconds):
                await self._work.wait()
        except TimeoutError:
            pass

    def _expire(self, now: float) -> None:
        for request_id in self.scheduler.leases.expire(now):
            self._observer.expired()
            _log.warning("Releasing expired KV blocks for request %s", request_id)

    async def _fetch(self, pull: Pull) -> None:
        connector = self.connector
        if connector is None:
            raise AssertionError("a pull without a connector")
        try:
            content = await connector.fetch(pull)
        except TransferError:
            # Whoever has left meanwhile has been counted.
            waits = pull.request.finish_reason is None
            self.scheduler.kv_failed(pull, self.clock.now(), recompute=connector.recomputes)
            if waits and pull.request.finish_reason is not None:
                self._over(pull.request)
        else:
            self.scheduler.kv_arrived(pull, content)
        self._work.set()

    def _spawn(self, work: Any) -> None:  # noqa: ANN401 - JSON, or whatever is given
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._die(error)

    def _die(self, error: BaseException) -> None:
        """Tell all requests, and end the process."""
        _log.critical("EngineCore encountered a fatal error.", exc_info=error)
        if self._is_dead:
            return
        self._is_dead = True
        for request_id in list(self.scheduler.requests):
            self.scheduler.abort(request_id, self.clock.now(), DEAD)
        asyncio.get_running_loop().call_later(_LAST_WORDS, self._faults.end)
