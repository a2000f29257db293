"""What the two ends of a transfer must share in SGLang.

Decode compares page size, number format and attention tensor-parallel size with prefill's when the first request comes, and
every request fails if they differ (sglang/srt/disaggregation/common/conn.py); other things it takes for granted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from disagg.build.engines.engine import Container, PodTemplateBody, engine_container
from disagg.build.engines.flags import flags
from disagg.build.engines.version import release, told

STAGING = "SGLANG_DISAGG_STAGING_BUFFER"
"""Gathers heads of KV cache into one buffer where the ends have different numbers of them."""
NIXL_BACKEND = "SGLANG_DISAGGREGATION_NIXL_BACKEND"
FORCE_TCP = "MC_FORCE_TCP"

_LATENT = re.compile(
    r"deepseek-(coder-)?(v[2-4]|r1)|kimi-(k2|k3|vl|linear)|moonlight|glm-5|glm-4\.7-flash|longcat-flash|mistral-large-3|minicpm3",
    re.IGNORECASE,
)
_NOT_LATENT = re.compile(r"distill", re.IGNORECASE)
"""DeepSeek-R1-Distill-Llama-70B is a Llama."""
_WINDOW = re.compile(r"gpt-oss|llama-4|mimo-v2", re.IGNORECASE)

_ALIASES = {
    "--model": "--model-path",
    "--tensor-parallel-size": "--tp-size",
    "--data-parallel-size": "--dp-size",
    "--attention-data-parallel-size": "--attn-dp-size",
    "--attention-context-parallel-size": "--attn-cp-size",
    # SGLang's parser completes shortened names; these two are those that people write.
    "--tp": "--tp-size",
    "--dp": "--dp-size",
}
_TRUE = frozenset({"1", "true", "yes", "y"})


def latent_attention(*names: str) -> bool:
    """Whether a model is known to have multi-head latent attention: each tensor-parallel rank then holds all of its KV cache.

    Args:
        names: What the model is called: where it is loaded from, and what requests call it.
    """
    text = " ".join(names)
    return _LATENT.search(text) is not None and _NOT_LATENT.search(text) is None


def sliding_window(*names: str) -> bool:
    """Whether a model is known to have layers whose KV cache is a window, which SGLang keeps and moves apart."""
    return _WINDOW.search(" ".join(names)) is not None


def compatibility(template: PodTemplateBody) -> dict[str, str]:
    """What the two ends of a transfer must share, read from a finished pod template: item -> value."""
    container = engine_container(template)
    given = flags(
        [*(container.get("command") or []), *(container.get("args") or [])],
        *_COMPARED.values(),
        *_SIZES,
        "--served-model-name",
        "--disaggregation-transfer-backend",
        aliases=_ALIASES,
    )
    env = _values(container)
    found = {item: given.get(flag) for item, flag in _COMPARED.items()}
    found["release"] = _release(told(template), str(container.get("image", "")))
    found["transfer"] = _transfer(given.get("--disaggregation-transfer-backend", "mooncake"), env)
    found["staging buffer"] = "true" if _on(env.get(STAGING)) else None
    # Who sets it to false, and not just leaves it out, says that this model needs none.
    if STAGING not in env and not latent_attention(
        given.get("--model-path", ""), given.get("--served-model-name", "")
    ):
        found["attention tensor-parallel size"] = _attention_tensor(given)
    return {item: value for item, value in found.items() if value is not None}


_COMPARED = {
    "model": "--model-path",
    "revision": "--revision",
    "page size": "--page-size",
    "KV cache format": "--kv-cache-dtype",
    "model format": "--dtype",
    # The draft model's KV cache and hidden states go along.
    "speculative decoding": "--speculative-algorithm",
    "draft model": "--speculative-draft-model-path",
    "KV checksum": "--disaggregation-enable-kv-checksum",
    "decode allocation policy": "--disaggregation-decode-allocation-policy",
}
_SIZES = ("--tp-size", "--dp-size", "--attn-dp-size", "--attn-cp-size", "--enable-dp-attention")


def _release(version: str | None, image: str) -> str:
    found = release(version, image)
    return image if found is None else ".".join(map(str, found))


def _transfer(backend: str, env: Mapping[str, str]) -> str:
    if backend == "mooncake" and _on(env.get(FORCE_TCP)):
        return "mooncake_tcp"
    return f"nixl with {env.get(NIXL_BACKEND, 'UCX')}" if backend == "nixl" else backend


def _attention_tensor(given: Mapping[str, str]) -> str:
    """Ranks that share the heads of one attention: the others have copies, or other tokens."""
    if not all(given.get(flag, "1").isdecimal() for flag in _SIZES[:-1]):
        return " ".join(given.get(flag, "1") for flag in _SIZES)
    tensor, data, attention_data, context = (max(1, int(given.get(flag, "1"))) for flag in _SIZES[:-1])
    if attention_data == 1 and given.get("--enable-dp-attention") == "true":
        attention_data = data
    return str(tensor // attention_data // context)


def _values(container: Container) -> dict[str, str]:
    variables: list[Mapping[str, Any]] = container.get("env") or []
    return {variable["name"]: variable["value"] for variable in variables if "value" in variable}


def _on(value: str | None) -> bool:
    return value is not None and value.lower() in _TRUE
