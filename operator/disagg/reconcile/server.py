"""`/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from disagg.reconcile.metrics import Metrics

STUCK_SECONDS = 180.0
"""A pass may take `PASS_SECONDS` and a key wait for some of them; what waits for longer waits for ever."""


def health_server(
    metrics: Metrics, *, oldest: Callable[[], float], ready: Callable[[], bool]
) -> web.Application:
    """The web application.

    Args:
        metrics: What `/metrics` shows.
        oldest: Seconds that the oldest work has waited. `/healthz` fails when it is stuck: a live process with a dead
            queue is worse than a restart.
        ready: Whether the operator watches its resources (and leads, where only one may).
    """

    async def healthz(_: web.Request) -> web.Response:
        waited = oldest()
        if waited > STUCK_SECONDS:
            return web.Response(status=503, text=f"work has waited for {waited:.0f} s\n")
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if ready() else web.Response(status=503, text="starting\n")

    async def metrics_page(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics_page)
    return app
