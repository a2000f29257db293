"""`trtllm-serve disaggregated`: the context server first, then the generation server with what the first has said."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from disagg.engine_sim.api.models import answer
from disagg.engine_sim.api.serving import Models, Serving
from disagg.engine_sim.api.streams import DONE
from disagg.engine_sim.clock import Clock
from disagg.engine_sim.dialects import Instance, StartError
from disagg.engine_sim.dialects.trtllm.orchestrator_config import OrchestratorConfig, parse
from disagg.engine_sim.dialects.trtllm.protocol import (
    CONTEXT,
    GENERATION,
    ChatCall,
    CompletionCall,
    ValidationError,
    read,
)
from disagg.engine_sim.dialects.trtllm.protocol import body as body_of
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.server import ProcessSettings, application
from disagg.engine_sim.sim_flags import SimFlags

_log = logging.getLogger("engine_sim.trtllm")

_HEALTH_SECONDS = 3.0
_RETRY_SECONDS = 1.0
_UNFINISHED = frozenset({"length", "not_finished"})
_REFUSED = range(400, 500)
_NO_LISTS = "Disaggregated server currently only supports single string prompt or list of integers in request"


def orchestrator(arguments: Sequence[str], environment: Mapping[str, str], sim: SimFlags) -> Instance:
    """The process.

    Args:
        arguments: After `disaggregated`.
        environment: Variables.
        sim: The simulation's own flags.

    Raises:
        StartError: The real one would not start.
    """
    del environment
    config = parse(arguments, sim.engine_version)
    _check_free(config)
    clock = Clock(sim.time_scale)
    # There is no engine: what stands around one is of use.
    serving = Serving([], Models([], "", 0), clock, Faults())
    app = application(serving)
    app.middlewares.append(_errors)
    _Orchestrator(config, clock).add_to(app)
    settings = ProcessSettings(
        host=config.host, port=config.port, keep_alive=config.keep_alive, calls_only=True
    )
    return Instance(serving, app, settings)


def _check_free(config: OrchestratorConfig) -> None:
    """The real one binds its port at once, and listens once all servers are there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except (OSError, OverflowError) as error:
            raise StartError(
                f"RuntimeError: Failed to bind socket to {config.host}:{config.port}: {error}"
            ) from error


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """All that goes wrong behind the orchestrator is its own error to the client."""
    try:
        return await handler(request)
    except ValidationError as error:
        return error.response()
    except web.HTTPException as error:
        return web.json_response({"detail": error.reason}, status=error.status)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        _log.error("Internal server error: %r", error)
        return web.json_response({"detail": f"Internal server error {error}"}, status=500)


