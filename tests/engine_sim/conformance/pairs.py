"""What a router does, for each dialect: one request over prefill and decode.

Tests of this folder that take `pair` hold for every dialect in `PAIRS`; a new dialect adds itself there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tests.engine_sim.conformance.sglang_pair import sglang_pair
from tests.engine_sim.conformance.trtllm import trtllm_pair
from tests.engine_sim.processes import Engine, Engines, Events, Reply, free_port
from tests.engine_sim.real_vllm import IS_WANTED

SCALE = ("--sim-time-scale", "10")
MODEL = "org/model"
LENGTH = "--max-model-len=4096"
"""Buckets of histograms depend on it; this is what the recorded metrics are of."""
PROMPT = "the memory of a cluster is what a prompt leaves behind, block by block, " * 6
DEAD = {
    "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "type": "InternalServerError",
    "param": None,
    "code": 500,
}
"""What vLLM answers once its engine is dead."""


class Pair(Protocol):
    """A prefill and a decode engine, and one that does everything alone."""

    prefill: Engine
    decode: Engine
    alone: Engine

    def complete(self, prompt: Any, **fields: Any) -> Reply:
        """A completion over both."""

    def stream(self, prompt: Any, **fields: Any) -> Events:
        """The same as a stream."""

    def single(self, prompt: Any, **fields: Any) -> Reply:
        """The same by one engine alone."""


def nixl(role: str, **more: Any) -> str:
    """The flag for a NIXL connector."""
    return "--kv-transfer-config=" + json.dumps({"kv_connector": "NixlConnector", "kv_role": role, **more})


def start_vllm(engines: Engines, role: str, *arguments: str, port: int | None = None, **more: Any) -> Engine:
    """A vLLM with a NIXL connector; `more` goes into its config. Its leases outlast any test, unless that says so."""
    # A real one is busy as long as it has leases, and its time is not scaled.
    lease = 120 if IS_WANTED else 9000
    config = {"kv_connector_extra_config": {"kv_lease_duration": lease}, **more}
    return engines.start(
        "serve",
        MODEL,
        *SCALE,
        *arguments,
        nixl(role, **config),
        VLLM_NIXL_SIDE_CHANNEL_HOST="127.0.0.1",
        VLLM_NIXL_SIDE_CHANNEL_PORT=str(port or free_port()),
    )


def prefill_body(body: dict[str, Any]) -> dict[str, Any]:
    """What the router sends to prefill."""
    return {
        **{
            key: value for key, value in body.items() if key not in {"stream", "stream_options", "min_tokens"}
        },
        "max_tokens": 1,
        "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False},
    }


@dataclass
class VllmPair:
    """vLLM: prefill, then decode with what prefill has said."""

    prefill: Engine
    decode: Engine
    alone: Engine

    def leg(self, body: dict[str, Any], request_id: str = "r") -> dict[str, Any]:
        """What prefill answers."""
        reply = self.prefill.post("/v1/completions", prefill_body(body), {"X-Request-Id": request_id})
        assert reply.status == 200, reply.body
        found: dict[str, Any] = reply.body["kv_transfer_params"]
        return found

    def body(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        return {"model": MODEL, "prompt": prompt, "max_tokens": 20, "temperature": 0, **fields}

    def complete(self, prompt: Any, **fields: Any) -> Reply:
        body = self.body(prompt, **fields)
        body["kv_transfer_params"] = self.leg(body)
        return self.decode.post("/v1/completions", body, {"X-Request-Id": "r"})

    def stream(self, prompt: Any, **fields: Any) -> Events:
        body = self.body(prompt, **fields)
        body["kv_transfer_params"] = self.leg(body)
        return self.decode.stream("/v1/completions", body, {"X-Request-Id": "r"})

    def single(self, prompt: Any, **fields: Any) -> Reply:
        return self.alone.post("/v1/completions", self.body(prompt, **fields))


def decode(engine: Engine, params: dict[str, Any], **fields: Any) -> Reply:
    """What decode answers to `PROMPT`, told these parameters."""
    own = {"model": MODEL, "prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    body = {**own, **fields, "kv_transfer_params": params}
    return engine.post("/v1/completions", body, {"X-Request-Id": "r"})


def vllm_pair(engines: Engines) -> VllmPair:
    pair = VllmPair(
        start_vllm(engines, "kv_producer", LENGTH, "--enable-prompt-tokens-details"),
        start_vllm(engines, "kv_consumer", LENGTH, "--enable-prompt-tokens-details"),
        engines.start("serve", MODEL, *SCALE, LENGTH),
    )
    for engine in (pair.prefill, pair.decode, pair.alone):
        engine.ready()
    return pair


PAIRS: dict[str, Callable[[Engines], Pair]] = {"vllm": vllm_pair}
if not IS_WANTED:
    PAIRS |= {"sglang": sglang_pair, "trtllm": trtllm_pair}


def block_size(engine: Engine) -> int:
    """Tokens of a block."""
    return int(engine.label("vllm:cache_config_info", "block_size"))


@contextmanager
def slow(engine: Engine, factor: float = 50.0) -> Iterator[None]:
    """Let an engine take its time, as real ones do by themselves."""
    if not engine.is_stand_in:
        yield
        return
    engine.fault(slow=factor)
    try:
        yield
    finally:
        engine.fault(slow=1.0)


def stepped_metric(engine: Engine, name: str) -> float:
    """A metric of which an engine tells what was true in its last step: one is made before."""
    step = engine.post("/v1/completions", {"model": MODEL, "prompt": "a step", "max_tokens": 2})
    assert step.status == 200, step.body
    return engine.metric(name)


def blocks_in_use(engine: Engine) -> int:
    """Blocks that hold something which is still wanted."""
    usage = stepped_metric(engine, "vllm:kv_cache_usage_perc")
    return round(usage * (int(engine.label("vllm:cache_config_info", "num_gpu_blocks")) - 1))
