"""What a router does with SGLang: both legs at once, with a room that they meet by."""

from __future__ import annotations

import random
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.engine_sim.processes import Engine, Engines, Events, Reply, free_port

MODEL = "org/model"
SCALE = ("--sim-time-scale", "10")
PAGE = ("--page-size=64",)


def new_room() -> int:
    """A room, drawn as routers should."""
    return random.getrandbits(63)


def start_sglang(engines: Engines, mode: str, *arguments: str, **environment: str) -> Engine:
    """An SGLang, not yet ready; mode null stands alone. Later arguments win over those that are always given."""
    return engines.start(
        "--dialect=sglang",
        *SCALE,
        f"--model-path={MODEL}",
        *PAGE,
        f"--disaggregation-mode={mode}",
        "--disaggregation-transfer-backend=nixl",
        "--enable-cache-report",
        "--enable-metrics",
        *arguments,
        **{"SGLANG_HOST_IP": "127.0.0.1", **environment},
    )


def start_prefill(engines: Engines, port: int, *arguments: str, **environment: str) -> Engine:
    """A prefill with its bootstrap server on a port."""
    return start_sglang(
        engines, "prefill", f"--disaggregation-bootstrap-port={port}", *arguments, **environment
    )


@dataclass
class SglangPair:
    """SGLang: prefill and decode at once."""

    prefill: Engine
    decode: Engine
    alone: Engine
    port: int
    legs: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(32))

    def body(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        """A completion that says where the legs meet."""
        return {"model": MODEL, "prompt": prompt, "max_tokens": 20, **self.meeting(), **fields}

    def meeting(self, room: int | None = None) -> dict[str, Any]:
        """Fields that say where the legs meet."""
        return {
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": self.port,
            "bootstrap_room": new_room() if room is None else room,
        }

    def send(self, body: dict[str, Any], path: str = "/v1/completions") -> Future[Reply]:
        """The prefill leg, on its way."""
        return self.legs.submit(self.prefill.post, path, body)

    def both(self, body: dict[str, Any], path: str = "/v1/completions") -> tuple[Reply, Reply]:
        """What prefill and decode answer."""
        prefill = self.send(body, path)
        decode = self.decode.post(path, body)
        return decode, prefill.result(60)

    def complete(self, prompt: Any, **fields: Any) -> Reply:
        """A completion over both."""
        decode, _prefill = self.both(self.body(prompt, **fields))
        return decode

    def stream(self, prompt: Any, **fields: Any) -> Events:
        """The same as a stream."""
        body = self.body(prompt, **fields)
        prefill = self.send(body)
        events = self.decode.stream("/v1/completions", body)
        prefill.result(60)
        return events

    def single(self, prompt: Any, **fields: Any) -> Reply:
        """The same by one engine alone."""
        return self.alone.post(
            "/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 20, **fields}
        )


def sglang_pair(engines: Engines) -> SglangPair:
    """A pair and an engine alone, ready."""
    port = free_port()
    pair = SglangPair(
        start_prefill(engines, port), start_sglang(engines, "decode"), start_sglang(engines, "null"), port
    )
    for engine in (pair.prefill, pair.decode, pair.alone):
        engine.ready()
    return pair
