"""SGLang's routes."""

from __future__ import annotations

import asyncio
import datetime as dt
import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from disagg.engine_sim.dialects.sglang import generate, health
from disagg.engine_sim.dialects.sglang.calls import parse, plain, read
from disagg.engine_sim.dialects.sglang.decode import DecodeConnector
from disagg.engine_sim.dialects.sglang.desk import Desk
from disagg.engine_sim.dialects.sglang.errors import SglangError, unauthorized
from disagg.engine_sim.dialects.sglang.metrics import Registry
from disagg.engine_sim.dialects.sglang.places import KVTransferError, place_of
from disagg.engine_sim.dialects.sglang.prefill import PrefillConnector
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.request import Request, Status
from disagg.engine_sim.server import application
from disagg.engine_sim.text import decode as text_of
from disagg.engine_sim.text import encode

_Endpoint = Callable[[Desk, web.Request], Awaitable[web.StreamResponse]]

_OPEN = {"/health", "/health_generate", "/ready", "/ping", "/metrics"}
"""Paths that need no key."""


class AbortCall(msgspec.Struct):
    """POST /abort_request."""

    rid: str | None = None
    abort_all: bool = False


class LoraCall(msgspec.Struct):
    """POST /load_lora_adapter and /unload_lora_adapter."""

    lora_name: str
    lora_path: str = ""
    pinned: bool = False


class Tokenize(msgspec.Struct):
    """POST /tokenize."""

    prompt: str | list[str]
    model: str = "default"
    add_special_tokens: bool = True


class Detokenize(msgspec.Struct):
    """POST /detokenize."""

    tokens: list[int]
    model: str = "default"


def routes(desk: Desk, registry: Registry) -> web.Application:  # noqa: C901 - a list of routes
    """The application."""
    app = application(desk.serving)
    if desk.args.api_key:
        app.middlewares.append(_key(desk.args.api_key))

    def add(methods: str, path: str, endpoint: _Endpoint) -> None:
        async def handler(http: web.Request) -> web.StreamResponse:
            return await endpoint(desk, http)

        for method in methods.split():
            app.router.add_route(method, path, handler)

    add("POST", "/v1/completions", generate.completions)
    add("POST", "/v1/chat/completions", generate.chat_completions)
    for path in ("/health", "/health_generate"):
        add("GET", path, health.health)
    for path in ("/ready", "/ping"):
        add("GET", path, _flag)
    add("GET", "/v1/models", _models)
    add("GET", "/v1/models/{model:.+}", _model)
    for path in ("/model_info", "/get_model_info"):
        add("GET", path, _model_info)
    for path in ("/server_info", "/get_server_info"):
        add("GET", path, _server_info)
    add("GET", "/v1/loads", _loads)
    add("GET POST", "/flush_cache", _flush_cache)
    add("POST", "/abort_request", _abort_request)
    add("POST", "/load_lora_adapter", _load_lora)
    add("POST", "/unload_lora_adapter", _unload_lora)
    for path in ("/tokenize", "/v1/tokenize"):
        add("POST", path, _tokenize)
    for path in ("/detokenize", "/v1/detokenize"):
        add("POST", path, _detokenize)
    if desk.args.enable_metrics:

        async def metrics(desk: Desk, _http: web.Request) -> web.Response:
            if desk.serving.faults.metrics_lost:
                return web.Response(status=500)
            return web.Response(
                body=registry.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
            )

        add("GET", "/metrics", metrics)
    app.on_startup.append(lambda _app: _warm_up(desk))
    app.on_cleanup.append(lambda _app: _stop(desk))
    return app


async def _warm_up(desk: Desk) -> None:
    # Beside the server, which is there already and says 503.
    desk.warming = asyncio.create_task(health.warm_up(desk))


async def _stop(desk: Desk) -> None:
    if desk.warming is not None:
        desk.warming.cancel()
    if desk.bootstrap is not None:
        await desk.bootstrap.stop()


async def _flag(desk: Desk, _http: web.Request) -> web.Response:
    return health.flag(desk)


def _card(name: str, root: str, parent: str | None, length: int | None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": root,
        "parent": parent,
        "max_model_len": length,
    }


