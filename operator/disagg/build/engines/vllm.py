"""vLLM as prefill or decode: `vllm serve`, releases 0.11 to 0.33.

What differs between the releases is in `vllm_releases`, how KV cache moves in `vllm_connectors`, where it is kept in
`vllm_offload`, and what the two ends must share in `vllm_compatibility`.
"""

from __future__ import annotations

import json
from typing import Any

from disagg.api.engine import KVCacheDtype
from disagg.api.kv_transfer import Connector
from disagg.api.model import Lora
from disagg.api.names import RoleName
from disagg.api.roles import Accelerator, Role
from disagg.api.spec import Spec
from disagg.build.engines.engine import (
    HTTP_PORT,
    KERNELS_PATH,
    STARTUP_SECONDS,
    EnginePod,
    Metrics,
    PairProtocol,
    pod_ip,
    variable,
)
from disagg.build.engines.flags import flags
from disagg.build.engines.version import Release, release
from disagg.build.engines.vllm_compatibility import compatibility
from disagg.build.engines.vllm_connectors import Pod, combined, wiring
from disagg.build.engines.vllm_offload import offloading
from disagg.build.engines.vllm_releases import (
    ATTENTION_FLAG,
    DRAINS_BLOCKS,
    HYBRID_BY_SWITCH,
    HYBRID_WITHOUT_EVENTS,
    NVFP4_CACHE,
    QUIET_ENDPOINTS,
    READY_TIMEOUT,
    SHUTDOWN_TIMEOUT,
    known,
    notes,
)
from disagg.build.model_files import ModelFiles
from disagg.build.transfer import Transfer, drain_seconds

__all__ = ["METRICS", "compatibility", "engine_pod", "protocol"]

METRICS: Metrics | None = Metrics(
    path="/metrics",
    waiting=("vllm:num_requests_waiting",),
    running="vllm:num_requests_running",
    kv_cache_usage="vllm:kv_cache_usage_perc",
)
"""By these names since 0.11 (vllm/v1/metrics/loggers.py)."""

