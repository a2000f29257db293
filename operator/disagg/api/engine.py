"""The inference engine that prefill and decode have in common."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from disagg.api.fields import Arguments, Block, Environment, Free, Image, KubernetesName, cel, rules


class EngineKind(StrEnum):
    """Inference engines that the operator knows how to start."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM = "trtllm"
    CUSTOM = "custom"


class KVCacheDtype(StrEnum):
    """Number formats of a KV cache. Each is mapped to the engine's own name."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FP8 = "fp8"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    NVFP4 = "nvfp4"


class KernelCache(Block):
    """Where compiled kernels are kept."""

    claim: KubernetesName
    """Name of a PersistentVolumeClaim in the resource's namespace. All pods mount it: on more than one node it must be
    ReadWriteMany."""


class Engine(Block):
    """The inference engine, common to prefill and decode."""

    model_config = rules(
        cel(
            "!has(self.config) || self.kind == 'trtllm'",
            "'config is the YAML of TensorRT-LLM: with engine.kind ' + self.kind + ' use args'",
            field=".config",
        ),
        cel(
            "self.kind != 'custom'"
            " || !(has(self.kvCacheDtype) || has(self.blockSize) || has(self.attentionBackend) || has(self.kernelCache))",
            "'kvCacheDtype, blockSize, attentionBackend and kernelCache are for engines that the operator knows:"
            " with engine.kind custom use args'",
        ),
        cel(
            "self.kind != 'trtllm' || !has(self.kvCacheDtype)"
            " || self.kvCacheDtype in ['auto', 'fp8', 'fp8_e4m3', 'nvfp4']",
            "'kvCacheDtype ' + self.kvCacheDtype + ' is none of TensorRT-LLM: use auto, fp8 or nvfp4'",
            field=".kvCacheDtype",
        ),
        cel(
            "self.kind != 'trtllm' || !has(self.blockSize)"
            " || self.blockSize in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]",
            "'blockSize (%d) must be a power of two above 1 with TensorRT-LLM'.format([self.blockSize])",
            field=".blockSize",
        ),
    )

    kind: EngineKind = EngineKind.VLLM
    """vllm, sglang, trtllm (TensorRT-LLM): the operator writes the engine's arguments. custom: the image gets `args`
    only, listens on port 8000 and answers `/health`."""
    image: Image
    """Image of the engine. prefill.image and decode.image override it."""
    version: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^v?[0-9]+\.[0-9]+")] | None = None
    """Release of the engine, such as 0.33.0, for images whose tag does not tell it. Default: what the tag tells."""
    kv_cache_dtype: KVCacheDtype | None = None
    """Number format of the KV cache, the same in both roles. Default: the engine's own, usually that of the model."""
    block_size: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Tokens in a block of the KV cache (`--block-size`, `--page-size`, `tokens_per_block`), the same in both roles.
    Default: 128 in vLLM, 64 in SGLang, 32 in TensorRT-LLM."""
    attention_backend: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^\S+$")] | None = None
    """Attention backend by the engine's own name, the same in both roles. Needed where prefill and decode run on different
    accelerators, as each would choose its own. Default: the engine's choice."""
    config: Free | None = None
    """Options of TensorRT-LLM as in its YAML file, laid over the operator's own."""
    kernel_cache: KernelCache | None = None
    """Volume that keeps compiled kernels from one pod to the next. Default: a folder that lives as long as the pod."""
    args: Arguments = []
    """Arguments for both roles, after the operator's own and before the role's."""
    env: Environment = []
    """Environment for both roles. The role's own env overrides it by name."""
