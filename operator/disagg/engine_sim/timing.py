"""How long things take: a small model of prefill, decode and transfer, with profiles for common pairs.

Rates are of one engine with the tensor parallelism its name says, from public benchmarks, rounded: good enough to see
queues grow and SLOs break in the right place, not to predict a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    """What of a model decides the size of its KV cache.

    Attributes:
        layers: Hidden layers.
        kv_heads: KV heads; 1 stands for multi-head latent attention.
        head_size: Values of a head.
        latent: Multi-head latent attention: one vector for key and value, on each rank.
    """

    layers: int
    kv_heads: int
    head_size: int
    latent: bool = False

    def token_bytes(self, value_bytes: float) -> int:
        """Bytes of KV for one token, all ranks together."""
        return int((1 if self.latent else 2) * self.layers * self.kv_heads * self.head_size * value_bytes)


@dataclass(frozen=True)
class Profile:
    """A model on a GPU.

    Attributes:
        shape: Of the model.
        max_model_len: Longest context by default.
        kv_bytes: Memory for KV of one engine.
        prefill_rate: Prompt tokens a second.
        decode_base: Seconds of a step that decodes for one request.
        decode_each: Seconds that each further request adds.
        decode_token: Seconds that each token of context in the batch adds.
        step_overhead: Seconds that any step takes.
        bandwidth: Bytes a second that KV moves between engines.
        load_seconds: From start to ready.
    """

    shape: Shape
    max_model_len: int
    kv_bytes: float
    prefill_rate: float
    decode_base: float
    decode_each: float
    decode_token: float = 0.0
    step_overhead: float = 0.0002
    bandwidth: float = 45e9
    load_seconds: float = 0.0

    def step(self, prefill_tokens: int, decodes: int, context_tokens: int) -> float:
        """Seconds that one step takes.

        Args:
            prefill_tokens: Prompt tokens computed in it.
            decodes: Requests that get one more token in it.
            context_tokens: Tokens that these requests look back on.
        """
        prefill = prefill_tokens / self.prefill_rate
        if not decodes:
            # The weights must be read for any prompt, however short.
            return self.step_overhead + max(prefill, self.decode_base)
        decode = self.decode_base + self.decode_each * (decodes - 1) + self.decode_token * context_tokens
        return self.step_overhead + decode + prefill


_LLAMA_8B = Shape(32, 8, 128)
_LLAMA_70B = Shape(80, 8, 128)

PROFILES: dict[str, Profile] = {
    "tiny": Profile(Shape(2, 2, 64), 32768, 1e9, 1e6, 0.001, 0.0),
    "llama-8b-h100": Profile(_LLAMA_8B, 131072, 50e9, 28000, 0.0062, 0.00002, 2e-9),
    "llama-8b-a100": Profile(_LLAMA_8B, 131072, 50e9, 11000, 0.0105, 0.00004, 4e-9, bandwidth=22e9),
    "llama-8b-l40s": Profile(_LLAMA_8B, 131072, 24e9, 7000, 0.022, 0.00008, 8e-9, bandwidth=11e9),
    "llama-70b-4xh100": Profile(_LLAMA_70B, 131072, 150e9, 9500, 0.0145, 0.00005, 2e-9),
    "llama-70b-8xh100": Profile(_LLAMA_70B, 131072, 430e9, 17000, 0.0098, 0.00004, 1.2e-9),
    "llama-70b-4xh200": Profile(_LLAMA_70B, 131072, 380e9, 10500, 0.0110, 0.00004, 1.6e-9),
    "llama-405b-8xh200": Profile(Shape(126, 8, 128), 131072, 600e9, 3200, 0.024, 0.00009, 2e-9),
    "qwen3-32b-2xh100": Profile(Shape(64, 8, 128), 40960, 70e9, 11000, 0.0135, 0.00005, 3e-9),
    "qwen3-0.6b-l4": Profile(Shape(28, 8, 128), 40960, 16e9, 30000, 0.006, 0.00003, 9e-9, bandwidth=2.8e9),
    "deepseek-r1-8xh200": Profile(
        Shape(61, 1, 576, latent=True), 163840, 300e9, 14000, 0.021, 0.00006, 4e-10
    ),
    "gpt-oss-120b-4xh100": Profile(Shape(36, 8, 64), 131072, 220e9, 30000, 0.0051, 0.00002, 1e-9),
}


def profile(name: str, *, bandwidth: float | None = None, load_seconds: float | None = None) -> Profile:
    """The profile called `name`, with what the command line says otherwise."""
    found = PROFILES[name]
    if bandwidth is not None:
        found = replace(found, bandwidth=bandwidth)
    if load_seconds is not None:
        found = replace(found, load_seconds=load_seconds)
    return found


class Link:
    """One network link: transfers follow each other."""

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth
        self._busy_until = 0.0

    def reserve(self, now: float, size: float) -> float:
        """When a transfer of `size` bytes that is posted now will be through."""
        self._busy_until = max(self._busy_until, now) + size / self.bandwidth
        return self._busy_until
