"""Which fields of answers a release of vLLM has."""

from __future__ import annotations

import hashlib

from disagg.engine_sim.api.shape import Shape
from disagg.engine_sim.dialects.vllm.arguments import Arguments, Release

_CHAT: dict[str, Release] = {"prompt_text": (0, 22)}
_ANSWER: dict[str, Release] = {"ec_transfer_params": (0, 28), "metrics": (0, 25)}
_CHOICE: dict[str, Release] = {"routed_experts": (0, 22), "weight_versions": (0, 33)}
_USAGE: dict[str, Release] = {"completion_tokens_details": (0, 28)}
"""Fields by the first release that is known to have them."""
_NO_EMPTY_TOOL_CALLS: Release = (0, 25)
_FINGERPRINT: Release = (0, 22)


def shape_of(args: Arguments) -> Shape:
    """What the answers of an engine look like."""

    def known(fields: dict[str, Release]) -> dict[str, None]:
        return {name: None for name, since in fields.items() if args.release >= since}

    return Shape(
        fingerprint=_fingerprint(args) if args.release >= _FINGERPRINT else None,
        answer=known(_ANSWER),
        chat=known(_CHAT),
        choice=known(_CHOICE),
        usage=known(_USAGE),
        empty_tool_calls=args.release < _NO_EMPTY_TOOL_CALLS,
    )


def _fingerprint(args: Arguments) -> str:
    """Release, ranks, and a hash of the configuration."""
    told = [f"vllm-{args.version}"]
    for name, ranks in (
        ("tp", args.tensor_parallel_size),
        ("pp", args.pipeline_parallel_size),
        ("dp", args.data_parallel_size),
    ):
        if ranks > 1:
            told.append(f"{name}{ranks}")
    known = f"{args.model}/{args.dtype}/{args.kv_cache_dtype}/{args.block_size}".encode()
    return "-".join([*told, hashlib.sha256(known).hexdigest()[:8]])
