"""How the KV cache moves from prefill to decode. One block drives both roles and the router, so they cannot disagree."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from disagg.api.fields import Block, Environment, KubernetesName, Quantity, cel, rules


class Connector(StrEnum):
    """Libraries that move KV cache."""

    NIXL = "nixl"
    MOONCAKE = "mooncake"
    LMCACHE = "lmcache"


class Backend(StrEnum):
    """What NIXL moves bytes with."""

    UCX = "ucx"
    LIBFABRIC = "libfabric"
    UCCL = "uccl"


class Transport(StrEnum):
    """What the bytes cross."""

    RDMA = "rdma"
    TCP = "tcp"


class Fabric(StrEnum):
    """RDMA networks whose resource names, annotations, environment and capabilities are known."""

    INFINIBAND = "infiniband"
    ROCE = "roce"
    EFA = "efa"
    GKE = "gke"
    GKE_DRANET = "gke-dranet"
    OCI = "oci"
    AKS = "aks"


class LoadFailurePolicy(StrEnum):
    """What decode does with a request whose KV cache did not arrive."""

    FAIL = "fail"
    RECOMPUTE = "recompute"


class Rdma(Block):
    """What a pod needs to reach the fabric, where it differs from the preset."""

    model_config = rules(
        cel(
            "!(has(self.resource) && has(self.resourceClaimTemplate))",
            "'resource and resourceClaimTemplate are two ways to the same device: set one of them'",
        ),
        cel(
            "!has(self.count) || !has(self.resourceClaimTemplate)",
            "'count is for resource: how many devices a claim holds is said in its template'",
            field=".count",
        ),
        # Container runtimes put CAP_ before what Kubernetes gives them, and do not start the container.
        cel(
            "!has(self.capabilities) || !self.capabilities.exists(name, name.startsWith('CAP_'))",
            "'capabilities are named without CAP_, as in a container: IPC_LOCK, not CAP_IPC_LOCK'",
            field=".capabilities",
        ),
    )

    resource: Annotated[str, Field(min_length=1, max_length=317, pattern=r"^[^/\s]+/[^/\s]+$")] | None = None
    """Extended resource of the RDMA device, such as rdma/ib."""
    count: Annotated[int, Field(ge=1, le=64)] | None = None
    """How many of it a pod takes. Default: the preset's, or one."""
    resource_claim_template: KubernetesName | None = None
    """ResourceClaimTemplate (dynamic resource allocation) in the resource's namespace that holds the device."""
    annotations: Annotated[dict[str, str], Field(max_length=32)] | None = None
    """Annotations of the pods, such as secondary networks; laid over the preset's."""
    env: Environment = []
    """Environment of the engine, such as UCX_IB_GID_INDEX; overrides the preset's by name."""
    capabilities: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Z_]+$")]],
            Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = None
    """Linux capabilities of the engine's container, instead of the preset's."""
    allow_privileged: bool = False
    """true: the preset may run the engine's container privileged, where its fabric needs it."""


class OffloadDisk(Block):
    """A disk that keeps KV cache."""

    path: Annotated[str, Field(min_length=2, max_length=1024, pattern=r"^/[^\s:]+$")] = (
        "/var/lib/disagg/kv-disk"
    )
    """Where it is mounted in the engine's container."""
    size: Quantity
    """Its size per pod."""
    storage_class: KubernetesName | None = None
    """Storage class of a volume that lives as long as the pod. Default: the node's own disk (emptyDir)."""


class OffloadSharedFileSystem(Block):
    """A file system that all pods share."""

    claim: KubernetesName
    """Name of a PersistentVolumeClaim, ReadWriteMany, in the resource's namespace."""
    path: Annotated[str, Field(min_length=2, max_length=1024, pattern=r"^/[^\s:]+$")] = (
        "/var/lib/disagg/kv-shared"
    )
    """Where it is mounted in the engine's container."""


class Offload(Block):
    """Tiers that keep KV cache which the accelerator has no room for."""

    model_config = rules(
        cel(
            "has(self.cpu) || !(has(self.disk) || has(self.sharedFileSystem))",
            "'disk and sharedFileSystem are filled from CPU memory: set cpu, too'",
        ),
        cel(
            "!has(self.disk) || !has(self.sharedFileSystem) || self.disk.path != self.sharedFileSystem.path",
            "'disk and sharedFileSystem are both mounted at ' + self.disk.path + ': give one another path'",
        ),
    )

    cpu: Quantity | None = None
    """CPU memory per pod, divided among its ranks; added to the memory that the pod requests."""
    disk: OffloadDisk | None = None
    """A disk behind the CPU memory."""
    shared_file_system: OffloadSharedFileSystem | None = None
    """A file system behind the CPU memory, that all pods share."""


