"""The process: loads, binds, serves, drains, ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from disagg.engine_sim.api import admin
from disagg.engine_sim.api.errors import ApiError, internal_error
from disagg.engine_sim.api.serving import Serving
from disagg.engine_sim.clock import Clock
from disagg.engine_sim.connections import Runner

_log = logging.getLogger("engine_sim")

Observe = Callable[[str, str, int, float, int, int], None]

_CLIENT_GONE = 499
_MAX_HEADER = 1 << 20
"""Bytes of a header."""

_GRACE = 5.0
"""Seconds that connections have after the engine has ended, as vLLM gives them."""

_UNBOUNDED = 1e9
"""Seconds that stand for no limit: aiohttp wants a number."""


@dataclass(frozen=True)
class ProcessSettings:
    """How the process serves.

    Attributes:
        host: Where HTTP listens.
        port: As well.
        load_seconds: Until the socket is bound, in the engine's time.
        frozen: Whether loading never ends.
        shutdown_timeout: Seconds that requests in flight have after SIGTERM; 0 ends them at once, None lets them end
            however long it takes.
        keep_alive: Seconds that an idle connection stays open.
        drain: Returns when requests in flight are over, for a dialect that has a way of its own; new ones are taken until
            then.
        health_while_draining: Whether /health stays 200 then.
        calls_only: Whether SIGTERM closes the port and waits for calls in flight, however long, and for nothing else, as a
            server does that leaves it to uvicorn. `shutdown_timeout` has no meaning then.
    """

    host: str
    port: int
    load_seconds: float = 0.0
    frozen: bool = False
    shutdown_timeout: float | None = 0.0
    keep_alive: float = 5.0
    drain: Callable[[], Awaitable[None]] | None = None
    health_while_draining: bool = True
    calls_only: bool = False


def errors_and_load(serving: Serving, observe: Observe | None) -> Middleware:
    """What stands around every handler: errors become answers, calls in flight are counted, metrics observed."""

    @web.middleware
    async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        start = loop.time()
        serving.load += 1
        status, size = 500, 0
        try:
            response = await handler(request)
            status, size = response.status, response.content_length or 0
        except ApiError as error:
            found = error.response()
            status, size = found.status, found.content_length or 0
            return found
        except web.HTTPException as error:
            found = _of_server(request, error)
            status = found.status
            return found
        except ConnectionError:
            # The client has gone: nobody hears an answer, and nothing is wrong.
            status = _CLIENT_GONE
            return web.Response(status=status)
        except Exception:  # noqa: BLE001 - whatever it is, it has an answer
            # A defect of ours, or of a dialect; clients get what the real one gives for its own.
            _log.exception("%s %s", request.method, request.path)
            return internal_error().response()
        else:
            return response
        finally:
            serving.load -= 1
            if observe is not None:
                route = request.match_info.route.resource
                path = "none" if route is None else route.canonical
                observe(path, request.method, status, loop.time() - start, request.content_length or 0, size)

    return around


def _of_server(request: web.Request, error: web.HTTPException) -> web.Response:
    """What the engines' HTTP server says by itself, which is not as their API says it: no such path, or not by this method."""
    other = request.path.rstrip("/") if request.path.endswith("/") else request.path + "/"
    known = {resource.canonical for resource in request.app.router.resources()}
    if isinstance(error, web.HTTPNotFound) and other in known:
        return web.Response(
            status=307, headers={"Location": str(request.url.with_path(other).with_query(request.query))}
        )
    if isinstance(error, web.HTTPNotFound | web.HTTPMethodNotAllowed):
        allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return web.json_response({"detail": error.reason}, status=error.status, headers=allowed)
    return error


def application(serving: Serving, observe: Observe | None = None) -> web.Application:
    """An application without routes but those of the faults."""
    app = web.Application(middlewares=[errors_and_load(serving, observe)], client_max_size=1 << 30)
    admin.add_routes(app, serving)
    return app


async def run(serving: Serving, app: web.Application, settings: ProcessSettings) -> None:
    """Load, serve until SIGTERM, drain."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if not await _loaded(serving.clock, settings, stop):
        return
    serving.faults.die = lambda: os._exit(1)
    # The server of a dead engine ends as if it had been asked to.
    serving.faults.end = lambda: os._exit(0)
    for engine in serving.engines:
        await engine.start()
    runner = Runner(
        app,
        # What a client has packed stays packed, and headers may be long: as the real server has it.
        auto_decompress=False,
        max_line_size=_MAX_HEADER,
        max_field_size=_MAX_HEADER,
        keepalive_timeout=settings.keep_alive,
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=_UNBOUNDED if settings.calls_only else _GRACE,
    )
    await runner.setup()
    # Only now: before, a client must find the port closed.
    await web.SockSite(runner, _bind(settings.host, settings.port)).start()
    _log.info("Application startup complete on port %s", settings.port)
    await stop.wait()
    if not settings.calls_only:
        await _drain(serving, settings)
    await runner.cleanup()
    for engine in serving.engines:
        await engine.stop()


async def _loaded(clock: Clock, settings: ProcessSettings, stop: asyncio.Event) -> bool:
    """Wait as long as loading takes; False if the process is told to end before."""
    _log.info("Starting to load model")
    seconds = None if settings.frozen else clock.wall(settings.load_seconds)
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return True
    return False


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, port))
    return bound


async def _drain(serving: Serving, settings: ProcessSettings) -> None:
    timeout = settings.shutdown_timeout
    _log.info("[shutdown] start mode=%s timeout=%s", "abort" if timeout == 0 else "drain", timeout)
    if settings.drain is not None:
        await settings.drain()
        timeout = 0
    for engine in serving.engines:
        engine.draining = True
    if timeout != 0:
        try:
            async with asyncio.timeout(timeout):
                for engine in serving.engines:
                    await engine.drained()
        except TimeoutError:
            _log.warning("[shutdown] requests are left after %s s", timeout)
    for engine in serving.engines:
        engine.abort_all()
