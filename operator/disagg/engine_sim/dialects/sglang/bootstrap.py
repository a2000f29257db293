"""Prefill's bootstrap server: tells decode which ranks there are, and where.

Routes, answers and their words are those of `CommonKVBootstrapServer`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from disagg.engine_sim.faults import Faults

_log = logging.getLogger("engine_sim.sglang.bootstrap")

_SIZES = ("attn_tp_size", "attn_cp_size", "pp_size")
_QUERY = ("prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank")


class Registry:
    """Ranks of a prefill engine, as they have said that they are there.

    Attributes:
        count: How often one has.
    """

    def __init__(self) -> None:
        self.count = 0
        self._info: dict[str, Any] = {}
        self._ranks: dict[tuple[int, int, int, int], dict[str, Any]] = {}
        self._rooms: dict[int, tuple[int, float]] = {}

    @property
    def ready(self) -> bool:
        """Whether all ranks are there."""
        if not self._info:
            return False
        expected = self._info["dp_size"] * self._info["attn_cp_size"] * self._info["attn_tp_size"]
        return bool(self.count >= expected * self._info["pp_size"])

    @property
    def missing(self) -> str:
        """What is said as long as not all are."""
        return f"Prefill server not fully registered yet ({self.count} workers registered)."

    def register(self, row: dict[str, Any]) -> str | None:
        """A rank is there.

        Args:
            row: What it says of itself.

        Returns:
            Why it is refused; None if it is not.

        Raises:
            KeyError: It lacks something.
            ValueError: Something is no number.
        """
        policy = row.get("decode_allocation_policy", "early")
        if self.count and policy != self._info["decode_allocation_policy"]:
            return "Inconsistent prefill allocation policies"
        shared = int(row["system_dp_size"]) == 1
        size, rank = ("attn_dp_size", "attn_dp_rank") if shared else ("system_dp_size", "system_dp_rank")
        if not self._info:
            port = row.get("prefill_http_port")
            balance = row.get("load_balance_method", "follow_bootstrap_room")
            self._info = {
                **{name: int(row[name]) for name in _SIZES},
                "dp_size": int(row[size]),
                "page_size": int(row["page_size"]),
                "kv_cache_dtype": row["kv_cache_dtype"],
                "follow_bootstrap_room": balance == "follow_bootstrap_room",
                "enable_dsa_cache_layer_split": bool(row.get("enable_dsa_cache_layer_split", False)),
                "enable_kv_cache_sharding": bool(row.get("enable_kv_cache_sharding", False)),
                "prefill_http_port": None if port is None else int(port),
                "decode_allocation_policy": policy,
            }
        place = (int(row[rank]), int(row["attn_cp_rank"]), int(row["attn_tp_rank"]), int(row["pp_rank"]))
        self._ranks[place] = {"rank_ip": str(row["rank_ip"]), "rank_port": int(row["rank_port"])}
        self.count += 1
        return None

    def info(self) -> dict[str, Any]:
        """What all ranks have in common; what decode works out for itself is empty."""
        return {
            **self._info,
            "target_tp_rank": None,
            "target_tp_ranks": None,
            "target_cp_ranks": None,
            "target_pp_ranks": None,
            "required_dst_info_num": None,
            "required_prefill_response_num": None,
        }

    def rank(self, dp: int, cp: int, tp: int, pp: int) -> dict[str, Any] | None:
        """Where a rank is; None if there is no such rank."""
        return self._ranks.get((dp, cp, tp, pp))

    def enter(self, room: int, rank: int, now: float) -> None:
        """A request is on a rank that does not follow from its room."""
        self._rooms[room] = (rank, now)

    def ranks_of(self, rooms: list[Any]) -> dict[str, int]:
        """The ranks of those rooms that have been entered."""
        return {str(int(room)): self._rooms[int(room)][0] for room in rooms if int(room) in self._rooms}

    def forget(self, before: float) -> None:
        """Drop rooms that were entered before a time."""
        self._rooms = {room: entry for room, entry in self._rooms.items() if entry[1] >= before}


class BootstrapServer:
    """The server. It is up while the engine loads."""

    def __init__(self, host: str, port: int, cleanup: float, faults: Faults) -> None:
        """Not yet listening.

        Args:
            host: As the API's.
            port: By --disaggregation-bootstrap-port.
            cleanup: Seconds that the ranks of rooms are remembered.
            faults: What goes wrong: `side_channel_dropped` is this server's.
        """
        self.registry = Registry()
        self._faults = faults
        self._host, self._port, self._cleanup = host, port, cleanup
        self._runner: web.AppRunner | None = None
        self._forgetting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen. A port that is taken is no reason for the real one to end, either: nobody will ever find its ranks."""
        app = web.Application(middlewares=[_gate(self._faults)])
        app.router.add_route("*", "/route", self._route)
        app.router.add_post("/register_dp_rank", self._register_dp_rank)
        app.router.add_post("/query_dp_ranks", self._query_dp_ranks)
        app.router.add_get("/health", self._health)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, reuse_address=True).start()
        except OSError as error:
            _log.error("Server error: %s", error)
            return
        _log.info("CommonKVBootstrapServer started successfully on %s:%s", self._host, self._port)
        self._forgetting = asyncio.ensure_future(self._forget())

    async def stop(self) -> None:
        """Close the port."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _http: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _route(self, http: web.Request) -> web.Response:
        if http.method == "PUT":
            return self._put(await http.json(loads=orjson.loads))
        if http.method == "GET":
            return self._get(http)
        return web.Response(text="Method not allowed", status=405, content_type="application/json")

    def _put(self, row: dict[str, Any]) -> web.Response:
        refusal = self.registry.register(row)
        return web.Response(text=refusal, status=400) if refusal else web.Response(text="OK")

    def _get(self, http: web.Request) -> web.Response:
        asked = [http.query.get(name) for name in _QUERY]
        if not all(asked):
            return web.Response(text="Missing inputs for bootstrap server.", status=400)
        if not self.registry.ready:
            return web.Response(text=self.registry.missing, status=503)
        dp, cp, tp, pp = (int(each or 0) for each in asked)
        if (dp, cp, tp, pp) == (-1, -1, -1, -1):
            return web.json_response(self.registry.info())
        found = self.registry.rank(dp, cp, tp, pp)
        if found is None:
            return web.Response(
                text=f"Bootstrap info not found for dp_rank={dp} cp_rank={cp} tp_rank={tp} pp_rank={pp}",
                status=404,
            )
        return web.json_response(found)

    async def _register_dp_rank(self, http: web.Request) -> web.Response:
        row = await http.json(loads=orjson.loads)
        self.registry.enter(int(row["bootstrap_room"]), int(row["dp_rank"]), time.monotonic())
        return web.Response(text="OK")

    async def _query_dp_ranks(self, http: web.Request) -> web.Response:
        row = await http.json(loads=orjson.loads)
        return web.json_response(self.registry.ranks_of(row["bootstrap_rooms"]))

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(self._cleanup)
            self.registry.forget(time.monotonic() - self._cleanup)


def _gate(faults: Faults) -> Middleware:
    """Lets nobody through while the fault is on."""

    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if faults.side_channel_dropped:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError
        return await handler(request)

    return gate