BLOCK_SIZE = 128
"""Tokens in a block: fewer and larger transfers than with vLLM's own 16, and a multiple of what each attention backend takes,
also of the CPU's 32. The value of llm-d's guide for disaggregated pairs."""
KEEP_ALIVE_SECONDS = 120
"""vLLM closes idle connections after 5 s. Routers keep theirs for up to 90 s and would meet a reset."""
_PROBED = "/health,/metrics"
_MOST_LORA_SLOTS = 8
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of `--max-lora-rank` (vllm/config/lora.py)."""

_PROTOCOLS = {
    Connector.NIXL: PairProtocol.SEQUENTIAL,
    # Decode tells prefill where to write, so both work at once.
    Connector.MOONCAKE: PairProtocol.CONCURRENT,
    # LMCache has one of its own, with a message from prefill to the router.
    Connector.LMCACHE: None,
}
_DEVICES = {"gpu.intel.com": "xpu", "google.com": "tpu"}
"""Domain of an extended resource -> what vLLM calls the device. Any other is cuda, as ROCm calls itself, too."""


def protocol(transfer: Transfer) -> PairProtocol | None:
    """How a router has a pair work on one request: each connector has its own way."""
    return _PROTOCOLS[transfer.connector]


def engine_pod(spec: Spec, role: RoleName, image: str, transfer: Transfer, model: ModelFiles) -> EnginePod:
    """How to start `vllm serve` as `role`."""
    found = release(spec.engine.version, image)
    of_role: Role = getattr(spec, role)
    pod = Pod(
        role=role,
        release=known(found),
        device=_device(of_role.accelerator or spec.accelerator),
        tensor=of_role.parallelism.tensor,
        data=of_role.parallelism.data,
    )
    wired, tiers = wiring(pod, transfer), offloading(pod, transfer)
    config = wired.config if tiers.config is None else combined(pod, transfer, wired.config, tiers.config)
    linger, drain = _stopping(pod, drain_seconds(spec, role, wired.lease), wired.lease)
    return EnginePod(
        # The image's entry point differs between releases; this one works in all of them.
        command=["vllm", "serve"],
        args=[
            *_model_args(spec, model),
            *_parallelism_args(of_role),
            *_cache_args(spec, of_role, pod, transfer, tiered=tiers.config is not None),
            *_lora_args(spec.model.lora, model),
            *_server_args(pod.release, drain),
            f"--kv-transfer-config={json.dumps(config, separators=(',', ':'))}",
        ],
        env=[*wired.env, *_environment(spec, pod)],
        ports=wired.ports,
        config_file=wired.config_file,
        volumes=tiers.volumes,
        shared_memory="",
        linger_seconds=linger,
        drain_seconds=drain,
        memory=tiers.memory,
        annotations=wired.annotations,
        required_flags={
            "--port": "the Service, the probes and the router expect it",
            "--kv-transfer-config": "decode gets no KV cache without it",
        },
        required_env=wired.required_env,
        notes=[*notes(found), *_notes(spec, image, pod.release, transfer), *wired.notes, *tiers.notes],
    )


def _device(accelerator: Accelerator) -> str:
    if accelerator.per_rank == 0:
        return "cpu"
    return _DEVICES.get(accelerator.resource.partition("/")[0], "cuda")


def _model_args(spec: Spec, model: ModelFiles) -> list[str]:
    return [
        # By position and first: 0.11 refuses --model, 0.33 a --served-model-name before it.
        model.model,
        f"--served-model-name={spec.model.name}",
        *([f"--revision={model.revision}"] if model.revision else []),
        f"--port={HTTP_PORT}",
    ]


def _parallelism_args(role: Role) -> list[str]:
    wanted = role.parallelism
    args = [f"--tensor-parallel-size={wanted.tensor}"]
    if wanted.pipeline > 1:
        args.append(f"--pipeline-parallel-size={wanted.pipeline}")
    if wanted.data > 1:
        args.append(f"--data-parallel-size={wanted.data}")
    if wanted.expert:
        args.append("--enable-expert-parallel")
    return args


def _cache_args(spec: Spec, role: Role, pod: Pod, transfer: Transfer, *, tiered: bool) -> list[str]:
    engine = spec.engine
    args = [f"--block-size={engine.block_size or BLOCK_SIZE}"]
    if engine.kv_cache_dtype is not None:
        args.append(f"--kv-cache-dtype={engine.kv_cache_dtype}")
    if engine.attention_backend is not None and pod.release in ATTENTION_FLAG:
        args.append(f"--attention-backend={engine.attention_backend}")
    alone = transfer.connector is Connector.NIXL and not tiered
    if alone and pod.device == "cuda" and pod.release in HYBRID_BY_SWITCH:
        events = flags([*engine.args, *role.args], "--kv-events-config")
        if not (events and pod.release in HYBRID_WITHOUT_EVENTS):
            # Models with sliding windows would keep, and move, what is outside of them.
            args.append("--no-disable-hybrid-kv-cache-manager")
    return args


def _lora_args(lora: Lora | None, model: ModelFiles) -> list[str]:
    if lora is None:
        return []
    slots = lora.max_adapters or min(len(model.adapters), _MOST_LORA_SLOTS)
    args = [
        "--enable-lora",
        f"--max-loras={slots}",
        # Those that have no slot wait in CPU memory, instead of being read again.
        f"--max-cpu-loras={max(slots, len(model.adapters))}",
    ]
    if lora.max_rank is not None:
        args.append(f"--max-lora-rank={next(rank for rank in _LORA_RANKS if rank >= lora.max_rank)}")
    adapters = [{"name": name, "path": path} for name, path in model.adapters.items()]
    return [*args, "--lora-modules", *(json.dumps(adapter, separators=(",", ":")) for adapter in adapters)]


def _server_args(found: Release, drain: int) -> list[str]:
    args = []
    if found in QUIET_ENDPOINTS:
        args.append(f"--disable-access-log-for-endpoints={_PROBED}")
    if found in SHUTDOWN_TIMEOUT:
        args.append(f"--shutdown-timeout={drain}")
    return args


def _stopping(pod: Pod, total: int, lease: int) -> tuple[int, int]:
    """How long the pod stays as it is, and how long it drains after that.

    Args:
        pod: The pod.
        total: How long it goes on with the requests that it has.
        lease: How long decode may pull KV cache from prefill.
    """
    if pod.release not in SHUTDOWN_TIMEOUT:
        # It aborts everything as soon as it is told to stop.
        return total, 0
    if pod.role is RoleName.PREFILL and pod.release not in DRAINS_BLOCKS:
        linger = min(lease, total)
        return linger, total - linger
    return 0, total


def _environment(spec: Spec, pod: Pod) -> list[dict[str, Any]]:
    env = [
        # What vLLM would find by itself may be another address of the node (ray#60817).
        pod_ip("VLLM_HOST_IP"),
        variable("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", KEEP_ALIVE_SECONDS),
        # Prefix hashes must agree between pods that share a file system, and for whoever reads their events.
        variable("PYTHONHASHSEED", 0),
    ]
    if pod.release in READY_TIMEOUT:
        # vLLM's own 600 s are short for a model that comes over a network: as long as the startup probe.
        env.append(variable("VLLM_ENGINE_READY_TIMEOUT_S", STARTUP_SECONDS))
    if spec.engine.attention_backend is not None and pod.release not in ATTENTION_FLAG:
        env.append(variable("VLLM_ATTENTION_BACKEND", spec.engine.attention_backend))
    return [*env, *(variable(name, f"{KERNELS_PATH}/{folder}") for name, folder in _FOLDERS.items())]


_FOLDERS = {
    "VLLM_CACHE_ROOT": "vllm",
    "VLLM_CONFIG_ROOT": "vllm-config",
    "XDG_CACHE_HOME": "xdg",
    "TRITON_CACHE_DIR": "triton",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "DG_JIT_CACHE_DIR": "deep-gemm",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TILELANG_CACHE_DIR": "tilelang",
    "CUDA_CACHE_PATH": "cuda",
}
"""Folders of compiled kernels. All of them are below the home folder by default, where a user that is not root may have no
right to write, and which is gone with the container."""


_CPU_IMAGE = "vllm/vllm-openai-cpu"
"""vLLM's image for CPUs, which has no NIXL (vllm docker/Dockerfile.cpu), unlike that for GPUs."""


def _notes(spec: Spec, image: str, found: Release, transfer: Transfer) -> list[str]:
    told = []
    if _CPU_IMAGE in image and transfer.connector is Connector.NIXL:
        told.append(
            f"{_CPU_IMAGE} has no NIXL, and vLLM ends as it starts: use an image with `pip install nixl`"
        )
    if found not in SHUTDOWN_TIMEOUT:
        told.append(
            "vLLM before 0.18 cannot drain: a pod that is stopped stays for all of its drain time, idle or not"
        )
    if spec.engine.kv_cache_dtype is KVCacheDtype.NVFP4 and found not in NVFP4_CACHE:
        told.append("vLLM before 0.20 has no KV cache of nvfp4 and will not start: use fp8")
    return told
