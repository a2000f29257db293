"""The configuration file of `trtllm-serve`, which holds what its command line cannot say.

Its keys are those of tensorrt_llm/llmapi/llm_args.py. It is strict: a key that a release does not know keeps it from starting.
What it says wins over the command line, so it holds only what the operator has to say, and the user's `engine.config` is laid
over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from disagg.api.engine import KVCacheDtype
from disagg.api.kv_transfer import Connector
from disagg.api.names import RoleName
from disagg.api.spec import Spec
from disagg.build.engines.trtllm_releases import BLOCK_SIZE, TRANSFER_TIMEOUT
from disagg.build.engines.version import Release
from disagg.build.transfer import Transfer

TOKENS_PER_BLOCK = 32
"""TensorRT-LLM's own default. Set explicitly, since both ends must agree on it."""

_TRANSCEIVERS = {Connector.NIXL: "NIXL", Connector.MOONCAKE: "MOONCAKE"}
"""Values of `cache_transceiver_config.backend`. Without one the transfer is off; DEFAULT changes from release to release, and
is decided by environment variables."""
_DTYPES = {
    KVCacheDtype.FP8: "fp8",
    KVCacheDtype.FP8_E4M3: "fp8",
    KVCacheDtype.NVFP4: "nvfp4",
}
"""Values of `kv_cache_config.dtype` (tensorrt_llm/_torch/pyexecutor/model_loader.py, _VALID_KV_CACHE_DTYPES). What is not in it
is `auto`: the format of the model."""

_REQUIRED = {
    (
        "cache_transceiver_config",
        "backend",
    ): "decode gets no KV cache if it is off or another than the router pairs by",
    ("disable_overlap_scheduler",): "prefill cannot hand over KV cache with the overlap scheduler",
    ("enable_attention_dp",): "parallelism.data is attention data parallelism",
    ("return_perf_metrics",): "there are no Prometheus metrics without it, and autoscaling sees nothing",
    ("enable_iter_perf_stats",): "there are no gauges of load without it, and autoscaling sees nothing",
}
"""Options that the roles, the router or the autoscaler depend upon -> what breaks with another value."""


@dataclass(frozen=True)
class Options:
    """What the configuration file holds.

    Attributes:
        values: Its content.
        changed: Options of the operator that the user has changed although something depends upon them, each with what.
    """

    values: dict[str, Any]
    changed: list[str]


def options(
    spec: Spec, role: RoleName, release: Release, transfer: Transfer, *, host_cache_bytes: int
) -> Options:
    """The configuration file of a role.

    Args:
        spec: The resource's spec.
        role: prefill or decode.
        release: The release, a known one.
        transfer: How KV cache moves.
        host_cache_bytes: CPU memory of one rank for KV cache that the accelerator has no room for; 0 for none.
    """
    own = _own(spec, role, release, transfer, host_cache_bytes)
    merged = laid_over(own, spec.engine.config or {})
    changed = [
        f"engine.config changes {'.'.join(path)}: {why}"
        for path, why in _REQUIRED.items()
        if (ours := _at(own, path)) is not None and _at(merged, path) != ours
    ]
    return Options(merged, changed)


def laid_over(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `overlay` laid over it: blocks are merged, all else is replaced, and null removes a key."""
    merged = dict(base)
    for key, value in overlay.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = laid_over(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def _own(
    spec: Spec, role: RoleName, release: Release, transfer: Transfer, host_cache_bytes: int
) -> dict[str, Any]:
    parallelism = getattr(spec, role).parallelism
    values: dict[str, Any] = {
        "cache_transceiver_config": dict(_transceiver(release, transfer)),
        "kv_cache_config": dict(_cache(spec, release, host_cache_bytes)),
        # Without the first there is no metrics endpoint, without the second it has no gauges.
        "return_perf_metrics": True,
        "enable_iter_perf_stats": True,
    }
    if role is RoleName.PREFILL:
        values["disable_overlap_scheduler"] = True
    if parallelism.data > 1:
        values["enable_attention_dp"] = True
    if spec.engine.attention_backend is not None:
        values["attn_backend"] = spec.engine.attention_backend
    if spec.model.revision is not None:
        # The flag for it came later than this, and has been renamed since.
        values["revision"] = spec.model.revision
    return values


def _transceiver(release: Release, transfer: Transfer) -> Iterator[tuple[str, Any]]:
    # max_tokens_in_buffer stays unset: TensorRT-LLM takes the longest sequence of the model, and less than that throttles.
    yield "backend", _TRANSCEIVERS[transfer.connector]
    if release >= TRANSFER_TIMEOUT:
        yield "kv_transfer_timeout_ms", transfer.lease(heartbeats=False) * 1000


def _cache(spec: Spec, release: Release, host_cache_bytes: int) -> Iterator[tuple[str, Any]]:
    yield "enable_block_reuse", True
    if spec.engine.block_size is not None or release >= BLOCK_SIZE:
        yield "tokens_per_block", spec.engine.block_size or TOKENS_PER_BLOCK
    yield "dtype", _DTYPES.get(spec.engine.kv_cache_dtype or KVCacheDtype.AUTO, "auto")
    if host_cache_bytes:
        yield "host_cache_size", host_cache_bytes


def _at(values: Mapping[str, Any], path: tuple[str, ...]) -> object:
    found: object = values
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
