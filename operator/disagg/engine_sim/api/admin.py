"""Routes under /sim/: what goes wrong on demand, and what a test may want to see inside."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.api.serving import Serving
from disagg.engine_sim.faults import FaultError


def add_routes(app: web.Application, serving: Serving) -> None:
    """Add the routes."""

    async def get_faults(_http: web.Request) -> web.Response:
        return web.json_response(serving.faults.state())

    async def post_faults(http: web.Request) -> web.Response:
        try:
            wanted = orjson.loads(await http.read())
        except ValueError as error:
            raise ApiError(f"the body is no JSON: {error}") from error
        if not isinstance(wanted, dict):
            raise ApiError('an object is expected, such as {"slow": 2.0}')
        try:
            serving.faults.apply(wanted)
        except FaultError as error:
            raise ApiError(str(error), param=error.field) from error
        return web.json_response(serving.faults.state())

    async def get_state(_http: web.Request) -> web.Response:
        return web.json_response(
            {"engines": [_state(serving, index) for index in range(len(serving.engines))]}
        )

    app.router.add_get("/sim/faults", get_faults)
    app.router.add_post("/sim/faults", post_faults)
    app.router.add_get("/sim/state", get_state)


def _state(serving: Serving, index: int) -> dict[str, Any]:
    engine = serving.engines[index]
    scheduler = engine.scheduler
    return {
        "rank": engine.rank,
        "running": len(scheduler.running),
        "waiting": scheduler.num_waiting,
        "remote": len(scheduler.remote),
        "leases": len(scheduler.leases.held),
        "leased_blocks": scheduler.leases.blocks,
        "free_blocks": scheduler.pool.free,
        "blocks": scheduler.pool.count,
        "preemptions": scheduler.preemptions,
        "draining": engine.draining,
        "time": serving.clock.now(),
    }
