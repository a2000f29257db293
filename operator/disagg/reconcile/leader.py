"""Leader election by Lease: of several operators one works, and the others wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from disagg.api.names import FIELD_MANAGER
from disagg.cluster.client import Client, ResourceType
from disagg.cluster.errors import ConflictError

LEASE = ResourceType("coordination.k8s.io/v1", "Lease", "leases")
LEASE_NAME = "disagg-operator"
LEASE_SECONDS = 15
RENEW_SECONDS = 10
RETRY_SECONDS = 2

_log = structlog.stdlib.get_logger("disagg")


class LeadershipLostError(RuntimeError):
    """Another operator may work now: this process has to end."""


async def lead(
    configuration: Configuration, client: Client, work: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Wait for the Lease, then do `work` while holding it.

    Args:
        configuration: Address and credentials of the API server.
        client: The same API server.
        work: What the leader does.

    Raises:
        LeadershipLostError: The Lease was lost.
        ApiError: The Lease cannot be made.
    """
    namespace = os.environ.get("POD_NAMESPACE", "default")
    await _make_lease(client, namespace)
    elected = asyncio.Event()

    async def on_elected() -> None:
        elected.set()

    async with ApiClient(configuration) as api:
        lock = LeaseLock(
            LEASE_NAME,
            namespace,
            os.environ.get("POD_NAME", socket.gethostname()),
            api,
        )
        election = asyncio.create_task(LeaderElection(_election(lock, on_elected)).run())
        tasks: set[asyncio.Task[Any]] = {election}
        try:
            waiting = asyncio.create_task(elected.wait())
            tasks.add(waiting)
            await asyncio.wait({election, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if elected.is_set():
                _log.info("leading", lease=LEASE_NAME)
                working = asyncio.create_task(work())
                tasks.add(working)
                # Work that fails must end the leadership too, or nobody would ever take over.
                done, _ = await asyncio.wait({election, working}, return_when=asyncio.FIRST_COMPLETED)
                if working in done:
                    return working.result()
            # It ends only when the Lease is lost, or by an error that it does not catch.
            election.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    raise LeadershipLostError(f"Lease {LEASE_NAME} was lost")


async def _make_lease(client: Client, namespace: str) -> None:
    """Make an empty Lease: the library's own way to make one fails in kubernetes 37.0 (it says `pretty=True`)."""
    metadata = {"name": LEASE_NAME, "namespace": namespace}
    lease = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": {}}
    with contextlib.suppress(ConflictError):
        await client.create(LEASE, lease, manager=FIELD_MANAGER)


def _election(lock: LeaseLock, on_elected: Callable[[], Coroutine[Any, Any, None]]) -> Config:
    return Config(
        lock,
        lease_duration=LEASE_SECONDS,
        renew_deadline=RENEW_SECONDS,
        retry_period=RETRY_SECONDS,
        onstarted_leading=on_elected,
        onstopped_leading=on_elected,
    )
