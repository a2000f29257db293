"""The KV connectors of vLLM: the value of `--kv-transfer-config`, and what goes with it.

Keys are those of vllm/config/kv_transfer.py and of the connectors below vllm/distributed/kv_transfer/kv_connector/v1; unknown
ones would be ignored in silence.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from disagg.api.kv_transfer import Backend, Connector, Fabric
from disagg.api.names import RoleName
from disagg.build.engines.engine import FILES_PATH, ConfigFile, pod_ip, variable
from disagg.build.engines.version import Release
from disagg.build.engines.vllm_releases import (
    BOTH_ROLES,
    LEASE,
    LOAD_FAILURE_POLICY,
    MOONCAKE,
    PORT_PER_TENSOR_RANK,
)
from disagg.build.transfer import Transfer

SIDE_CHANNEL_PORT = 5600
"""First port of NixlConnector's handshake. vLLM's own default since 0.13; before, 5557, which its KV events use, too."""
BOOTSTRAP_PORT = 8998
"""Port of MooncakeConnector's bootstrap server: vLLM's own default."""
LMCACHE_INIT_PORT = 7300
LMCACHE_ALLOC_PORT = 7400
"""First ports on which LMCache's receiver is asked for room, one for each tensor-parallel rank: those of LMCache's examples
(LMCache/LMCache, examples/disagg_prefill)."""
_LMCACHE_SENDER_BYTES = 1 << 30
_LMCACHE_RECEIVER_BYTES = 2 << 30
"""Buffers of LMCache's sender and receiver on each accelerator: those of its examples."""
_LMCACHE_FILE = "lmcache.yaml"
_LMCACHE_WARNING = (
    "pairs that exchange KV cache by LMCache are known to have returned wrong text without an error (vllm#52617):"
    " prefer connector nixl"
)


@dataclass(frozen=True)
class Pod:
    """What a connector has to know of the pod that it runs in.

    Attributes:
        role: prefill or decode.
        release: Release of vLLM, one of the known ones.
        device: What vLLM calls the accelerator: cuda (also AMD's), xpu, tpu or cpu.
        tensor: Tensor-parallel size.
        data: Data-parallel size.
    """

    role: RoleName
    release: Release
    device: str
    tensor: int
    data: int

    @property
    def kv_role(self) -> str:
        """The pod's role as connectors call it."""
        return "kv_producer" if self.role is RoleName.PREFILL else "kv_consumer"

    @property
    def buffer(self) -> str:
        """Where a connector may have its buffers: in the accelerator's memory if NIXL reaches it there."""
        return self.device if self.device in ("cuda", "xpu") else "cpu"


@dataclass(frozen=True)
class Wiring:
    """A connector in a pod.

    Attributes:
        config: The value of `--kv-transfer-config`.
        env: Environment that goes with it.
        ports: Ports on which the other role or the router asks for KV cache.
        lease: How long prefill keeps blocks that nobody has pulled or asked for, in seconds.
        annotations: Annotations of the pod.
        config_file: A configuration file of the connector's own.
        required_env: Variable of `env` -> what breaks without it.
        notes: What a user should know of it.
    """

    config: dict[str, Any]
    env: list[dict[str, Any]]
    ports: dict[str, int]
    lease: int
    annotations: dict[str, str] = field(default_factory=dict)
    config_file: ConfigFile | None = None
    required_env: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def wiring(pod: Pod, transfer: Transfer) -> Wiring:
    """The connector that moves KV cache between the roles."""
    return _CONNECTORS[transfer.connector](pod, transfer)


def combined(pod: Pod, transfer: Transfer, config: dict[str, Any], offload: dict[str, Any]) -> dict[str, Any]:
    """A connector that moves KV cache, and one that keeps it, as one.

    A request is loaded from the first that has it, and saved to all.

    Args:
        pod: The pod.
        transfer: How KV cache moves.
        config: Configuration of the connector that moves it.
        offload: Configuration of the connector that keeps it.
    """
    inner = {key: value for key, value in config.items() if key != "kv_load_failure_policy"}
    return {
        "kv_connector": "MultiConnector",
        # Both roles load, prefill from its tiers: the scheduler orders loads after writes for consumers only.
        "kv_role": "kv_both",
        # The scheduler reads it from the outermost configuration.
        **_load_failure_policy(pod, transfer),
        "kv_connector_extra_config": {"connectors": [inner, offload]},
    }


def _load_failure_policy(pod: Pod, transfer: Transfer) -> dict[str, Any]:
    if pod.release not in LOAD_FAILURE_POLICY:
        return {}
    return {"kv_load_failure_policy": str(transfer.load_failure_policy)}


def _nixl(pod: Pod, transfer: Transfer) -> Wiring:
    heartbeats = pod.release in LEASE
    lease = transfer.lease(heartbeats=heartbeats)
    extra: dict[str, Any] = {"backends": [_nixl_backend(transfer)]}
    env = [
        # Bound and advertised to the other side; the default, localhost, would send decode to itself.
        pod_ip("VLLM_NIXL_SIDE_CHANNEL_HOST"),
        variable("VLLM_NIXL_SIDE_CHANNEL_PORT", SIDE_CHANNEL_PORT),
    ]
    if pod.role is RoleName.PREFILL:
        if heartbeats:
            extra["kv_lease_duration"] = lease
        else:
            env.append(variable("VLLM_NIXL_ABORT_REQUEST_TIMEOUT", lease))
    channels = pod.data * (pod.tensor if pod.release in PORT_PER_TENSOR_RANK else 1)
    return Wiring(
        config={
            "kv_connector": "NixlConnector",
            "kv_role": "kv_both" if pod.release in BOTH_ROLES else pod.kv_role,
            "kv_buffer_device": pod.buffer,
            **_load_failure_policy(pod, transfer),
            "kv_connector_extra_config": extra,
        },
        env=env,
        ports=_ports("nixl", SIDE_CHANNEL_PORT, channels),
        lease=lease,
        required_env={
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "decode would look for prefill on its own address (vllm#27083)",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": "the port that is declared would be another one",
        },
    )


