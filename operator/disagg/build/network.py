"""What a pod needs to reach the other role: devices, capabilities and environment of the transport."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from disagg.api.kv_transfer import Backend, Connector, Transport
from disagg.api.names import ENGINE_ROLES, GROUP_LABEL, NAME_LABEL, ROLE_LABEL, RoleName
from disagg.build.fabrics import FABRICS, PLAIN, Count, HostFolder, Preset
from disagg.build.transfer import Transfer
from disagg.build.volumes import Volume
from disagg.topology.levels import HOSTNAME, ZONE

NETWORKS_ANNOTATION = "k8s.v1.cni.cncf.io/networks"
"""Annotation from which Multus reads a pod's secondary networks (Network Plumbing Working Group's standard)."""
CLAIM = "rdma"
"""Name of a pod's resource claim, followed by a number where it has several."""

_LOCAL = ("sm", "self")
"""What UCX moves bytes with inside a pod."""
_LIBFABRIC_WITHOUT_TCP = "^tcp,sockets,udp"
"""FI_PROVIDER on a network that has no preset: libfabric's choice, except for what crosses the kernel's network stack
(libfabric man/fabric.7.md: a list that begins with ^ is of those that are not used)."""


@dataclass(frozen=True)
class Memory:
    """How UCX reads an accelerator's memory. Without it memory cannot be registered, and vLLM ends as it starts.

    Attributes:
        copy: The transport that copies it, for networks that cannot read it themselves.
        map: The transport that maps it into another process.
        env: Environment that it needs.
    """

    copy: str
    map: str
    env: Mapping[str, str] = field(default_factory=dict)


MEMORIES: dict[str, Memory] = {
    "nvidia.com": Memory("cuda_copy", "cuda_ipc"),
    "amd.com": Memory("rocm_copy", "rocm_ipc"),
    # llm-d/llm-d guides/pd-disaggregation/modelserver/xpu/vllm-rdma: the cache takes its memory for the host's.
    "gpu.intel.com": Memory("ze_copy", "ze_ipc", {"UCX_MEMTYPE_CACHE": "0"}),
}
"""By the domain of the accelerator's extended resource."""


@dataclass(frozen=True)
class Network:
    """The network of a pod, as far as KV cache crosses it.

    Attributes:
        resources: Extended resources of the engine's container.
        claims: Name of a resource claim of the pod -> its ResourceClaimTemplate.
        annotations: Annotations of the pod.
        env: Environment of the engine.
        capabilities: Linux capabilities of the engine's container.
        privileged: Whether that container runs privileged.
        volumes: Volumes with drivers of the fabric.
        holds_accelerators: Whether the claims hold the accelerators, too, so that they are not requested besides.
    """

    resources: dict[str, str] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    env: list[dict[str, Any]] = field(default_factory=list)
    capabilities: list[str] = field(default_factory=list)
    privileged: bool = False
    volumes: list[Volume] = field(default_factory=list)
    holds_accelerators: bool = False


def network(transfer: Transfer, *, accelerator: str, ranks: int) -> Network:
    """What a pod needs to reach the other role.

    Args:
        transfer: How KV cache moves.
        accelerator: Extended resource of the accelerators, which tells their vendor.
        ranks: Accelerators of the pod; 0 for an engine that runs on the CPU.
    """
    memories = _memories(accelerator) if ranks else []
    if transfer.transport is Transport.TCP:
        return Network(env=_variables(_tcp(transfer, memories)))
    preset, rdma = preset_of(transfer), transfer.rdma
    devices = rdma.count or (max(ranks, 1) if preset.count is Count.PER_ACCELERATOR else 1)
    claims = _claims(rdma.resource_claim_template, max(ranks, 1) if preset.holds_accelerators else 1)
    resource = None if claims else rdma.resource or preset.resource
    own = _variables(dict(preset.env) | _rdma(transfer, preset, memories))
    users = [variable.entry for variable in rdma.env]
    return Network(
        resources={resource: str(devices)} if resource is not None else {},
        claims=claims,
        annotations=_annotations(preset, 0 if claims else devices) | (rdma.annotations or {}),
        env=list({variable["name"]: variable for variable in [*own, *users]}.values()),
        capabilities=list(preset.capabilities if rdma.capabilities is None else rdma.capabilities),
        privileged=preset.wants_privileged and rdma.allow_privileged,
        volumes=[
            Volume(folder.name, {"hostPath": _host_path(folder)}, folder.path, folder.read_only)
            for folder in preset.folders
        ],
        holds_accelerators=bool(claims) and preset.holds_accelerators,
    )


