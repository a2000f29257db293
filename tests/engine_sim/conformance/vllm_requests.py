"""Requests to one vLLM, and the engines that they go to."""

from __future__ import annotations

from typing import Any

from tests.engine_sim.conformance.pairs import MODEL, start_vllm
from tests.engine_sim.processes import Engine, Engines, Reply

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def with_adapter(engines: Engines) -> Engine:
    """One with an adapter."""
    return start_vllm(
        engines,
        "kv_producer",
        "--max-model-len=512",
        "--enable-lora",
        "--lora-modules",
        "poet=adapters/poet",
        "--max-loras=2",
    ).ready()


def tool_caller(engines: Engines) -> Engine:
    """One that may be made to call tools."""
    flags = ("--max-model-len=512", "--enable-auto-tool-choice", "--tool-call-parser=hermes")
    return start_vllm(engines, "kv_producer", *flags).ready()


def complete(engine: Engine, **fields: Any) -> Reply:
    return engine.post(
        COMPLETIONS,
        {"model": MODEL, "prompt": "tell me of the cache", "max_tokens": 8, "temperature": 0, **fields},
    )


def chat(engine: Engine, **fields: Any) -> Reply:
    messages = [{"role": "user", "content": "tell me"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 8, "temperature": 0, **fields}
    return engine.post(CHAT, {key: value for key, value in body.items() if value is not ...})