def _mooncake(pod: Pod, transfer: Transfer) -> Wiring:
    lease = transfer.lease(heartbeats=False)
    prefill = pod.role is RoleName.PREFILL
    env = [variable("VLLM_MOONCAKE_BOOTSTRAP_PORT", BOOTSTRAP_PORT)]
    if prefill:
        env.append(variable("VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT", lease))
    told = []
    if pod.release not in MOONCAKE:
        told.append(
            "MooncakeConnector of vLLM before 0.16 has no bootstrap server, which routers ask: use connector nixl"
        )
    if prefill and pod.data > 1:
        # vllm-router 0.1.17 sends prefill no X-data-parallel-rank, and decode always to `engine_id` of rank 0.
        told.append(
            "with kvTransfer.connector mooncake decode is sent to the first data-parallel rank of prefill, which has only"
            " some of the prompts: set prefill.parallelism.data to 1, or use connector nixl"
        )
    return Wiring(
        config={
            "kv_connector": "MooncakeConnector",
            # It refuses requests that are not those of its role, and kv_both is both.
            "kv_role": pod.kv_role,
            **_load_failure_policy(pod, transfer),
            "kv_connector_extra_config": {"mooncake_protocol": str(transfer.transport)},
        },
        env=env,
        # The first data-parallel rank has the bootstrap server for all of them.
        ports={"bootstrap": BOOTSTRAP_PORT} if prefill else {},
        lease=lease,
        # vllm-router learns from this annotation where to ask.
        annotations={"vllm.ai/bootstrap-port": str(BOOTSTRAP_PORT)} if prefill else {},
        required_env={"VLLM_MOONCAKE_BOOTSTRAP_PORT": "the router asks prefill on the port that is declared"},
        notes=told,
    )


def _lmcache(pod: Pod, transfer: Transfer) -> Wiring:
    sender = pod.role is RoleName.PREFILL
    init, alloc = (
        [first + rank for rank in range(pod.tensor)] for first in (LMCACHE_INIT_PORT, LMCACHE_ALLOC_PORT)
    )
    settings: dict[str, Any] = {
        "local_cpu": False,
        "enable_pd": True,
        "transfer_channel": "nixl",
        "nixl_backends": [_nixl_backend(transfer)],
        "pd_role": "sender" if sender else "receiver",
        "pd_buffer_size": _LMCACHE_SENDER_BYTES if sender else _LMCACHE_RECEIVER_BYTES,
        "pd_buffer_device": pod.buffer,
        "save_unfull_chunk": True,
    }
    if sender:
        # Whom to notify is known to the user alone, as the router is one's own with this connector.
        settings["pd_skip_proxy_notification"] = True
    else:
        settings |= {"pd_peer_init_port": init, "pd_peer_alloc_port": alloc}
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items())
    env = [variable("LMCACHE_CONFIG_FILE", f"{FILES_PATH}/{_LMCACHE_FILE}")]
    if not sender:
        # Not in the file, as each pod has its own. The environment goes over the file.
        env.append(pod_ip("LMCACHE_PD_PEER_HOST"))
    return Wiring(
        config={
            "kv_connector": "LMCacheConnectorV1",
            "kv_role": pod.kv_role,
            **_load_failure_policy(pod, transfer),
            "kv_connector_extra_config": {"discard_partial_chunks": False},
        },
        env=env,
        ports={}
        if sender
        else _ports("kv-init", init[0], pod.tensor) | _ports("kv-alloc", alloc[0], pod.tensor),
        lease=transfer.lease(heartbeats=False),
        config_file=ConfigFile(_LMCACHE_FILE, text),
        required_env={"LMCACHE_CONFIG_FILE": "LMCache would keep KV cache to itself"}
        | ({} if sender else {"LMCACHE_PD_PEER_HOST": "prefill could not reach decode"}),
        notes=[_LMCACHE_WARNING],
    )


def _nixl_backend(transfer: Transfer) -> str:
    if transfer.backend is None:
        return "LIBFABRIC" if transfer.fabric is Fabric.EFA else "UCX"
    return _NIXL_BACKENDS[transfer.backend]


def _ports(name: str, first: int, count: int) -> dict[str, int]:
    """`count` ports that follow each other, the first by the plain name."""
    return {name if number == 0 else f"{name}-{number}": first + number for number in range(count)}


_NIXL_BACKENDS = {Backend.UCX: "UCX", Backend.LIBFABRIC: "LIBFABRIC", Backend.UCCL: "UCCL"}
"""Names of NIXL's plugins (ai-dynamo/nixl, src/plugins)."""
_CONNECTORS = {Connector.NIXL: _nixl, Connector.MOONCAKE: _mooncake, Connector.LMCACHE: _lmcache}