def affinity(transfer: Transfer, *, resource: str, role: RoleName) -> dict[str, Any]:
    """Where pods have to be for their network: an `affinity` of a pod, or an empty block.

    Only pods of one group exchange KV cache, and no router does: one that came up first, on a node without accelerators,
    must not draw a group into its zone.

    Args:
        transfer: How KV cache moves.
        resource: Name of the resource.
        role: prefill or decode.
    """
    preset, rules = preset_of(transfer), dict[str, Any]()
    if preset.one_zone:
        rules["podAffinity"] = _required(resource, ENGINE_ROLES, ZONE)
    if preset.apart:
        others = [other for other in ENGINE_ROLES if other is not role]
        rules["podAntiAffinity"] = _required(resource, others, HOSTNAME)
    return rules


def preset_of(transfer: Transfer) -> Preset:
    """The preset of the network that KV cache crosses; an empty one without a preset."""
    return PLAIN if transfer.fabric is None else FABRICS[transfer.fabric]


def _tcp(transfer: Transfer, memories: list[Memory]) -> dict[str, str]:
    if _by_ucx(transfer):
        return _ucx(["tcp", *(memory.copy for memory in memories), *_LOCAL], memories)
    # ai-dynamo/nixl src/plugins/uccl/README.md.
    return {"UCCL_P2P_TRANSPORT": "tcp"} if transfer.backend is Backend.UCCL else {}


def _rdma(transfer: Transfer, preset: Preset, memories: list[Memory]) -> dict[str, str]:
    if _by_ucx(transfer):
        access = [name for memory in memories for name in (memory.copy, memory.map)]
        return _ucx([*preset.transports, *access, *_LOCAL], memories)
    if transfer.backend is Backend.LIBFABRIC and "FI_PROVIDER" not in preset.env:
        return {"FI_PROVIDER": _LIBFABRIC_WITHOUT_TCP}
    if transfer.backend is Backend.UCCL and preset.uccl_transport is not None:
        return {"UCCL_P2P_TRANSPORT": preset.uccl_transport}
    return {}


def _by_ucx(transfer: Transfer) -> bool:
    """Whether UCX moves the bytes. LMCache's own channel is NIXL with UCX; Mooncake has nothing of it."""
    return transfer.backend is Backend.UCX or transfer.connector is Connector.LMCACHE


def _ucx(transports: Iterable[str], memories: list[Memory]) -> dict[str, str]:
    values = {"UCX_TLS": ",".join(transports)}
    # Of a vendor that is not known a workaround for one of them would cost the others.
    return values | dict(memories[0].env) if len(memories) == 1 else values


def _memories(accelerator: str) -> list[Memory]:
    """How UCX may reach the memory of an accelerator: in all ways, where the vendor is not known."""
    known = MEMORIES.get(accelerator.partition("/")[0])
    return [*MEMORIES.values()] if known is None else [known]


def _claims(template: str | None, count: int) -> dict[str, str]:
    if template is None:
        return {}
    return {CLAIM: template} if count == 1 else {f"{CLAIM}-{number}": template for number in range(count)}


def _host_path(folder: HostFolder) -> dict[str, str]:
    return {"path": folder.folder} | ({"type": "Directory"} if folder.must_exist else {})


def _annotations(preset: Preset, devices: int) -> dict[str, str]:
    networks = (
        {NETWORKS_ANNOTATION: ",".join([preset.network] * devices)} if preset.network and devices else {}
    )
    return dict(preset.annotations) | networks


def _variables(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _required(resource: str, roles: Iterable[RoleName], key: str) -> dict[str, Any]:
    selector = {
        "matchLabels": {NAME_LABEL: resource},
        "matchExpressions": [{"key": ROLE_LABEL, "operator": "In", "values": [str(role) for role in roles]}],
    }
    # The API server adds the pod's own group to the selector.
    term = {"labelSelector": selector, "matchLabelKeys": [GROUP_LABEL], "topologyKey": key}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