class _Orchestrator:
    """Both roles' servers, each in turn."""

    def __init__(self, config: OrchestratorConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._contexts = itertools.cycle(config.contexts)
        self._generations = itertools.cycle(config.generations)
        self._numbers = itertools.count()
        self._session: aiohttp.ClientSession | None = None

    def add_to(self, app: web.Application) -> None:
        """Add routes, and what must be done before they are open."""
        app.cleanup_ctx.append(self._lifespan)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chats)

        async def health(_http: web.Request) -> web.Response:
            return web.Response()

        async def version(_http: web.Request) -> web.Response:
            return answer({"version": self._config.version})

        async def cluster(_http: web.Request) -> web.Response:
            return answer({"is_ready": True})

        async def metrics(_http: web.Request) -> web.Response:
            return answer([])

        for path, handler in (
            ("/health", health),
            ("/version", version),
            ("/cluster_info", cluster),
            ("/perf_metrics", metrics),
        ):
            app.router.add_get(path, handler, allow_head=False)

    async def _lifespan(self, _app: web.Application) -> AsyncIterator[None]:
        timeout = aiohttp.ClientTimeout(total=self._clock.wall(self._config.request_timeout))
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=1)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            self._session = session
            await self._wait(session)
            yield

    async def _wait(self, session: aiohttp.ClientSession) -> None:
        end = self._clock.now() + self._config.start_timeout
        servers = (*self._config.contexts, *self._config.generations)
        while True:
            ready = await asyncio.gather(*(_is_ready(session, server) for server in servers))
            if all(ready):
                return
            missing = [server for server, there in zip(servers, ready, strict=True) if not there]
            _log.info("Waiting for servers: %s", missing)
            if self._clock.now() >= end:
                raise StartError(
                    "TimeoutError: Timeout waiting for context and generation servers to be ready"
                )
            await self._clock.sleep_until(min(end, self._clock.now() + _HEALTH_SECONDS))

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        data = await body_of(http)
        read(data, CompletionCall)
        body = orjson.loads(data)
        prompt = body["prompt"]
        if isinstance(prompt, list) and len(prompt) == 1:
            body["prompt"] = prompt = prompt[0]
        if isinstance(prompt, int):
            body["prompt"] = [prompt]
        elif isinstance(prompt, list) and not all(isinstance(each, int) for each in prompt):
            raise ValueError(_NO_LISTS)
        return await self._both(http, body, "prompt")

    async def _chats(self, http: web.Request) -> web.StreamResponse:
        data = await body_of(http)
        read(data, ChatCall)
        return await self._both(http, orjson.loads(data), "prompt_token_ids")

    async def _both(self, http: web.Request, body: dict[str, Any], tokens: str) -> web.StreamResponse:
        """Ask the one, then the other.

        Args:
            http: The client's call.
            body: Of it.
            tokens: Field in which the prompt's tokens go to the generation server.
        """
        number = self._number()
        context = await self._post(http.path, next(self._contexts), _context_body(body, number))
        choice = _checked(context)
        if choice.get("finish_reason") not in _UNFINISHED:
            # All is said. A stream gets nothing of it, with the real one as well.
            del choice["disaggregated_params"]
            if body.get("stream"):
                return web.Response(body=DONE, headers={"Content-Type": "text/event-stream"})
            return answer(context)
        body[tokens] = context["prompt_token_ids"]
        body["disaggregated_params"] = choice["disaggregated_params"] | {
            "request_type": GENERATION,
            "disagg_request_id": number,
            "ctx_usage": context.get("usage"),
        }
        server = next(self._generations)
        if body.get("stream"):
            return await self._stream(http, server, body)
        return answer(await self._post(http.path, server, body))

    def _number(self) -> int:
        """A request id that is nobody else's: time, this orchestrator, and a number."""
        low = next(self._numbers) % 4096
        return (int(time.time() * 1000) << 20 | self._config.node_id << 12 | low) & (1 << 63) - 1

    async def _post(self, path: str, server: str, body: dict[str, Any]) -> dict[str, Any]:
        for attempt in self._attempts():
            try:
                async with self._ask(path, server, body) as response:
                    found: dict[str, Any] = await response.json()
                    return found
            except (aiohttp.ClientError, OSError) as error:
                if self._is_final(error, attempt):
                    raise
                _log.warning("%s%s: %s: once more", server, path, error)
                await asyncio.sleep(_RETRY_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    async def _stream(self, http: web.Request, server: str, body: dict[str, Any]) -> web.StreamResponse:
        """Hand on a stream. The client has its status before the generation server is asked."""
        found = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await found.prepare(http)
        written = False
        for attempt in self._attempts():
            try:
                async with self._ask(http.path, server, body) as response:
                    async for data in response.content.iter_any():
                        written = True
                        await found.write(data)
                break
            except (aiohttp.ClientError, OSError) as error:
                if not written and not self._is_final(error, attempt):
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                _log.error("%s: the stream ends here: %s", server, error)
                if http.transport is not None:
                    http.transport.abort()
                return found
        await found.write_eof()
        return found

    def _attempts(self) -> Iterator[int]:
        """The attempts that there are, each with how many follow."""
        yield from range(self._config.max_retries, -1, -1)

    @staticmethod
    def _is_final(error: Exception, left: int) -> bool:
        # A timeout is an OSError, so it is tried once more as well: a request may take twice its time.
        refused = isinstance(error, aiohttp.ClientResponseError) and error.status in _REFUSED
        return refused or left == 0

    @asynccontextmanager
    async def _ask(
        self, path: str, server: str, body: dict[str, Any]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise AssertionError("not started")
        headers = {"Content-Type": "application/json"}
        async with self._session.post(
            f"http://{server}{path}", data=orjson.dumps(body), headers=headers
        ) as response:
            if response.status >= _REFUSED.start:
                raise aiohttp.ClientResponseError(
                    response.request_info,
                    response.history,
                    status=response.status,
                    message=f"{response.reason}: {(await response.text())[:2048]}",
                )
            yield response


async def _is_ready(session: aiohttp.ClientSession, server: str) -> bool:
    try:
        async with session.get(f"http://{server}/health") as response:
            return response.status == web.HTTPOk.status_code
    except (aiohttp.ClientError, OSError):
        return False


def _context_body(body: Mapping[str, Any], number: int) -> dict[str, Any]:
    params = {"request_type": CONTEXT, "disagg_request_id": number}
    return {**body, "disaggregated_params": params, "stream": False, "stream_options": None}


def _checked(context: dict[str, Any]) -> dict[str, Any]:
    """The choice of a context server.

    Raises:
        ValueError: It is none that a generation server could go on with.
    """
    choices = context["choices"]
    if len(choices) != 1:
        raise ValueError(f"Context server returned {len(choices)} choices, expecting 1.")
    choice: dict[str, Any] = choices[0]
    params, reason = choice.get("disaggregated_params"), choice.get("finish_reason")
    if params is None:
        raise ValueError(f"Context server did not return disaggregated params. finish_reason={reason!r}")
    if params.get("ctx_request_id") is None:
        raise ValueError("Invalid disaggregated params: ctx_request_id is None.")
    return choice
