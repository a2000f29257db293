"""TensorRT-LLM's workers and orchestrator as processes, and what the orchestrator does by hand."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from disagg.engine_sim.main import main
from tests.engine_sim.processes import Engine, Engines, Events, Reply, free_port

MODEL = "org/model"
SIM = ("--dialect=trtllm", "--sim-time-scale=10")


def config(role: str = "", **changes: Any) -> dict[str, Any]:
    """A file as the operator renders it, with sections changed."""
    found: dict[str, Any] = {
        "cache_transceiver_config": {"backend": "NIXL", "kv_transfer_timeout_ms": 120000},
        "kv_cache_config": {"enable_block_reuse": True, "tokens_per_block": 32, "dtype": "auto"},
        "return_perf_metrics": True,
        "enable_iter_perf_stats": True,
    }
    if role == "context":
        found["disable_overlap_scheduler"] = True
    for name, value in changes.items():
        found[name] = found[name] | value if isinstance(found.get(name), dict) else value
    return found


def written(folder: Path, content: Any) -> Path:
    """A file with YAML."""
    path = folder / f"{len(list(folder.iterdir()))}.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def start(
    engines: Engines, content: Mapping[str, Any], *arguments: str, model: str = MODEL, **environment: str
) -> Engine:
    """A worker; not yet ready."""
    path = written(engines.folder, dict(content))
    return engines.start(*SIM, model, f"--extra_llm_api_options={path}", *arguments, **environment)


def exit_of(*arguments: str) -> tuple[int, str]:
    """How a process ends that should not start; without a process, as there are many of them."""
    said = io.StringIO()
    with redirect_stderr(said):
        try:
            status = main([*SIM, *arguments])
        except SystemExit as end:
            status = int(end.code or 0)
    return status, said.getvalue()


def sample(engine: Engine, name: str, **labels: str) -> float | None:
    """A metric of the Prometheus endpoint, if there is such a sample."""
    for family in text_string_to_metric_families(engine.get("/prometheus/metrics").body):
        for each in family.samples:
            if each.name == name and labels.items() <= each.labels.items():
                return float(each.value)
    return None


class Orchestrator(Engine):
    """`trtllm-serve disaggregated`. Its port stands in its file."""

    def __init__(
        self,
        engines: Engines,
        contexts: list[Engine],
        generations: list[Engine],
        *arguments: str,
        **more: Any,
    ) -> None:
        port = free_port()
        content = {
            "hostname": "127.0.0.1",
            "port": port,
            "backend": "pytorch",
            "context_servers": _servers(contexts),
            "generation_servers": _servers(generations),
            **more,
        }
        command = [*SIM, "disaggregated", "-c", str(written(engines.folder, content)), *arguments]
        super().__init__(command, {}, engines.folder / f"orchestrator-{port}.log", port=port)


def _servers(engines: list[Engine]) -> dict[str, Any]:
    return {"num_instances": len(engines), "urls": [f"localhost:{engine.port}" for engine in engines]}


def completion(prompt: Any, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "max_tokens": 20, **fields}


def context_body(body: dict[str, Any], **params: Any) -> dict[str, Any]:
    """What goes to the context worker."""
    return {
        **body,
        "stream": False,
        "stream_options": None,
        "disaggregated_params": {"request_type": "context_only", **params},
    }


def generation_body(body: dict[str, Any], context: Reply, **params: Any) -> dict[str, Any]:
    """What goes to the generation worker after the context worker's answer."""
    assert context.status == 200, context.body
    field = "prompt_token_ids" if "messages" in body else "prompt"
    return {
        **body,
        field: context.body["prompt_token_ids"],
        "disaggregated_params": {
            **context.body["choices"][0]["disaggregated_params"],
            "request_type": "generation_only",
            "ctx_usage": context.body["usage"],
            **params,
        },
    }


@dataclass
class TrtllmPair:
    """A context worker, a generation worker, and one of neither role."""

    prefill: Engine
    decode: Engine
    alone: Engine

    def leg(self, body: dict[str, Any], **params: Any) -> Reply:
        """What the context worker answers."""
        return self.prefill.post("/v1/completions", context_body(body, **params))

    def complete(self, prompt: Any, **fields: Any) -> Reply:
        body = completion(prompt, **fields)
        context = self.leg(body)
        if context.finish_reason != "length":
            return context
        return self.decode.post("/v1/completions", generation_body(body, context))

    def stream(self, prompt: Any, **fields: Any) -> Events:
        body = completion(prompt, **fields)
        return self.decode.stream("/v1/completions", generation_body(body, self.leg(body)))

    def single(self, prompt: Any, **fields: Any) -> Reply:
        return self.alone.post("/v1/completions", completion(prompt, **fields))


def trtllm_pair(engines: Engines) -> TrtllmPair:
    pair = TrtllmPair(
        start(engines, config("context")),
        start(engines, config()),
        start(engines, {"kv_cache_config": {"tokens_per_block": 32}}),
    )
    for engine in (pair.prefill, pair.decode, pair.alone):
        engine.ready()
    return pair
