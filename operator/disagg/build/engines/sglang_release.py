"""In which release of SGLang a thing came that a pod's arguments or environment depend on.

Read from the sources of the releases 0.5.6 to 0.5.23 as they are published (sglang/srt/server_args.py, arg_groups/, environ.py,
disaggregation/, mem_cache/). A release that is newer than all of them has what the newest has.
"""

from __future__ import annotations

from disagg.build.engines.version import Release, note, release

OLDEST: Release = (0, 5, 6)
NEWEST: Release = (0, 5, 23)

PREFILL_RANK_BY_ROOM: Release = (0, 5, 8)
"""Prefill picks the data-parallel rank by the request's room. Before, decode with several ranks starts only if it is told
that prefill goes round robin (`--prefill-round-robin-balance`)."""
ACCESS_LOG_PREFIXES: Release = (0, 5, 8)
"""`--uvicorn-access-log-exclude-prefixes`. Before, the whole access log is on or off."""
NIXL_BACKENDS: Release = (0, 5, 9)
"""`SGLANG_DISAGGREGATION_NIXL_BACKEND`. Before, NIXL moves bytes with UCX, whatever is said."""
KEEP_ALIVE: Release = (0, 5, 10)
"""`SGLANG_TIMEOUT_KEEP_ALIVE`. Before, idle connections are closed after 5 s."""
MOONCAKE_STAGING: Release = (0, 5, 10)
"""`SGLANG_DISAGG_STAGING_BUFFER` with the transfer backend mooncake."""
NIXL_STAGING: Release = (0, 5, 12)
"""The same with nixl, which refuses to start with it before."""
MOONCAKE_TCP: Release = (0, 5, 13)
"""The transfer backend `mooncake_tcp`. Before, Mooncake's own `MC_FORCE_TCP` does the same."""
BOUNDED_FILES: Release = (0, 5, 14)
"""HiCache deletes the oldest of its files at `SGLANG_HICACHE_FILE_BACKEND_MAX_SIZE`. Before, it deletes none."""
SMALL_HOST_POOL: Release = (0, 5, 15)
"""HiCache takes less CPU memory than the accelerator has for KV cache. Before, it refuses to start."""
NVFP4: Release = (0, 5, 16)
"""`--kv-cache-dtype=nvfp4`. Before, the format is called `fp4_e2m1`."""
ADAPTERS_IN_FILES: Release = (0, 5, 20)
"""HiCache's files tell LoRA adapters apart. Before, a prefix that one adapter has filed is read for another."""
WINDOWS_BETWEEN_SIZES: Release = (0, 5, 22)
"""KV cache of sliding-window layers goes between roles of different attention tensor-parallel sizes. Before, every request
fails (llm-d#2433)."""
ATTENTION_DP: Release = (0, 5, 22)
"""`--attn-dp-size`. Before, `--dp-size` with `--enable-dp-attention`, which SGLang removes after 2026."""


def started_as(version: str | None, image: str) -> tuple[Release, list[str]]:
    """The release that a pod is started like, and what a user should know of that.

    Args:
        version: engine.version, or None.
        image: Reference of the image.
    """
    found = release(version, image)
    if found is not None and len(found) < len(OLDEST):
        # 0.5 alone stands for twenty releases.
        found = None
    if found is not None and found < OLDEST:
        older, oldest = (".".join(map(str, numbers)) for numbers in (found, OLDEST))
        return OLDEST, [
            f"SGLang {older} is older than {oldest}: started like that, which may be more than it knows"
        ]
    return found or NEWEST, note("SGLang", found, NEWEST)


CHUNKS_IN_ANY_ORDER: Release = (0, 5, 23)
"""The staging buffer with nixl takes the chunks of a prompt as they come. Before, decode can wait for ever for one that came after
the last (sglang#37697)."""
