"""TensorRT-LLM as prefill (a context server) or decode (a generation server): `trtllm-serve`.

Most of what it is told stands in a file (`trtllm_config`); what differs between releases is in `trtllm_releases`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import yaml

from disagg.api import plain_yaml
from disagg.api.engine import KVCacheDtype
from disagg.api.kv_transfer import Backend, Connector, LoadFailurePolicy
from disagg.api.names import RoleName
from disagg.api.roles import Parallelism, Role
from disagg.api.spec import Spec
from disagg.build.annotation_file import ENGINE_FILE_ANNOTATION
from disagg.build.engines.engine import (
    FILES_PATH,
    HTTP_PORT,
    KERNELS_PATH,
    ConfigFile,
    EnginePod,
    Metrics,
    PairProtocol,
    PodTemplateBody,
    engine_container,
    variable,
)
from disagg.build.engines.flags import flags
from disagg.build.engines.trtllm_config import TOKENS_PER_BLOCK, options
from disagg.build.engines.trtllm_releases import (
    CONFIG_FLAG,
    GAUGES,
    MOONCAKE,
    NIXL_BACKENDS,
    SERVED_NAME,
    TRANSFER_TIMEOUT,
    known,
    notes,
)
from disagg.build.engines.version import Release, release, told
from disagg.build.model_files import ModelFiles
from disagg.build.offload import tiers
from disagg.build.transfer import Transfer, drain_seconds

METRICS: Metrics | None = Metrics(
    # /metrics is JSON (tensorrt_llm/serve/openai_server.py).
    path="/prometheus/metrics",
    waiting=("trtllm_num_requests_waiting",),
    running="trtllm_num_requests_running",
    kv_cache_usage="trtllm_kv_cache_utilization",
)

CONFIG_FILE = "config.yaml"
NIXL_BACKEND = "TRTLLM_NIXL_KVCACHE_BACKEND"
_NIXL_BACKENDS = {Backend.UCX: "UCX", Backend.LIBFABRIC: "LIBFABRIC"}
_RELEASE_IMAGE = "nvcr.io/nvidia/tensorrt-llm/release"
"""NVIDIA's image, whose NIXL has no plugin for libfabric (docs/source/features/disagg-serving-aws-efa.md)."""

_KERNEL_CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    # cpp/tensorrt_llm/kernels/cutlass_kernels/fp8_blockscale_gemm, DeepGEMM's compiler.
    "TRTLLM_DG_CACHE_DIR": "deep_gemm",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
}
"""Variable -> folder in which kernels are kept that are compiled as the engine starts."""


def protocol(transfer: Transfer) -> PairProtocol | None:
    """Prefill first, whatever moves the KV cache."""
    del transfer
    return PairProtocol.CONTEXT_FIRST


def engine_pod(spec: Spec, role: RoleName, image: str, transfer: Transfer, model: ModelFiles) -> EnginePod:
    """How to start `trtllm-serve` as `role`."""
    found = release(spec.engine.version, image)
    assumed = known(found)
    wanted: Role = getattr(spec, role)
    offload = tiers(transfer.offload)
    values = options(
        spec,
        role,
        assumed,
        transfer,
        host_cache_bytes=offload.cpu_bytes_per_rank(wanted.parallelism.ranks),
    )
    config_flag = "--config" if assumed >= CONFIG_FLAG else "--extra_llm_api_options"
    linger, drain = _stopping(spec, role, transfer)
    env = [variable(name, f"{KERNELS_PATH}/{folder}") for name, folder in _KERNEL_CACHES.items()]
    required_env = {}
    if transfer.backend is not None and assumed >= NIXL_BACKENDS:
        env.append(variable(NIXL_BACKEND, _NIXL_BACKENDS[transfer.backend]))
        required_env[NIXL_BACKEND] = (
            "both roles must use the same, and NIXL takes UCX for one that it does not know"
        )
    return EnginePod(
        # NVIDIA's image has no entry point for it, others have one of their own.
        command=["trtllm-serve"],
        args=[
            model.model,
            "--host=0.0.0.0",
            f"--port={HTTP_PORT}",
            "--backend=pytorch",
            *_parallelism(wanted.parallelism),
            *([f"--served_model_name={spec.model.name}"] if assumed >= SERVED_NAME else []),
            f"{config_flag}={FILES_PATH}/{CONFIG_FILE}",
        ],
        env=env,
        config_file=ConfigFile(CONFIG_FILE, plain_yaml.dump([values.values])),
        shared_memory="",
        linger_seconds=linger,
        drain_seconds=drain,
        memory=offload.cpu_bytes,
        required_flags={
            "--host": "its own default is localhost, where nobody reaches it",
            "--port": "the Service, the probes and the router expect it",
            "--backend": "other backends cannot hand over KV cache",
            config_flag: "KV cache is handed over only by what stands in this file",
        },
        required_env=required_env,
        notes=[*notes(found), *values.changed, *_notes(spec, image, assumed, transfer)],
    )


