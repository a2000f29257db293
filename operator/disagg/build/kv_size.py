"""How many bytes of KV cache a token has, for published models.

With grouped-query attention a token has 2 x layers x KV heads x head size values (keys and values); with multi-head latent
attention, layers x (latent rank + rotary dimensions). Numbers are those of each model's config.json on the Hugging Face hub.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from disagg.api.engine import KVCacheDtype


@dataclass(frozen=True)
class KVShape:
    """Values of a token in a model's KV cache.

    Attributes:
        values: How many.
        latent: Whether each tensor-parallel rank holds all of them (multi-head latent attention).
    """

    values: int
    latent: bool = False


def _grouped(layers: int, kv_heads: int, head_size: int) -> KVShape:
    return KVShape(2 * layers * kv_heads * head_size)


def _latent(layers: int, rank: int = 512, rotary: int = 64) -> KVShape:
    return KVShape(layers * (rank + rotary), latent=True)


_MODELS: list[tuple[str, KVShape]] = [
    (r"llama-3\.[13].*-70b", _grouped(80, 8, 128)),
    (r"llama-3\.1-8b", _grouped(32, 8, 128)),
    (r"llama-3\.1-405b", _grouped(126, 8, 128)),
    (r"qwen3-0\.6b", _grouped(28, 8, 128)),
    (r"qwen3-8b", _grouped(36, 8, 128)),
    (r"qwen3-32b", _grouped(64, 8, 128)),
    (r"qwen3-30b-a3b", _grouped(48, 4, 128)),
    (r"qwen3-235b-a22b", _grouped(94, 4, 128)),
    (r"deepseek-(r1|v3)(?!.*distill)", _latent(61)),
    # Every other layer keeps a window of 128 tokens, which a long prompt does not notice.
    (r"gpt-oss-120b", _grouped(18, 8, 64)),
    (r"gpt-oss-20b", _grouped(12, 8, 64)),
]
"""Part of a model's name -> its shape."""

_BYTES = {
    KVCacheDtype.AUTO: 2.0,
    KVCacheDtype.BFLOAT16: 2.0,
    KVCacheDtype.FP8: 1.0,
    KVCacheDtype.FP8_E4M3: 1.0,
    KVCacheDtype.FP8_E5M2: 1.0,
    # Four bits, and a scale of eight for each 16 values.
    KVCacheDtype.NVFP4: 0.5625,
}

LINE_RATE = 0.9
"""Share of a link's bandwidth that a transfer is assumed to reach."""


def shape_of(uri: str) -> KVShape | None:
    """The shape of a model's KV cache, or None if the model is not known."""
    name = uri.lower()
    return next((shape for pattern, shape in _MODELS if re.search(pattern, name)), None)


def transferred_bytes(uri: str, dtype: KVCacheDtype | None, decode_tensor: int, tokens: int) -> int | None:
    """Bytes that cross the network for a prompt, or None if the model is not known.

    Args:
        uri: The model's URI.
        dtype: Number format of the KV cache; None for the engine's own, which is taken for 16 bits.
        decode_tensor: Tensor-parallel size of decode: with latent attention each of its ranks pulls a copy.
        tokens: Length of the prompt.
    """
    shape = shape_of(uri)
    if shape is None:
        return None
    copies = decode_tensor if shape.latent else 1
    return round(shape.values * _BYTES[dtype or KVCacheDtype.AUTO] * tokens * copies)


def transfer_milliseconds(size: int, gbps: int) -> float:
    """Time that `size` bytes take on a link of `gbps` Gbit/s."""
    return size * 8 / (gbps * 1e9 * LINE_RATE) * 1000
