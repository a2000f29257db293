"""What changed between the releases of vLLM, as far as a pair of pods is concerned.

Each span was read from the sources of vLLM's released wheels, 0.11.0 to 0.33.0. A release that is newer than any known one is
treated like the newest, and one that is older like the oldest.
"""

from __future__ import annotations

from dataclasses import dataclass

from disagg.build.engines.version import Release, note

OLDEST: Release = (0, 11)
NEWEST: Release = (0, 33)


@dataclass(frozen=True)
class Span:
    """Releases of vLLM, given by major and minor.

    Attributes:
        first: The first of them.
        last: The last of them.
    """

    first: Release = OLDEST
    last: Release = NEWEST

    def __contains__(self, release: Release) -> bool:
        """Whether a release is one of them."""
        return self.first <= release <= self.last


ATTENTION_FLAG = Span(first=(0, 13))
"""`--attention-backend` (vllm/engine/arg_utils.py). Before, VLLM_ATTENTION_BACKEND, which 0.15 no longer reads."""
ATTENTION_VARIABLE = Span(last=(0, 14))
"""VLLM_ATTENTION_BACKEND is read (vllm/envs.py)."""
QUIET_ENDPOINTS = Span(first=(0, 16))
"""`--disable-access-log-for-endpoints`. Before, the access log is there or not as a whole."""
SHUTDOWN_TIMEOUT = Span(first=(0, 18))
"""`--shutdown-timeout` (vllm#34730). Before, SIGTERM ends all requests at once."""
DRAINS_BLOCKS = Span(first=(0, 22))
"""Draining waits for blocks that decode has yet to pull, too (`has_finished_requests` of vllm/v1/core/sched/scheduler.py).
Before, prefill ended as soon as it had no request of its own."""
READY_TIMEOUT = Span(first=(0, 14))
"""VLLM_ENGINE_READY_TIMEOUT_S. Before, the server waited for its engine without end."""

LOAD_FAILURE_POLICY = Span(first=(0, 13))
"""`kv_load_failure_policy` of `--kv-transfer-config`; `recompute` was its default in the first of them."""
BOTH_ROLES = Span(last=(0, 18))
"""NixlConnector was documented with `kv_both` in either role; 0.23 warns of it."""
LEASE = Span(first=(0, 22))
"""`kv_lease_duration` of NixlConnector, which decode extends by heartbeats. Before, VLLM_NIXL_ABORT_REQUEST_TIMEOUT, which
nothing extends."""
PORT_PER_TENSOR_RANK = Span(last=(0, 11))
"""Each tensor-parallel rank has a side channel of its own. Later, each data-parallel rank has one."""
SAME_BLOCK_SIZE = Span(last=(0, 27))
"""Both ends have to have the same block size: in 0.11 always, later with the hybrid KV cache manager, for models that need it.
Since 0.28 decode's may be a multiple of prefill's with any model."""
HANDSHAKE = Span(first=(0, 13))
"""The two ends compare a hash (`compute_nixl_compatibility_hash`) and refuse each other if it differs."""
CROSS_LAYERS = Span(first=(0, 16), last=(0, 28))
"""`enable_cross_layers_blocks` of NixlConnector is read, and compared."""
COMPARES_HYBRID = Span(first=(0, 18))
"""Whether the hybrid KV cache manager is on is compared."""
COMPARES_SPECULATION = Span(first=(0, 28))
"""Speculative decoding from hidden states, and whether prefill pushes or decode pulls, are compared."""

HYBRID_BY_SWITCH = Span(first=(0, 18), last=(0, 21))
"""NixlConnector works with the hybrid KV cache manager, but vLLM turns it off for any connector unless it is told not to.
Before, the connector does not work with it; later, vLLM asks the connector."""
HYBRID_WITHOUT_EVENTS = Span(last=(0, 19))
"""`--kv-events-config` rules the hybrid KV cache manager out: vLLM does not start if it is told to keep it on."""
HYBRID_BY_CONNECTOR = Span(first=(0, 22))
"""The hybrid KV cache manager is on if all connectors work with it."""

MOONCAKE = Span(first=(0, 16))
"""MooncakeConnector with a bootstrap server, which routers ask for prefill's identity. Before, it spoke otherwise."""

OFFLOAD = Span(first=(0, 14))
"""OffloadingConnector takes its size in bytes (`cpu_bytes_to_use`). Before, in blocks, whose bytes depend on the model."""
OFFLOAD_TIERS = Span(first=(0, 23))
"""TieringOffloadingSpec, without which `secondary_tiers` is ignored. 0.22 has it, for models of one KV cache group only."""

NVFP4_CACHE = Span(first=(0, 20))
"""`nvfp4` is a value of `--kv-cache-dtype`."""


def known(found: Release | None) -> Release:
    """The release, by major and minor, whose behaviour is assumed of `found`."""
    return NEWEST if found is None else min(max(found[:2], OLDEST), NEWEST)


def notes(found: Release | None) -> list[str]:
    """What to tell a user whose release is not a known one."""
    if found is not None and found[:2] < OLDEST:
        release, oldest = (".".join(map(str, version)) for version in (found, OLDEST))
        older = f"vLLM {release} is older than what this operator knows: started like {oldest};"
        return [f"{older} if the image's tag is not the release of vLLM, set engine.version"]
    return note("vLLM", found, NEWEST)
