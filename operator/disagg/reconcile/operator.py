"""Puts the parts together: watches, queue, workers, resync, health."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from aiohttp import web

from disagg.api.names import GROUP, PLURAL, VERSION
from disagg.cluster.client import Client, load_configuration
from disagg.cluster.errors import ApiError
from disagg.reconcile.cluster_state import ClusterState
from disagg.reconcile.leader import lead
from disagg.reconcile.metrics import Metrics
from disagg.reconcile.pod_groups import PodGroupMode, offers_pod_groups
from disagg.reconcile.queue import Key, KeyQueue
from disagg.reconcile.reconciler import Outcome, Reconciler
from disagg.reconcile.server import health_server
from disagg.reconcile.watch import watch
from disagg.topology.levels import level_map

PASS_SECONDS = 60.0
"""Limit of one pass: each of its requests has one too, and this one bounds their sum."""

_log = structlog.stdlib.get_logger("disagg")


@dataclass(frozen=True)
class Settings:
    """What the operator's command line says.

    Attributes:
        namespaces: Namespaces to watch; all if empty.
        workers: Resources reconciled at once.
        resync_seconds: How often each resource is looked at with no event, give or take 20 %.
        http_host: Where /healthz, /readyz and /metrics listen.
        http_port: As above.
        leader_elect: Whether several operators share the work by a Lease.
        topology_preset: Name of a level map.
        topology_levels: Name of a level -> key of the node label for it, laid over the preset.
        pod_group: Whether groups that must be packed are given to the scheduler as PodGroups.
    """

    namespaces: Sequence[str] = ()
    workers: int = 4
    resync_seconds: float = 300.0
    http_host: str = "0.0.0.0"  # noqa: S104 - probes and Prometheus come from outside the pod
    http_port: int = 8080
    leader_elect: bool = False
    topology_preset: str = "generic"
    topology_levels: Mapping[str, str] = field(default_factory=dict)
    pod_group: PodGroupMode = PodGroupMode.AUTO


@dataclass
class _Operator:
    settings: Settings
    queue: KeyQueue = field(default_factory=KeyQueue)
    metrics: Metrics = field(default_factory=Metrics)
    watching: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.levels = level_map(self.settings.topology_preset, self.settings.topology_levels)
        self.state = ClusterState(self.queue)

    async def run(self) -> None:
        self.metrics.watch_queue(self.queue.depth, self.queue.oldest)
        app = health_server(self.metrics, oldest=self.queue.oldest, ready=self.watching.is_set)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, self.settings.http_host, self.settings.http_port).start()
        configuration = await load_configuration()
        _log.info("starting", server=configuration.host, namespaces=list(self.settings.namespaces) or "all")
        try:
            async with Client(
                configuration, user_agent="disagg-operator", on_request=self.metrics.request
            ) as client:
                if self.settings.leader_elect:
                    # A standby is ready too, or a rolling update of the operator would wait for it for ever.
                    self.watching.set()
                    await lead(configuration, client, lambda: self._work(client))
                else:
                    await self._work(client)
        finally:
            await runner.cleanup()

    async def _work(self, client: Client) -> None:
        """Watch and reconcile. Whatever of it ends first ends the rest, and the process: it is restarted clean."""
        tasks = [
            asyncio.create_task(watch(self.queue, self.settings.namespaces, self.watching)),
            asyncio.create_task(self.state.watch(client, self.settings.namespaces)),
            asyncio.create_task(self._reconcile_all(client)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _reconcile_all(self, client: Client) -> None:
        """Reconcile, once nodes and pods are known: a decision about racks before that would be a guess."""
        pod_groups = await offers_pod_groups(
            client, self.settings.pod_group, next(iter(self.settings.namespaces), "default")
        )
        await self.state.known()
        reconciler = Reconciler(client, self.state, levels=self.levels, pod_groups=pod_groups)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.settings.workers):
                group.create_task(self._reconcile_next(reconciler))

    async def _reconcile_next(self, reconciler: Reconciler) -> None:
        while True:
            key, kinds = await self.queue.get()
            try:
                await self._reconcile(reconciler, key, kinds)
            finally:
                self.queue.done(key)

    async def _reconcile(self, reconciler: Reconciler, key: Key, kinds: frozenset[str]) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(PASS_SECONDS):
                outcome = await reconciler.reconcile(key, kinds)
        except (ApiError, TimeoutError) as error:
            message = str(error) or f"took longer than {PASS_SECONDS:.0f} s"
            again = self.queue.failed(key, at_least=getattr(error, "retry_after", None) or 0.0)
            outcome = Outcome("retry", message=message, again=again)
        except Exception as error:  # noqa: BLE001 - a bug over one resource must not stop the others
            _log.exception("reconcile failed", key=str(key))
            outcome = Outcome("error", message=repr(error), again=self.queue.failed(key))
        else:
            self.queue.succeeded(key)
            self._next(key, outcome)
        seconds = time.monotonic() - started
        self.metrics.reconcile(outcome.result, seconds)
        level = _log.debug if outcome.result in ("unchanged", "paused") else _log.info
        level(
            "reconciled",
            key=str(key),
            outcome=outcome.result,
            changes=", ".join(outcome.changes),
            message=outcome.message,
            seconds=round(seconds, 3),
        )

    def _next(self, key: Key, outcome: Outcome) -> None:
        """When to look at the resource again."""
        if outcome.result == "gone":
            return
        resync = self.settings.resync_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads the load
        self.queue.add(key, delay=resync)
        if outcome.again is not None:
            self.queue.add(key, outcome.kinds, delay=outcome.again)


async def run(settings: Settings) -> None:
    """Run the operator until it is stopped or can't go on.

    Raises:
        ApiError: No cluster is configured.
    """
    _log.info("disagg operator", resource=f"{PLURAL}.{VERSION}.{GROUP}", workers=settings.workers)
    await _Operator(settings).run()
