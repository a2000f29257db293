"""vLLM as prefill or decode.

Facts are those of vLLM 0.33 (vllm/config/kv_transfer.py, vllm/envs.py, the connectors' sources).
"""

from __future__ import annotations

import json
from typing import Any

from disagg.api.kv_transfer import Connector
from disagg.api.names import RoleName
from disagg.api.spec import Spec
from disagg.build.engines.engine import (
    HTTP_PORT,
    EnginePod,
    Metrics,
    PairProtocol,
    PodTemplateBody,
    engine_container,
    pod_ip,
    variable,
)
from disagg.build.engines.version import Release, note, release
from disagg.build.model_files import ModelFiles
from disagg.build.transfer import Transfer, drain_seconds

METRICS: Metrics | None = Metrics(
    path="/metrics",
    waiting=("vllm:num_requests_waiting",),
    running="vllm:num_requests_running",
    kv_cache_usage="vllm:kv_cache_usage_perc",
)

NEWEST: Release = (0, 33)
SIDE_CHANNEL_PORT = 5600
"""vLLM's own default since 0.18. Set explicitly, since 0.11 took 5557, which its KV events use too."""
_KV_BOTH_UP_TO: Release = (0, 18)
"""Up to this release one role for both sides was the documented way; later it is deprecated."""


_PROTOCOLS = {
    Connector.NIXL: PairProtocol.SEQUENTIAL,
    # Decode tells prefill where to write, so both work at once.
    Connector.MOONCAKE: PairProtocol.CONCURRENT,
    # LMCache has one of its own, with a message from prefill to the router.
    Connector.LMCACHE: None,
}


def protocol(transfer: Transfer) -> PairProtocol | None:
    """How a router has a pair work on one request: each connector has its own way."""
    return _PROTOCOLS[transfer.connector]


def engine_pod(spec: Spec, role: RoleName, image: str, transfer: Transfer, model: ModelFiles) -> EnginePod:
    """How to start `vllm serve` as `role`."""
    found = release(spec.engine.version, image)
    lease = transfer.lease(heartbeats=True)
    parallelism = getattr(spec, role).parallelism
    config = kv_transfer_config(role, found or NEWEST, lease)
    args = [
        model.model,
        f"--served-model-name={spec.model.name}",
        f"--port={HTTP_PORT}",
        f"--tensor-parallel-size={parallelism.tensor}",
        f"--kv-transfer-config={json.dumps(config, separators=(',', ':'))}",
    ]
    env: list[dict[str, Any]] = [
        # Bound and advertised to the other side; the default, localhost, would send decode to itself.
        pod_ip("VLLM_NIXL_SIDE_CHANNEL_HOST"),
        variable("VLLM_NIXL_SIDE_CHANNEL_PORT", SIDE_CHANNEL_PORT),
        # vLLM closes idle connections after 5 s, routers keep theirs for longer and would meet a reset.
        variable("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", 120),
        # Prefix hashes must agree between pods.
        variable("PYTHONHASHSEED", 0),
    ]
    return EnginePod(
        # The image's entry point differs between releases; this one works in all of them.
        command=["vllm", "serve"],
        args=args,
        env=env,
        ports={"nixl": SIDE_CHANNEL_PORT},
        shared_memory="",
        drain_seconds=drain_seconds(spec, role, lease),
        required_flags={
            "--port": "the Service, the probes and the router expect it",
            "--kv-transfer-config": "decode gets no KV cache without it",
        },
        required_env={
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "decode would look for prefill on its own address",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": "the port is declared, and the same in both roles",
        },
        notes=note("vLLM", found, NEWEST),
    )


def kv_transfer_config(role: RoleName, found: Release, lease_seconds: int) -> dict[str, Any]:
    """The value of `--kv-transfer-config` for `role`."""
    if found[:2] <= _KV_BOTH_UP_TO:
        kv_role = "kv_both"
    else:
        kv_role = "kv_producer" if role is RoleName.PREFILL else "kv_consumer"
    config: dict[str, Any] = {"kv_connector": "NixlConnector", "kv_role": kv_role}
    if role is RoleName.PREFILL:
        config["kv_connector_extra_config"] = {"kv_lease_duration": lease_seconds}
    return config


def compatibility(template: PodTemplateBody) -> dict[str, str]:
    """What vLLM's handshake compares, as far as the container tells it."""
    container = engine_container(template)
    return {"image": str(container.get("image"))}
