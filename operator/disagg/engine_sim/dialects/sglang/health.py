"""/health: has a token generated, and is down while the engine starts, fails and ends."""

from __future__ import annotations

import asyncio
import logging
import uuid

from aiohttp import web

from disagg.engine_sim.dialects.sglang.desk import Desk, ServerStatus
from disagg.engine_sim.dialects.sglang.places import FAKE_HOST, Place
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.request import Output, Request, Sampling

_log = logging.getLogger("engine_sim.sglang.health")

_LOOK = 1.0
"""Seconds before the real one looks for the first time whether the token is there: no check is quicker."""
_WARM_UP_TOKENS = 8


async def health(desk: Desk, http: web.Request) -> web.Response:
    """GET /health and /health_generate."""
    if desk.exiting or desk.status is ServerStatus.STARTING or desk.serving.faults.health_lost:
        return web.Response(status=503)
    if http.path == "/health" and not desk.environment.health_generates:
        return web.Response()
    loop = asyncio.get_running_loop()
    end = loop.time() + desk.environment.health_timeout
    engine = desk.serving.engines[0]
    token = asyncio.Event()
    request = _fake(desk, engine, 1, token)
    try:
        while loop.time() < end:
            await asyncio.sleep(_LOOK)
            if token.is_set():
                desk.status = ServerStatus.UP
                return web.Response()
    finally:
        engine.abort(request.id)
    _log.error(
        "Health check failed. Server couldn't get a response from detokenizer for last %s seconds.",
        desk.environment.health_timeout,
    )
    desk.status = ServerStatus.UNHEALTHY
    return web.Response(status=503)


def flag(desk: Desk) -> web.Response:
    """GET /ready and /ping: what was found last, without asking the engine."""
    up = desk.status is ServerStatus.UP and not desk.exiting and not desk.serving.faults.health_lost
    return web.Response(status=200 if up else 503)


async def warm_up(desk: Desk) -> None:
    """Have each rank generate a little, as the real one does before it says that it is up."""
    if not desk.args.skip_warmup:
        done = []
        for engine in desk.serving.engines:
            finished = asyncio.Event()
            _fake(desk, engine, _WARM_UP_TOKENS, finished, whole=True)
            done.append(finished.wait())
        await asyncio.gather(*done)
    desk.status = ServerStatus.UP
    _log.info("The server is fired up and ready to roll!")


def _fake(desk: Desk, engine: Engine, tokens: int, event: asyncio.Event, *, whole: bool = False) -> Request:
    """A request that has no other half. Sets `event` at its first token, or at its end."""

    def sink(output: Output) -> None:
        if output.finish_reason is not None or (output.tokens and not whole):
            event.set()

    request = Request(
        id=f"HEALTH_CHECK_{uuid.uuid4().hex}",
        prompt=[0],
        sampling=Sampling(max_tokens=tokens, ignore_eos=True),
        arrival=desk.serving.clock.now(),
        sink=sink,
        transfer=None if desk.args.mode == "null" else Place(FAKE_HOST, None, 0).as_transfer(),
    )
    desk.hand_over(engine, request)
    return request
