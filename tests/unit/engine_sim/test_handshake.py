from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from disagg.engine_sim.transfer.handshake import (
    AgentMetadata,
    Compatibility,
    HandshakeError,
    Local,
    Payload,
    check,
)

SAME = Compatibility(
    vllm_version="0.33.0",
    nixl_connector_version=15,
    model="m",
    dtype="auto",
    num_kv_heads=8,
    head_size=128,
    num_hidden_layers=80,
    attn_backend_name="FLASH_ATTN",
    cache_dtype="auto",
    is_hma_enabled=True,
    speculative_config=None,
    transfer_mode="pull",
)
OTHERS: dict[str, Any] = {
    "vllm_version": "0.32.0",
    "nixl_connector_version": 14,
    "model": "n",
    "dtype": "float16",
    "num_kv_heads": 4,
    "head_size": 64,
    "num_hidden_layers": 32,
    "attn_backend_name": "FLASHINFER",
    "cache_dtype": "fp8",
    "is_hma_enabled": False,
    "speculative_config": "eagle3",
    "transfer_mode": "push",
}


def local(tp: int = 1, block_size: int = 16, **more: bool) -> Local:
    settings = {"enforce": True, "latent": False, **more}
    return Local(SAME, tensor_parallel=tp, block_size=block_size, **settings)


def payload(compatibility: Compatibility = SAME, engine_id: str = "e_dp0", block_size: int = 16) -> bytes:
    metadata = AgentMetadata(
        engine_id, b"1", [0], 0, 10, [1], [1], "HND", block_size, (0, 0), "FLASH_ATTN", 1
    )
    return msgspec.msgpack.encode(Payload(compatibility.hash, msgspec.msgpack.encode(metadata)))


def test_equals_understand_each_other() -> None:
    assert check(local(), payload(), "e_dp0", 1).engine_id == "e_dp0"


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_differs_is_refused_unless_that_is_off(name: str) -> None:
    other = payload(replace(SAME, **{name: OTHERS[name]}))
    with pytest.raises(HandshakeError, match="compatibility hash mismatch"):
        check(local(), other, "e_dp0", 1)
    assert check(replace(local(), enforce=False), other, "e_dp0", 1)


def test_another_engine_is_refused() -> None:
    with pytest.raises(HandshakeError, match="engine ID mismatch"):
        check(local(), payload(engine_id="f_dp0"), "e_dp0", 1)


def test_what_is_no_payload_is_refused() -> None:
    with pytest.raises(HandshakeError, match="Failed to decode"):
        check(local(), b"\xc1", "e_dp0", 1)


@pytest.mark.parametrize(
    ("ours", "theirs", "latent", "fits"),
    [
        (1, 1, False, True),
        (8, 4, False, True),
        (4, 8, False, True),
        (6, 4, False, False),
        (8, 16, False, False),
        (8, 16, True, True),
        (16, 16, False, True),
        (16, 8, False, True),
    ],
)
def test_ranks(ours: int, theirs: int, latent: bool, fits: bool) -> None:
    if fits:
        assert check(local(ours, latent=latent), payload(), "e_dp0", theirs)
    else:
        with pytest.raises(HandshakeError):
            check(local(ours, latent=latent), payload(), "e_dp0", theirs)


@pytest.mark.parametrize(
    ("ours", "theirs", "more", "fits"),
    [
        (16, 16, {}, True),
        (64, 16, {}, True),
        (16, 64, {}, False),
        (48, 32, {}, False),
        (64, 16, {"host_buffer": True}, False),
        (64, 16, {"same_block_size": True}, False),
        (16, 16, {"host_buffer": True, "same_block_size": True}, True),
    ],
)
def test_block_sizes(ours: int, theirs: int, more: dict[str, bool], fits: bool) -> None:
    if fits:
        assert check(local(block_size=ours, **more), payload(block_size=theirs), "e_dp0", 1)
    else:
        with pytest.raises(HandshakeError):
            check(local(block_size=ours, **more), payload(block_size=theirs), "e_dp0", 1)
