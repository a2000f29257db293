"""Who may read whose KV, by vLLM's rules: a hash that must be equal, and ratios that must divide."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

import msgspec

GET_META = b"get_meta_msg"


class HandshakeError(Exception):
    """The peer's KV does not fit."""


@dataclass(frozen=True)
class Compatibility:
    """What must be equal on both sides.

    Attributes:
        vllm_version: Release of the engine.
        nixl_connector_version: Version of the connector's protocol.
        model: As the command line says it.
        dtype: Of activations.
        num_kv_heads: All ranks together.
        head_size: Values of a head.
        num_hidden_layers: Layers.
        attn_backend_name: Attention backend.
        cache_dtype: Of the KV cache.
        is_hma_enabled: Whether the hybrid KV cache manager is on.
        speculative_config: Speculative decoding, as far as it matters.
        transfer_mode: pull or push.
    """

    vllm_version: str
    nixl_connector_version: int
    model: str
    dtype: str
    num_kv_heads: int
    head_size: int
    num_hidden_layers: int
    attn_backend_name: str
    cache_dtype: str
    is_hma_enabled: bool
    speculative_config: str | None
    transfer_mode: str

    @property
    def hash(self) -> str:
        """The hash that both sides compare."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


class Payload(msgspec.Struct):
    """What the side channel answers, as vLLM's NixlHandshakePayload."""

    compatibility_hash: str
    agent_metadata_bytes: bytes


class AgentMetadata(msgspec.Struct):
    """What a peer must know to read, by the names of vLLM's NixlAgentMetadata.

    Attributes:
        engine_id: Of this start of the engine.
        agent_metadata: Where blocks are read; here host:port of the data port.
        kv_caches_base_addr: Where regions begin.
        device_id: GPU.
        num_blocks: Blocks there are.
        block_lens: Bytes of a block, by region.
        block_strides: Bytes between blocks, by region.
        kv_cache_layout: Order of dimensions.
        block_size: Tokens of a block.
        ssm_sizes: Of state-space layers.
        attn_backend_name: Attention backend.
        physical_blocks_per_logical_kv_block: Kernel blocks of a block.
    """

    engine_id: str
    agent_metadata: bytes
    kv_caches_base_addr: list[int]
    device_id: int
    num_blocks: int
    block_lens: list[int]
    block_strides: list[int]
    kv_cache_layout: str
    block_size: int
    ssm_sizes: tuple[int, int]
    attn_backend_name: str
    physical_blocks_per_logical_kv_block: int


@dataclass(frozen=True)
class Local:
    """This side of a handshake.

    Attributes:
        compatibility: What must be equal.
        enforce: Whether it must.
        tensor_parallel: Ranks.
        block_size: Tokens of a block.
        latent: Whether the model has multi-head latent attention, so ranks have the same KV.
        host_buffer: Whether KV goes through host memory.
        same_block_size: Whether this release wants equal block sizes.
    """

    compatibility: Compatibility
    enforce: bool
    tensor_parallel: int
    block_size: int
    latent: bool
    host_buffer: bool = False
    same_block_size: bool = False


def check(local: Local, payload: bytes, engine_id: str, remote_tp: int) -> AgentMetadata:
    """What a peer answered, if it fits.

    Args:
        local: This side.
        payload: Its answer.
        engine_id: Whom the request's sender says it is.
        remote_tp: Ranks that it has.

    Raises:
        HandshakeError: It does not fit.
    """
    try:
        wrapper = msgspec.msgpack.decode(payload, type=Payload)
    except msgspec.DecodeError as error:
        raise HandshakeError(
            "Failed to decode NixlHandshakePayload. This likely indicates an incompatibility between connector "
            f"version. Error: {error}"
        ) from error
    ours = local.compatibility.hash
    if local.enforce and wrapper.compatibility_hash != ours:
        raise HandshakeError(
            f"NIXL compatibility hash mismatch. Local: {ours}, Remote: {wrapper.compatibility_hash}. Prefill and "
            "decode instances have incompatible configurations."
        )
    metadata = msgspec.msgpack.decode(wrapper.agent_metadata_bytes, type=AgentMetadata)
    if metadata.engine_id != engine_id:
        raise HandshakeError(
            f"Remote NIXL agent engine ID mismatch. Expected {engine_id},received {metadata.engine_id}."
        )
    _check_ranks(local, remote_tp)
    _check_blocks(local, metadata.block_size)
    return metadata


def _check_ranks(local: Local, remote_tp: int) -> None:
    ours = local.tensor_parallel
    if max(ours, remote_tp) % min(ours, remote_tp):
        raise HandshakeError(
            f"Local tensor parallel size {ours} is not divisible by remote tensor parallel size {remote_tp}."
        )
    if remote_tp > ours and not local.latent and remote_tp > local.compatibility.num_kv_heads:
        raise HandshakeError(
            f"Remote tensor parallel size {remote_tp} > local {ours} with replicated KV heads is not supported."
        )


def _check_blocks(local: Local, remote: int) -> None:
    ours = local.block_size
    if ours % remote:
        raise HandshakeError(
            f"Local block size {ours} is not divisible by remote block size {remote} or vice versa."
        )
    if ours != remote and (local.host_buffer or local.same_block_size):
        raise HandshakeError("Heterogeneous block sizes are not supported here.")
