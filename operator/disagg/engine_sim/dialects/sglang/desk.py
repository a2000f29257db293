"""Where calls become requests of a rank, and the state that all endpoints share."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from itertools import count

from disagg.engine_sim.api.serving import Serving
from disagg.engine_sim.dialects.sglang.arguments import Arguments
from disagg.engine_sim.dialects.sglang.bootstrap import BootstrapServer
from disagg.engine_sim.dialects.sglang.calls import Call
from disagg.engine_sim.dialects.sglang.errors import SglangError, failure
from disagg.engine_sim.dialects.sglang.places import FAKE_HOST, KVTransferError, Place, place_of
from disagg.engine_sim.dialects.sglang.prefill import PrefillConnector
from disagg.engine_sim.dialects.sglang.settings import Environment
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.request import Output, Request, Sampling

_log = logging.getLogger("engine_sim.sglang")

_POLL = 5.0
"""Seconds between two looks at whether requests are left, while the process ends."""


class ServerStatus(Enum):
    """What /health goes by."""

    STARTING = "Starting"
    UP = "Up"
    UNHEALTHY = "UnHealthy"


@dataclass
class Desk:
    """The API's side of the ranks.

    Attributes:
        serving: Engines, clock, faults.
        args: Command line.
        environment: Variables.
        bootstrap: The server of a prefill.
        status: Whether the engine is well.
        exiting: Whether it was told to end.
        active: Requests that have a client, by id.
        streaming: Ids of those of them whose answers are streams.
        warming: Makes it well.
        opening: Opens the bootstrap server.
    """

    serving: Serving
    args: Arguments
    environment: Environment
    bootstrap: BootstrapServer | None = None
    status: ServerStatus = ServerStatus.STARTING
    exiting: bool = False
    active: dict[str, Request] = field(default_factory=dict)
    streaming: set[str] = field(default_factory=set)
    warming: asyncio.Task[None] | None = None
    opening: asyncio.Task[None] | None = None
    _turn: Iterator[int] = field(default_factory=count)

    # Rooms.

    def places(self, call: Call, prompts: int, *, batch: bool) -> list[Place | None]:
        """Where each prompt of a call is handed over; None where the call does not say.

        Args:
            call: The call.
            prompts: How many there are.
            batch: Whether they came as a list.

        Raises:
            SglangError: The lists of the call are of other lengths.
        """
        if self.args.mode == "null":
            return [None] * prompts
        host, port, room = call.bootstrap_host, call.bootstrap_port, call.bootstrap_room
        if not batch and any(isinstance(each, list) for each in (host, port, room)):
            raise _internal("bootstrap fields of a single prompt must not be lists")
        for each in (host, port, room):
            if isinstance(each, list) and len(each) < prompts:
                raise _internal("list index out of range")
        rooms = (
            room if isinstance(room, list) else [None if room is None else room + i for i in range(prompts)]
        )
        hosts = host if isinstance(host, list) else [host] * prompts
        ports = port if isinstance(port, list) else [port] * prompts
        return [
            None
            if rooms[i] is None
            else Place(
                hosts[i],
                self.args.bootstrap_port if ports[i] is None else ports[i],
                int(rooms[i] or 0),
                call.disagg_prefill_dp_rank,
                # Samples of one prompt share a room and never get out of it (sglang#9224, #24223, #26486, #30723).
                stuck=call.n > 1 and hosts[i] != FAKE_HOST,
            )
            for i in range(prompts)
        ]

    # Requests.

    def submit(
        self,
        call: Call,
        sequences: Sequence[tuple[list[int], Sampling]],
        places: Sequence[Place | None],
        sinks: Sequence[Callable[[Output], None]],
        lora: str | None = None,
    ) -> list[Request]:
        """Hand a call to the ranks: each item of `sequences` is one answer.

        Raises:
            SglangError: It has an id that is taken, or names a rank that there is not.
        """
        engines = self.serving.engines
        if call.rank is not None and not 0 <= call.rank < len(engines):
            raise _internal(f"DP rank {call.rank} is not active.")
        names = self._names(call, len(sequences))
        now = self.serving.clock.now()
        requests = []
        for name, (prompt, sampling), place, sink in zip(names, sequences, places, sinks, strict=True):
            salt = call.cache_salt if isinstance(call.cache_salt, str) else ""
            requests.append(
                Request(
                    id=name,
                    prompt=prompt,
                    sampling=sampling,
                    arrival=now,
                    sink=sink,
                    priority=call.priority or 0,
                    lora=lora,
                    salt=salt,
                    transfer=None if place is None else place.as_transfer(),
                )
            )
        for request in requests:
            self.active[request.id] = request
            if call.stream:
                self.streaming.add(request.id)
            self._start(request, call)
        return requests

    def _names(self, call: Call, amount: int) -> list[str]:
        if isinstance(call.rid, list):
            names = [*call.rid, *(uuid.uuid4().hex for _ in range(amount - len(call.rid)))][:amount]
        elif call.rid is not None:
            names = [call.rid] if amount == 1 else [f"{call.rid}_{index}" for index in range(amount)]
        else:
            names = [uuid.uuid4().hex for _ in range(amount)]
        for name in names:
            if name in self.active or names.count(name) > 1:
                raise SglangError(f"Duplicate request ID detected: {name}", kind="BadRequestError")
        return names

    def _start(self, request: Request, call: Call) -> None:
        place = place_of(request)
        if self.args.mode != "null" and place is None:
            message = (
                "Invalid request: Disaggregated request received without bootstrap room id. "
                f"req.rid={request.id!r}"
            )
            _log.error(message)
            request.transfer = (refused := Place(None, None, 0)).as_transfer()
            refused.fail(message, HTTPStatus.BAD_REQUEST)
            request.sink(Output("", [], finish_reason="error"))
            return
        engine = self._choose(call.rank, place)
        if self._conflict(engine, place, request):
            return
        self.hand_over(engine, request)

    def hand_over(self, engine: Engine, request: Request) -> None:
        """Give a request to a rank, which in prefill waits for decode."""
        if isinstance(engine.connector, PrefillConnector):
            engine.connector.enter(request, engine.submit)
        else:
            engine.submit(request)

    def _choose(self, rank: int | None, place: Place | None) -> Engine:
        engines = self.serving.engines
        if rank is not None:
            return engines[rank]
        if self.args.follow_room and place is not None:
            return engines[place.room % len(engines)]
        return engines[next(self._turn) % len(engines)]

    def _conflict(self, engine: Engine, place: Place | None, request: Request) -> bool:
        """Let decode find the rank; True if it could not."""
        size = len(self.serving.engines)
        if place is None or place.fake or self.args.mode != "prefill":
            return False
        if size == 1 or place.prefill_rank is not None or self.bootstrap is None:
            return False
        if not self.args.follow_room or self.environment.query_rank:
            self.bootstrap.registry.enter(place.room, engine.rank, asyncio.get_running_loop().time())
            return False
        implied = place.room % size
        if engine.rank == implied:
            return False
        error = KVTransferError(
            place.room,
            f"follow_bootstrap_room conflict: dispatched to dp_rank {engine.rank} but bootstrap_room {place.room} implies "
            f"dp_rank {implied}. Set SGLANG_DISAGGREGATION_FORCE_QUERY_PREFILL_DP_RANK=1 to allow mixed routing.",
        )
        place.fail(
            f"Prefill bootstrap failed for request rank=0 req.rid={request.id!r} req.bootstrap_room={place.room} with "
            f"exception {error}"
        )
        request.sink(Output("", [], finish_reason="error"))
        return True

    def abort(self, request: Request) -> None:
        """End a request, wherever it is."""
        for engine in self.serving.engines:
            if isinstance(engine.connector, PrefillConnector) and engine.connector.leave(request):
                return
            engine.abort(request.id)

    def leave(self, requests: Sequence[Request]) -> None:
        """A call is over, or its client has gone."""
        for request in requests:
            self.active.pop(request.id, None)
            self.abort(request)
            self.streaming.discard(request.id)

    # The end.

    async def drain(self) -> None:
        """Wait until no request is left, however long that takes; /health tells at once that this is the end."""
        self.exiting = True
        while (
            self.active and self.status is not ServerStatus.UNHEALTHY and not self.environment.force_shutdown
        ):
            _log.info("Gracefully exiting... Remaining number of requests %s.", len(self.active))
            await asyncio.sleep(self.serving.clock.wall(_POLL))


def why(request: Request) -> SglangError:
    """What the client of a request is told that has failed."""
    place = place_of(request)
    if place is not None and place.failure is not None:
        return failure(*place.failure)
    return SglangError("Internal server error", status=HTTPStatus.INTERNAL_SERVER_ERROR, kind="500")


def _internal(message: str) -> SglangError:
    return SglangError(
        f"Internal server error: {message}",
        status=HTTPStatus.INTERNAL_SERVER_ERROR,
        kind="InternalServerError",
    )
