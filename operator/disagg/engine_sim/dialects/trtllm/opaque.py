"""The opaque state: where a context worker's KV can be had, and in which form it is."""

from __future__ import annotations

import base64
import binascii

import msgspec

from disagg.engine_sim.transfer.connector import TransferError


class CacheState(msgspec.Struct, frozen=True):
    """The form of a KV cache. Tensor parallelism may differ between the two sides, the rest may not."""

    dtype: str
    tokens_per_block: int
    layers: int
    kv_heads: int
    head_size: int
    tensor_parallel: int

    def mismatch(self, other: CacheState) -> str | None:
        """What differs that must not."""
        for name in ("dtype", "tokens_per_block", "layers", "kv_heads", "head_size"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                return f"{name} is {theirs} there and {ours} here"
        return None


class OpaqueState(msgspec.Struct, frozen=True):
    """What stands in `encoded_opaque_state`.

    Attributes:
        host: Of the data port.
        port: As well.
        backend: What moves KV there, and over what.
        cache: Its form.
    """

    host: str
    port: int
    backend: str
    cache: CacheState

    def encode(self) -> str:
        """As it is in an answer."""
        return base64.b64encode(msgspec.msgpack.encode(self)).decode()


def decode(text: str | None) -> OpaqueState:
    """Read what a context worker has said.

    Raises:
        TransferError: It never said this.
    """
    if not text:
        raise TransferError("there is no opaque state")
    try:
        return msgspec.msgpack.decode(base64.b64decode(text, validate=True), type=OpaqueState)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise TransferError(f"the opaque state can't be read: {error}") from error
