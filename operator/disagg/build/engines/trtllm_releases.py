"""What changed between the releases of TensorRT-LLM, as far as a pair of pods is concerned.

Each constant is the first release, by major and minor, that has it. Sources are tensorrt_llm/commands/serve.py and
tensorrt_llm/llmapi/llm_args.py of that time, and the pull request that is named. A release that is newer than any known one is
treated like the newest, and one that is older like the oldest.
"""

from __future__ import annotations

from disagg.build.engines.version import Release, note

OLDEST: Release = (1, 1)
NEWEST: Release = (1, 3)

CONFIG_FLAG: Release = (1, 3)
"""`--config`. Release 1.2 has it, but not its first candidates (TRT-LLM#9104); before, `--extra_llm_api_options`."""
SERVED_NAME: Release = (1, 3)
"""`--served_model_name`. Before, the model's name is its name on the hub, or the last folder of its path."""
TRANSFER_TIMEOUT: Release = (1, 2)
"""`cache_transceiver_config.kv_transfer_timeout_ms`. Before, KV cache that nobody pulls is kept for ever (TRT-LLM#7575)."""
BLOCK_SIZE: Release = (1, 2)
"""`kv_cache_config.tokens_per_block` is known for certain. The file of 1.0 does not have it."""
MOONCAKE: Release = (1, 2)
"""MOONCAKE as `cache_transceiver_config.backend` (TRT-LLM#8309)."""
NIXL_BACKENDS: Release = (1, 2)
"""TRTLLM_NIXL_KVCACHE_BACKEND is read. Before, NIXL has UCX only."""
GAUGES: Release = (1, 3)
"""Prometheus gauges of running and waiting requests (TRT-LLM#12545). Before, there are histograms of latencies only."""
KEEP_ALIVE: Release = (1, 3)
"""`server_keep_alive_timeout` of the orchestrator. Before, it closes idle connections of clients after 10 s
(tensorrt_llm/serve/openai_disagg_server.py)."""


def known(found: Release | None) -> Release:
    """The release, by major and minor, whose behaviour is assumed of `found`."""
    return NEWEST if found is None else min(max(found[:2], OLDEST), NEWEST)


def notes(found: Release | None) -> list[str]:
    """What to tell a user whose release is not a known one."""
    if found is not None and found[:2] < OLDEST:
        known_first = _text(OLDEST)
        told = (
            f"TensorRT-LLM {_text(found)} is older than what this operator knows: started like {known_first}"
        )
        return [f"{told}; if the image's tag is not its release, set engine.version"]
    return note("TensorRT-LLM", found, NEWEST)


def _text(release: Release) -> str:
    return ".".join(map(str, release))
