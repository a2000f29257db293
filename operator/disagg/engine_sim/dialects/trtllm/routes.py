"""Routes of a worker, and errors in its form."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.api.models import answer
from disagg.engine_sim.dialects.trtllm import generate
from disagg.engine_sim.dialects.trtllm.metrics import Registry
from disagg.engine_sim.dialects.trtllm.protocol import ValidationError
from disagg.engine_sim.dialects.trtllm.stats import CacheEvents, IterationStats, RequestStats
from disagg.engine_sim.dialects.trtllm.worker import Worker
from disagg.engine_sim.server import application

_PROMETHEUS = {"Content-Type": "text/plain; version=1.0.0; charset=utf-8"}
_Endpoint = Callable[[Worker, web.Request], Awaitable[web.StreamResponse]]


class Told:
    """What a worker tells of itself."""

    def __init__(
        self,
        registry: Registry,
        iterations: list[IterationStats],
        requests: RequestStats,
        events: list[CacheEvents],
    ) -> None:
        self.registry = registry
        self.iterations = iterations
        self.requests = requests
        self.events = events


def error_response(message: str, status: int = 400, kind: str = "BadRequestError") -> web.Response:
    """An error as the real server writes it."""
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give errors the form that they have here."""
    try:
        return await handler(request)
    except ValidationError as error:
        return error.response()
    except ApiError as error:
        if request.path.startswith("/sim/"):
            # The simulation's own, in every dialect alike.
            raise
        return error_response(error.message, error.status, error.kind)
    except web.HTTPException as error:
        # As FastAPI says it.
        return web.json_response({"detail": error.reason}, status=error.status)


def routes(worker: Worker, told: Told) -> web.Application:
    """The application."""
    app = application(worker.serving)
    app.middlewares.append(errors)
    _generation(app, worker)
    _about(app, worker)
    _load(app, worker, told)
    return app


def _generation(app: web.Application, worker: Worker) -> None:
    def post(path: str, endpoint: _Endpoint) -> None:
        async def handler(http: web.Request) -> web.StreamResponse:
            return await endpoint(worker, http)

        app.router.add_post(path, handler)

    async def health_generate(_http: web.Request) -> web.Response:
        try:
            await generate.probe(worker)
        except ApiError:
            return web.Response(text="Generation health check failed", status=500)
        return web.Response(text="Generation health check OK")

    post("/v1/completions", generate.completions)
    post("/v1/chat/completions", generate.chat_completions)
    app.router.add_get("/health_generate", health_generate, allow_head=False)


def _about(app: web.Application, worker: Worker) -> None:
    created = int(time.time())

    def get(path: str, value: Callable[[], Any]) -> None:
        async def handler(_http: web.Request) -> web.Response:
            return answer(value())

        app.router.add_get(path, handler, allow_head=False)

    async def health(_http: web.Request) -> web.Response:
        # Whether the process is there, not whether its engine moves.
        lost = worker.serving.faults.health_lost
        text = "LLM is unavailable. Please check the server logs for more details."
        return web.Response(text=text, status=503) if lost else web.Response()

    async def offset(_http: web.Request) -> web.Response:
        received = time.monotonic()
        await asyncio.sleep(0.2)
        return answer({"receive_ts": received, "transmit_ts": time.monotonic()})

    async def set_offset(http: web.Request) -> web.Response:
        await http.read()
        return web.Response()

    app.router.add_get("/health", health, allow_head=False)
    get("/version", lambda: {"version": worker.args.version})
    card = {"id": worker.args.name, "object": "model", "created": created, "owned_by": "tensorrt_llm"}
    get("/v1/models", lambda: {"object": "list", "data": [card]})
    info = {"ctx_dp_size": len(worker.serving.engines), "ctx_info_endpoint": None}
    get("/server_info", lambda: {"disaggregated_params": info})
    app.router.add_get("/steady_clock_offset", offset, allow_head=False)
    app.router.add_post("/steady_clock_offset", set_offset)


def _load(app: web.Application, worker: Worker, told: Told) -> None:
    faults = worker.serving.faults

    async def iterations(_http: web.Request) -> web.Response:
        if faults.metrics_lost:
            return web.Response(status=500)
        return answer([item for each in told.iterations for item in each.drain()])

    async def prometheus(_http: web.Request) -> web.Response:
        if faults.metrics_lost:
            return web.Response(status=500)
        return web.Response(body=told.registry.text(), headers=_PROMETHEUS)

    async def requests(_http: web.Request) -> web.Response:
        return answer(told.requests.drain())

    async def events(_http: web.Request) -> web.Response:
        return answer([item for each in told.events for item in each.drain()])

    app.router.add_get("/metrics", iterations, allow_head=False)
    app.router.add_get("/perf_metrics", requests, allow_head=False)
    app.router.add_post("/kv_cache_events", events)
    if worker.args.return_perf_metrics:
        app.router.add_get("/prometheus/metrics", prometheus, allow_head=False)