async def _models(desk: Desk, _http: web.Request) -> web.Response:
    models = desk.serving.models
    name = models.names[0]
    cards = [_card(name, name, None, models.max_model_len)]
    if models.lora_enabled:
        cards += [_card(lora, path, name, None) for lora, path in models.loras.items()]
    return plain({"object": "list", "data": cards})


async def _model(desk: Desk, http: web.Request) -> web.Response:
    models, name = desk.serving.models, http.match_info["model"]
    if name not in models.names:
        message = f"The model '{name}' does not exist"
        error = {
            "message": message,
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return web.json_response({"error": error}, status=404)
    return plain(_card(name, name, None, models.max_model_len))


async def _model_info(desk: Desk, _http: web.Request) -> web.Response:
    args = desk.args
    return plain(
        {
            "model_path": args.model_path,
            "served_model_name": args.served_model_name,
            "tokenizer_path": args.model_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "load_format": "auto",
            "reasoning_parser": args.reasoning_parser,
            "tool_call_parser": args.tool_call_parser,
            "disaggregation_mode": args.mode,
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
        }
    )


async def _server_info(desk: Desk, _http: web.Request) -> web.Response:
    args, serving = desk.args, desk.serving
    pool = serving.engines[0].scheduler.pool
    return plain(
        {
            "model_path": args.model_path,
            "served_model_name": args.served_model_name,
            "host": args.host,
            "port": args.port,
            "tp_size": args.tp_size,
            "dp_size": args.dp_size,
            "pp_size": args.pp_size,
            "enable_dp_attention": args.attention_dp,
            "page_size": args.page_size,
            "kv_cache_dtype": args.kv_cache_dtype,
            "context_length": args.context_length,
            "max_running_requests": args.max_running_requests,
            "max_total_num_tokens": (pool.count - 1) * args.page_size,
            "max_req_input_len": serving.models.max_model_len,
            "disaggregation_mode": args.mode,
            "disaggregation_transfer_backend": args.transfer_backend,
            "disaggregation_bootstrap_port": args.bootstrap_port,
            "disable_radix_cache": not args.radix_cache,
            "enable_lora": args.enable_lora,
            "enable_metrics": args.enable_metrics,
            "internal_states": [
                {"effective_max_running_requests_per_dp": args.max_running_requests} for _ in serving.engines
            ],
            "version": args.version,
            "frontend": "python",
        }
    )


def _load(desk: Desk, engine: Engine) -> dict[str, Any]:
    scheduler, size = engine.scheduler, desk.args.page_size
    pool = scheduler.pool
    used = (pool.count - 1 - pool.free) * size
    found: dict[str, Any] = {
        "dp_rank": engine.rank,
        "num_running_reqs": len(scheduler.running),
        "num_waiting_reqs": scheduler.num_waiting,
        "num_total_reqs": len(scheduler.requests),
        "num_used_tokens": used,
        "max_total_num_tokens": (pool.count - 1) * size,
        "token_usage": pool.usage,
        "max_running_requests": desk.args.max_running_requests,
    }
    if isinstance(engine.connector, PrefillConnector):
        found["disaggregation"] = {
            "mode": "prefill",
            "prefill_bootstrap_queue_reqs": engine.connector.bootstrapping,
            "prefill_inflight_queue_reqs": engine.connector.inflight,
        }
    elif isinstance(engine.connector, DecodeConnector):
        found["disaggregation"] = {
            "mode": "decode",
            "decode_prealloc_queue_reqs": sum(
                each.remote and not each.pulled for each in scheduler.waiting()
            ),
            "decode_transfer_queue_reqs": len(scheduler.remote),
        }
    return found


async def _loads(desk: Desk, http: web.Request) -> web.Response:
    wanted = http.query.get("dp_rank")
    loads = [_load(desk, each) for each in desk.serving.engines if wanted is None or str(each.rank) == wanted]
    if http.query.get("format") == "prometheus":
        return web.Response(text=_as_prometheus(loads))
    return plain(
        {
            "timestamp": dt.datetime.now(dt.UTC).isoformat(),
            "version": desk.args.version,
            "accelerator": None,
            "num_accelerators": desk.args.tp_size
            * desk.args.pp_size
            // (desk.args.dp_size if desk.args.attention_dp else 1),
            "loads": loads,
        }
    )


def _as_prometheus(loads: list[dict[str, Any]]) -> str:
    samples: dict[str, list[str]] = {}
    for load in loads:
        flat = {f"sglang_{key}": value for key, value in load.items()}
        flat |= {f"sglang_disagg_{key}": value for key, value in load.get("disaggregation", {}).items()}
        for name, value in flat.items():
            if isinstance(value, int | float) and name != "sglang_dp_rank":
                samples.setdefault(name, []).append(f'{name}{{dp_rank="{load["dp_rank"]}"}} {value}')
    return (
        "\n".join(line for name, lines in samples.items() for line in (f"# TYPE {name} gauge", *lines)) + "\n"
    )


async def _flush_cache(desk: Desk, _http: web.Request) -> web.Response:
    busy = any(engine.scheduler.requests for engine in desk.serving.engines) or bool(desk.active)
    if busy or not all(engine.scheduler.pool.clear() for engine in desk.serving.engines):
        return web.Response(text="Flush cache failed.\n", status=400)
    return web.Response(
        text="Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the "
        "operation will not be performed.)\n"
    )


async def _abort_request(desk: Desk, http: web.Request) -> web.Response:
    call = parse(await http.read(), AbortCall)
    names = list(desk.active) if call.abort_all else [call.rid] if call.rid else []
    for name in names:
        request = desk.active.get(name)
        if request is not None:
            _abort(desk, request)
    return web.Response()


def _abort(desk: Desk, request: Request) -> None:
    """End a request by its id. One that still waits for its other half fails; one that runs has ended, with what it has."""
    place = place_of(request)
    if place is not None and request.status is not Status.RUNNING:
        error = KVTransferError(place.room, "Aborted by AbortReq.")
        side = "Prefill bootstrap" if desk.args.mode == "prefill" else "Decode transfer"
        place.fail(
            f"{side} failed for request rank=0 req.rid={request.id!r} req.bootstrap_room={place.room} with exception {error}"
        )
    desk.abort(request)


async def _load_lora(desk: Desk, http: web.Request) -> web.Response:
    call, models = await read(http, LoraCall), desk.serving.models
    if not models.lora_enabled:
        return _lora_answer(desk, "LoRA is not enabled. Please set `--enable-lora` to enable LoRA.")
    if call.lora_name in models.loras:
        return _lora_answer(desk, f"LoRA adapter {call.lora_name} is already loaded.")
    if not call.lora_path:
        raise SglangError("1 validation error: Object missing required field `lora_path`", kind="Bad Request")
    models.loras[call.lora_name] = call.lora_path
    return _lora_answer(desk, None)


async def _unload_lora(desk: Desk, http: web.Request) -> web.Response:
    call, models = await read(http, LoraCall), desk.serving.models
    if not models.lora_enabled:
        return _lora_answer(desk, "LoRA is not enabled. Please set `--enable-lora` to enable LoRA.")
    if models.loras.pop(call.lora_name, None) is None:
        return _lora_answer(desk, f"LoRA adapter {call.lora_name} is not loaded.")
    return _lora_answer(desk, None)


def _lora_answer(desk: Desk, error: str | None) -> web.Response:
    body = {
        "success": error is None,
        "error_message": error,
        "loaded_adapters": dict(desk.serving.models.loras),
    }
    return web.json_response(body, status=400 if error else 200)


async def _tokenize(desk: Desk, http: web.Request) -> web.Response:
    call = await read(http, Tokenize)
    found = encode(call.prompt) if isinstance(call.prompt, str) else [encode(each) for each in call.prompt]
    count = (
        len(found)
        if isinstance(call.prompt, str)
        else [len(each) for each in found if isinstance(each, list)]
    )
    return plain({"tokens": found, "count": count, "max_model_len": desk.serving.models.max_model_len})


async def _detokenize(_desk: Desk, http: web.Request) -> web.Response:
    return plain({"text": text_of((await read(http, Detokenize)).tokens)})


def _key(key: str) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in _OPEN and not request.path.startswith("/sim/"):
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), key.encode()):
                return unauthorized()
        return await handler(request)

    return check
