"""SGLang as prefill or decode.

Facts are those of SGLang 0.5.6 to 0.5.23, read from its releases; what differs between them is in `sglang_release`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from disagg.api.engine import KVCacheDtype
from disagg.api.kv_transfer import Backend, Connector, Transport
from disagg.api.model import Lora
from disagg.api.names import ENGINE_ROLES, RoleName
from disagg.api.roles import Parallelism
from disagg.api.spec import Spec
from disagg.build.engines import sglang_kv, sglang_offload
from disagg.build.engines import sglang_release as since
from disagg.build.engines.engine import (
    HTTP_PORT,
    KERNELS_PATH,
    EnginePod,
    Health,
    Metrics,
    PairProtocol,
    PodTemplateBody,
    pod_ip,
    variable,
)
from disagg.build.engines.version import Release
from disagg.build.model_files import ModelFiles
from disagg.build.offload import tiers
from disagg.build.transfer import Transfer, drain_seconds

METRICS: Metrics | None = Metrics(
    path="/metrics",
    waiting=(
        "sglang:num_queue_reqs",
        # Prefill: requests that decode has no room for yet. The first name is that of 0.5.12 and later.
        "sglang:num_prefill_bootstrap_queue_reqs",
        "sglang:num_prefill_prealloc_queue_reqs",
        # Decode: requests without room, and requests whose KV cache is on its way.
        "sglang:num_decode_prealloc_queue_reqs",
        "sglang:num_decode_transfer_queue_reqs",
    ),
    running="sglang:num_running_reqs",
    kv_cache_usage="sglang:token_usage",
)

BOOTSTRAP_PORT = 8998
"""SGLang's own default. Decode asks here who in a prefill pod holds which heads."""
BOOTSTRAP_ANNOTATION = "sglang.ai/bootstrap-port"
"""smg tells decode this port of a prefill pod."""
PAGE_SIZE = 64
"""SGLang's default, one token, makes a transfer of many small pieces; 64 is what FlashMLA and TensorRT-LLM's kernels take."""
_KEEP_ALIVE_SECONDS = 120
"""Longer than a router keeps idle connections: after SGLang's 5 s it would reuse one that is closed (sglang#20851)."""
_MOST_ADAPTERS = 8
_LORA_NOTE = (
    "requests name a LoRA adapter by lora_path besides model: SGLang takes the name of an adapter alone for that of the model,"
    " and smg has no pods for a model of that name"
)
"""`_resolve_lora_path` of sglang/srt/entrypoints/openai/serving_base.py; smg 1.13.0 answers 503 to `adapter` and to
`model:adapter`, which SGLang itself would take."""

_HEALTH = Health(startup="/health_generate", ready="/health_generate", live="/health")
"""SGLang's checks have a token generated. What is wrong with a transfer fails that as well, and is none of liveness' business:
decode pods would be killed since a prefill pod has died (sglang#12779, #13657). A process that hangs SGLang's own watchdog
ends; so liveness asks the HTTP server only."""

_CACHES = {
    "SGLANG_CACHE_DIR": "sglang",
    "SGLANG_JIT_CACHE_DIR": "sglang/jit",
    # SGLang sets DeepGEMM's own DG_JIT_CACHE_DIR from it.
    "SGLANG_DG_CACHE_DIR": "deep_gemm",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",
    "TILELANG_CACHE_DIR": "tilelang",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    # FlashInfer adds .cache/flashinfer to it.
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    # Whatever else compiles keeps to it: a home folder may not be there, or not be the user's to write.
    "XDG_CACHE_HOME": "",
}
"""Variable -> folder below `KERNELS_PATH`."""


def protocol(transfer: Transfer) -> PairProtocol | None:
    """Both pods work on a request at once, whichever library moves KV cache."""
    del transfer
    return PairProtocol.CONCURRENT


