"""vLLM's routes."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from disagg.engine_sim.api import generate, models
from disagg.engine_sim.api.serving import Serving
from disagg.engine_sim.dialects.vllm.arguments import Arguments
from disagg.engine_sim.dialects.vllm.metrics import Registry
from disagg.engine_sim.server import application

_Endpoint = Callable[[Serving, web.Request], Awaitable[web.StreamResponse]]


def routes(serving: Serving, registry: Registry, args: Arguments) -> web.Application:  # noqa: C901 - a list of checks
    """The application."""
    app = application(serving, registry.observe_http)
    if args.api_keys:
        app.middlewares.append(_keys(args.api_keys))
    add = app.router.add_route

    def post(path: str, endpoint: _Endpoint) -> None:
        async def handler(http: web.Request) -> web.StreamResponse:
            return await endpoint(serving, http)

        add("POST", path, handler)

    async def reset(_http: web.Request) -> web.Response:
        for engine in serving.engines:
            engine.scheduler.pool.clear()
        return web.Response()

    post("/v1/completions", generate.completions)
    post("/v1/chat/completions", generate.chat_completions)
    post("/tokenize", models.tokenize)
    post("/detokenize", models.detokenize)
    if args.development:
        add("POST", "/reset_prefix_cache", reset)
    if args.runtime_loras:
        post("/v1/load_lora_adapter", models.load_lora)
        post("/v1/unload_lora_adapter", models.unload_lora)

    async def health(_http: web.Request) -> web.Response:
        return web.Response(status=503 if serving.faults.health_lost else 200)

    async def metrics(_http: web.Request) -> web.Response:
        if serving.faults.metrics_lost:
            return web.Response(status=500)
        _lora_info(serving, registry, args)
        return web.Response(
            body=registry.text(), headers={"Content-Type": "text/plain; version=1.0.0; charset=utf-8"}
        )

    async def load(_http: web.Request) -> web.Response:
        # Not this call itself.
        return models.answer({"server_load": serving.load - 1})

    async def version(_http: web.Request) -> web.Response:
        return models.answer({"version": args.version})

    async def listed(_http: web.Request) -> web.Response:
        return models.answer(models.models(serving))

    add("GET", "/health", health)
    add("GET", "/ping", health)
    add("POST", "/ping", health)
    add("*", "/metrics", metrics)
    add("GET", "/load", load)
    add("GET", "/version", version)
    add("GET", "/v1/models", listed)
    return app


def _lora_info(serving: Serving, registry: Registry, args: Arguments) -> None:
    if not args.enable_lora:
        return
    running, waiting = set(), set()
    for engine in serving.engines:
        running |= {request.lora for request in engine.scheduler.running if request.lora}
        waiting |= {request.lora for request in engine.scheduler.waiting() if request.lora}
    registry.lora_info(args.max_loras, ",".join(sorted(running)), ",".join(sorted(waiting)))


def _keys(keys: tuple[str, ...]) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith("/v1"):
            kind, _space, given = request.headers.get("Authorization", "").partition(" ")
            if kind.lower() != "bearer" or not any(hmac.compare_digest(given, key) for key in keys):
                return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    return check
