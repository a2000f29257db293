"""`kv_transfer_params` as decode gets them: whoever sends them is believed, and some that are wrong end the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from disagg.engine_sim.transfer.connector import FatalError

_NEEDED = ("remote_engine_id", "remote_host", "remote_port")


def required(*, named: bool) -> tuple[str, ...]:
    """Keys that a pull needs beside blocks.

    Args:
        named: Whether prefill says under which id it computed the request.
    """
    return (*_NEEDED, "remote_request_id") if named else _NEEDED


def has_source(params: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Whether parameters say where blocks are, rightly or not.

    Raises:
        FatalError: They name no blocks: vLLM asserts that there are some, and nothing catches that.
    """
    if not params.get("remote_block_ids"):
        raise FatalError("AssertionError: num_external_tokens == 0")
    return all(key in params for key in keys)


def blocks_of(block_ids: Any, *, by_group: bool) -> list[int]:  # noqa: ANN401 - whatever the sender says
    """Block ids of the one KV cache group there is.

    Args:
        block_ids: They.
        by_group: Whether there is a list of them for each group; older releases have the list alone.

    Raises:
        FatalError: They are something else: vLLM's worker breaks on that.
    """
    found = block_ids
    if by_group:
        found = block_ids[0] if isinstance(block_ids, list) and len(block_ids) == 1 else None
    if isinstance(found, list) and all(isinstance(block, int) for block in found):
        return list(found)
    raise FatalError(f"block ids expected, not {block_ids!r}")