class KVTransfer(Block):
    """How the KV cache moves from prefill to decode."""

    model_config = rules(
        cel(
            "self.transport != 'rdma' || has(self.fabric) || has(self.rdma) &&"
            " (has(self.rdma.resource) || has(self.rdma.resourceClaimTemplate))",
            "'transport rdma needs a device: set kvTransfer.fabric to the network of your cluster (infiniband, roce, efa,"
            " gke, gke-dranet, oci, aks), or kvTransfer.rdma.resource or rdma.resourceClaimTemplate'",
        ),
        cel(
            "self.transport == 'rdma' || !(has(self.fabric) || has(self.rdma))",
            "'fabric and rdma are for transport rdma: remove them, or set kvTransfer.transport to rdma'",
        ),
        cel(
            "!(has(self.rdma) && has(self.rdma.resource) && self.rdma.resource == 'vpc.amazonaws.com/efa')"
            " || has(self.fabric) && self.fabric == 'efa'",
            "'vpc.amazonaws.com/efa is the device of fabric efa, whose settings it needs: set kvTransfer.fabric to efa'",
            field=".rdma",
        ),
        cel(
            "!(has(self.rdma) && has(self.rdma.count)) || has(self.rdma.resource)"
            " || !has(self.fabric) || !(self.fabric in ['gke', 'gke-dranet'])",
            "'rdma.count has no effect on fabric ' + self.fabric + ', which gives devices by annotation or claim: remove it'",
            field=".rdma",
        ),
        cel(
            "!(has(self.rdma) && has(self.rdma.allowPrivileged) && self.rdma.allowPrivileged)"
            " || has(self.fabric) && self.fabric == 'efa'",
            "'rdma.allowPrivileged is for fabric efa, the only one that may need it: remove it'",
            field=".rdma",
        ),
        cel(
            "!has(self.backend) || self.connector == 'nixl'",
            "'backend is what NIXL moves bytes with: remove it, or set kvTransfer.connector to nixl'",
            field=".backend",
        ),
        cel(
            "!has(self.backend) || self.backend != 'libfabric' || self.transport == 'rdma'",
            "'backend libfabric is for transport rdma (fabric efa): over tcp use ucx'",
            field=".backend",
        ),
        cel(
            "!has(self.fabric) || self.fabric != 'efa' || !has(self.backend) || self.backend != 'ucx'",
            "'backend ucx has no RDMA on fabric efa and would fall back to TCP: use libfabric'",
            field=".backend",
        ),
    )

    connector: Connector = Connector.NIXL
    """nixl, mooncake or lmcache, as the engine supports."""
    backend: Backend | None = None
    """What NIXL moves bytes with: ucx, libfabric or uccl. Default: libfabric on fabric efa, else ucx."""
    transport: Transport
    """rdma: devices of a fabric; if it is broken transfers fail, they never cross TCP in silence. tcp: the pod network."""
    fabric: Fabric | None = None
    """RDMA network of the cluster: what a pod needs to reach it is then known."""
    rdma: Rdma | None = None
    """What a pod needs to reach the fabric, instead of the preset or in addition to it."""
    bandwidth_gbps: Annotated[int, Field(ge=1, le=10000)] | None = None
    """Bandwidth of a pod's link in Gbit/s, for the estimate in the status. Default: 10 for tcp."""
    load_failure_policy: LoadFailurePolicy | None = None
    """fail: a request whose KV cache did not arrive fails. recompute: decode computes it again, which hides a broken fabric
    and slows every other request of that pod. Default: fail."""
    lease_seconds: Annotated[int, Field(ge=30, le=3600)] | None = None
    """How long prefill keeps KV cache that decode has neither pulled nor asked for. Default: 120, or 300 where the engine
    has no heartbeats."""
    offload: Offload | None = None
    """Tiers that keep KV cache which the accelerator has no room for."""
    preflight: bool | None = None
    """Check devices, memory lock limit and model before the engine starts. Default: true for
    rdma, where the operator knows the engine: the check is run by the Python of its image."""