def engine_pod(spec: Spec, role: RoleName, image: str, transfer: Transfer, model: ModelFiles) -> EnginePod:
    """How to start `sglang.launch_server` as `role`."""
    release, notes = since.started_as(spec.engine.version, image)
    prefill = role is RoleName.PREFILL
    own: Parallelism = getattr(spec, role).parallelism
    names = (model.model, spec.model.name)
    latent = sglang_kv.latent_attention(*names)
    offload = sglang_offload.offloading(
        tiers(transfer.offload),
        role,
        own.ranks,
        release,
        sglang_offload.Served(
            files=_layout(spec, release),
            adapters=bool(model.adapters),
            decode_readable=latent or not _cut_anew(spec),
        ),
    )
    # Decode asks after prefill every 5 s, and gives up requests of one that is gone.
    lease = transfer.lease(heartbeats=True)
    staging = not latent and _cut_anew(spec) and _can_stage(spec, transfer, release, names)
    if staging:
        notes += _staging_notes(transfer, release)
    if transfer.backend is Backend.LIBFABRIC and release < since.NIXL_BACKENDS:
        notes.append(
            "SGLang before 0.5.9 has NIXL with UCX only, which does not reach EFA: use a later release"
        )
    return EnginePod(
        command=["python3", "-m", "sglang.launch_server"],
        args=[
            *_identity(spec, model),
            *_transfer_args(transfer, release, prefill=prefill),
            *_parallel_args(own, release, prefill=prefill),
            *_cache_args(spec, release),
            *_report_args(release),
            *(_lora_args(spec.model.lora, model.adapters) if spec.model.lora else []),
            *offload.args,
        ],
        env=[
            # What the other side is told to connect to; SGLang would take the first address of the node's that it finds.
            pod_ip("SGLANG_HOST_IP"),
            variable("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "false"),
            _timeout(lease, prefill=prefill),
            *_transfer_env(transfer, release),
            *([variable(sglang_kv.STAGING, "true")] if staging else []),
            *(
                [variable("SGLANG_TIMEOUT_KEEP_ALIVE", _KEEP_ALIVE_SECONDS)]
                if release >= since.KEEP_ALIVE
                else []
            ),
            *offload.env,
            *(variable(name, f"{KERNELS_PATH}/{folder}".rstrip("/")) for name, folder in _CACHES.items()),
        ],
        ports={"bootstrap": BOOTSTRAP_PORT} if prefill else {},
        health=_HEALTH,
        volumes=offload.volumes,
        shared_memory="",
        # SGLang itself drains without bound: the grace period is the bound.
        drain_seconds=drain_seconds(spec, role, lease),
        memory=offload.memory,
        annotations={BOOTSTRAP_ANNOTATION: str(BOOTSTRAP_PORT)} if prefill else {},
        required_flags=_REQUIRED_FLAGS | (_REQUIRED_OF_PREFILL if prefill else {}),
        required_env=_REQUIRED_ENV,
        notes=[*notes, *offload.notes, *([_LORA_NOTE] if spec.model.lora else [])],
    )


def compatibility(template: PodTemplateBody) -> dict[str, str]:
    """What decode compares with prefill, and what it takes for granted."""
    return sglang_kv.compatibility(template)


_REQUIRED_FLAGS = {
    "--host": "neither the router nor the other role could reach the pod",
    "--port": "the Service, the probes and the router expect it",
    "--disaggregation-mode": "it would not be this role",
    "--disaggregation-transfer-backend": "prefill and decode must move KV cache with the same library",
    "--enable-metrics": "autoscaling has nothing to go by without it",
}
_REQUIRED_OF_PREFILL = {"--disaggregation-bootstrap-port": "decode asks on the port that the pod declares"}
_REQUIRED_ENV = {
    "SGLANG_HOST_IP": "the other role would be told another address",
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "a prefill pod that dies would have decode pods killed",
}


def _identity(spec: Spec, model: ModelFiles) -> list[str]:
    return [
        f"--model-path={model.model}",
        *([f"--revision={model.revision}"] if model.revision is not None else []),
        f"--served-model-name={spec.model.name}",
        # The default is the loopback, also for the bootstrap port.
        "--host=0.0.0.0",
        f"--port={HTTP_PORT}",
    ]


def _transfer_args(transfer: Transfer, release: Release, *, prefill: bool) -> list[str]:
    backend = "nixl"
    if transfer.connector is Connector.MOONCAKE:
        tcp = transfer.transport is Transport.TCP and release >= since.MOONCAKE_TCP
        backend = "mooncake_tcp" if tcp else "mooncake"
    return [
        f"--disaggregation-mode={RoleName.PREFILL if prefill else RoleName.DECODE}",
        f"--disaggregation-transfer-backend={backend}",
        *([f"--disaggregation-bootstrap-port={BOOTSTRAP_PORT}"] if prefill else []),
    ]


def _transfer_env(transfer: Transfer, release: Release) -> list[dict[str, Any]]:
    if transfer.connector is Connector.NIXL:
        if release < since.NIXL_BACKENDS or transfer.backend is None:
            return []
        return [variable(sglang_kv.NIXL_BACKEND, transfer.backend.upper())]
    if transfer.transport is Transport.TCP and release < since.MOONCAKE_TCP:
        return [variable(sglang_kv.FORCE_TCP, 1)]
    return []


def _timeout(lease: int, *, prefill: bool) -> dict[str, Any]:
    """How long a request waits for the other pod.

    In prefill until decode has room for it, in decode until its KV cache is there: the requests before it in prefill's queue,
    its own prompt and the transfer. SGLang's 300 s are long for a client, and for the memory that decode holds for it
    (sglang#10110, #10204, #11648).
    """
    what = "BOOTSTRAP" if prefill else "WAITING"
    return variable(f"SGLANG_DISAGGREGATION_{what}_TIMEOUT", lease)


def _parallel_args(own: Parallelism, release: Release, *, prefill: bool) -> list[str]:
    # SGLang counts all accelerators of a pipeline stage as tensor-parallel, whatever attention does with them.
    stage = own.tensor * own.data
    args = [f"--tp-size={stage}"]
    if own.pipeline > 1:
        args.append(f"--pp-size={own.pipeline}")
    if own.data > 1:
        if release >= since.ATTENTION_DP:
            args.append(f"--attn-dp-size={own.data}")
        else:
            args += [f"--dp-size={own.data}", "--enable-dp-attention"]
        if release < since.PREFILL_RANK_BY_ROOM and not prefill:
            args.append("--prefill-round-robin-balance")
    if own.expert and stage > 1:
        args.append(f"--ep-size={stage}")
    return args


def _cache_args(spec: Spec, release: Release) -> list[str]:
    engine = spec.engine
    args = [f"--page-size={engine.block_size or PAGE_SIZE}"]
    if engine.kv_cache_dtype is not None:
        args.append(f"--kv-cache-dtype={_format(engine.kv_cache_dtype, release)}")
    if engine.attention_backend is not None:
        args.append(f"--attention-backend={engine.attention_backend}")
    return args


def _format(dtype: KVCacheDtype, release: Release) -> str:
    """SGLang's name of a number format."""
    if dtype is KVCacheDtype.FP8:
        return "fp8_e4m3"
    if dtype is KVCacheDtype.NVFP4 and release < since.NVFP4:
        return "fp4_e2m1"
    return str(dtype)


def _report_args(release: Release) -> list[str]:
    quiet = (
        ["--uvicorn-access-log-exclude-prefixes", "/health", "/metrics"]
        if release >= since.ACCESS_LOG_PREFIXES
        else ["--log-level-http=warning"]
    )
    return [*quiet, "--enable-metrics", "--enable-cache-report"]


def _lora_args(lora: Lora, adapters: dict[str, str]) -> list[str]:
    # Requests without an adapter take a slot, too.
    slots = (lora.max_adapters or min(len(adapters), _MOST_ADAPTERS)) + 1
    return [
        "--enable-lora",
        "--lora-paths",
        *(f"{name}={path}" for name, path in adapters.items()),
        f"--max-loras-per-batch={slots}",
        *([f"--max-lora-rank={lora.max_rank}"] if lora.max_rank is not None else []),
    ]


def _cut_anew(spec: Spec) -> bool:
    """Whether the ranks of the two roles hold different numbers of heads."""
    sizes = {getattr(spec, role).parallelism.tensor for role in ENGINE_ROLES}
    return len(sizes) > 1


def _can_stage(spec: Spec, transfer: Transfer, release: Release, names: tuple[str, ...]) -> bool:
    """Whether heads can be gathered into a buffer on their way, which both roles must do.

    Without it they go one by one, which is slow, and brings both roles down under load (sglang#15674).
    """
    if sglang_kv.sliding_window(*names) and release < since.WINDOWS_BETWEEN_SIZES:
        return False
    if transfer.connector is Connector.MOONCAKE:
        return release >= since.MOONCAKE_STAGING
    return release >= since.NIXL_STAGING and spec.prefill.parallelism.pipeline == 1


def _staging_notes(transfer: Transfer, release: Release) -> list[str]:
    """What a user should know of the buffer."""
    latent = (
        f"prefill and decode have different tensor-parallel sizes, so {sglang_kv.STAGING} is set, with which SGLang does not"
        " start a model of latent attention (MLA): if this is one, set it to false in engine.env"
    )
    notes = [latent]
    if transfer.connector is Connector.NIXL and release < since.CHUNKS_IN_ANY_ORDER:
        notes.append(
            "SGLang before 0.5.23 can hang on long prompts with nixl and different tensor-parallel sizes: set"
            " kvTransfer.connector to mooncake, or the same parallelism.tensor in both roles"
        )
    return notes


def _layout(spec: Spec, release: Release) -> str:
    """Name of a folder for files of KV cache: SGLang's names of files tell neither number format nor page size."""
    engine, model = spec.engine, spec.model
    parts = [model.uri, model.revision, engine.kv_cache_dtype, engine.block_size or PAGE_SIZE, *release]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