def compatibility(template: PodTemplateBody) -> dict[str, str]:
    """What must be the same at both ends. Nothing compares it: a mismatch shows as wrong answers or a failed transfer."""
    container = engine_container(template)
    if not container:
        return {}
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    config, env = _config(template), container.get("env") or []
    cache, transceiver = (_block(config, name) for name in ("kv_cache_config", "cache_transceiver_config"))
    dtype = flags(words, "--kv_cache_dtype").get("--kv_cache_dtype", "auto")
    return {
        "release": told(template) or str(container.get("image")),
        "model": _model(words),
        "revision": str(config.get("revision", "")),
        "kv_cache_config.dtype": str(cache.get("dtype", dtype)),
        "kv_cache_config.tokens_per_block": str(cache.get("tokens_per_block", TOKENS_PER_BLOCK)),
        "cache_transceiver_config.backend": str(transceiver.get("backend", "")),
        "attn_backend": str(config.get("attn_backend", "")),
        NIXL_BACKEND: next((str(item.get("value")) for item in env if item.get("name") == NIXL_BACKEND), ""),
    }


def _parallelism(wanted: Parallelism) -> list[str]:
    # With attention data parallelism each rank of the tensor-parallel group has the whole attention.
    group = wanted.data if wanted.data > 1 else wanted.tensor
    experts = [f"--ep_size={group}"] if wanted.expert else []
    return [f"--tp_size={group}", f"--pp_size={wanted.pipeline}", *experts]


def _stopping(spec: Spec, role: RoleName, transfer: Transfer) -> tuple[int, int]:
    """How long a pod goes on before SIGTERM, and after it.

    On SIGTERM the server finishes the requests that it has (uvicorn's own behaviour, without bound) and ends the engine. A
    prefill pod has none left once it has answered, and would end with KV cache that decode has yet to pull.
    """
    lease = transfer.lease(heartbeats=False)
    total = drain_seconds(spec, role, lease)
    linger = min(lease, total) if role is RoleName.PREFILL else 0
    return linger, total - linger


def _notes(spec: Spec, image: str, assumed: Release, transfer: Transfer) -> list[str]:
    served_name, autoscaled = spec.model.served_name, spec.prefill.autoscaling or spec.decode.autoscaling
    libfabric = transfer.backend is Backend.LIBFABRIC
    offload = transfer.offload
    holding = {
        "kvTransfer.connector mooncake needs TensorRT-LLM 1.2": (
            transfer.connector is Connector.MOONCAKE and assumed < MOONCAKE
        ),
        "kvTransfer.backend libfabric needs TensorRT-LLM 1.2: KV cache crosses TCP": (
            libfabric and assumed < NIXL_BACKENDS
        ),
        f"{_RELEASE_IMAGE} has no plugin of NIXL for libfabric: the engine ends as it starts. Use an image that has one": (
            libfabric and image.startswith(_RELEASE_IMAGE)
        ),
        "kvTransfer.leaseSeconds has no effect on TensorRT-LLM before 1.2, which keeps KV cache until decode pulls it": (
            assumed < TRANSFER_TIMEOUT
        ),
        "kvTransfer.loadFailurePolicy recompute has no effect: TensorRT-LLM fails requests whose KV cache did not arrive": (
            transfer.load_failure_policy is LoadFailurePolicy.RECOMPUTE
        ),
        "kvTransfer.offload.disk and sharedFileSystem are left out: with TensorRT-LLM only cpu is supported": (
            offload.disk is not None or offload.shared_file_system is not None
        ),
        "model.lora is left out: TensorRT-LLM takes adapters by path in each request, not by the name of a model": (
            spec.model.lora is not None
        ),
        "model.servedName has no effect on TensorRT-LLM before 1.3, which answers requests for any model": (
            served_name is not None and assumed < SERVED_NAME
        ),
        "autoscaling needs TensorRT-LLM 1.3: older releases do not tell their load": (
            autoscaled is not None and assumed < GAUGES
        ),
        "engine.kvCacheDtype bfloat16 is taken for auto: TensorRT-LLM knows auto, fp8 and nvfp4": (
            spec.engine.kv_cache_dtype is KVCacheDtype.BFLOAT16
        ),
    }
    return [text for text, holds in holding.items() if holds]


def _model(words: list[str]) -> str:
    """The model of a command line: its first word that is no flag and not the command itself."""
    positional = [word for word in words if not word.startswith("-")]
    while positional and positional[0].rsplit("/", 1)[-1] in ("trtllm-serve", "serve"):
        positional = positional[1:]
    return positional[0] if positional else ""


def _config(template: PodTemplateBody) -> Mapping[str, Any]:
    """The configuration file of a pod template. An overlay may have made anything of it."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return _parsed(annotations.get(ENGINE_FILE_ANNOTATION) or "")


@lru_cache(maxsize=256)
def _parsed(text: str) -> Mapping[str, Any]:
    """The content of a file. Pods are read in each pass over a resource, and YAML takes a while."""
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return config if isinstance(config, Mapping) else {}


def _block(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    block = config.get(name)
    return block if isinstance(block, Mapping) else {}
