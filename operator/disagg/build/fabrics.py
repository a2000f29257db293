"""RDMA networks by name: what a pod needs on each, as the guides of clouds and vendors have it.

A table to be reviewed. Everything in it can be overridden by `kvTransfer.rdma`; what is not in it is left to libraries that
find out for themselves. Above all UCX_NET_DEVICES: it is one value for all ranks of a pod, each of which has a network card
of its own next to its accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from disagg.api.kv_transfer import Fabric


class Count(StrEnum):
    """How many devices a pod takes of which nothing is said."""

    ONE = "one"
    """Of a device that pods share: one of it lets them use all network cards of the node."""
    PER_ACCELERATOR = "one per accelerator"
    """Of network cards, or of virtual functions, which are a pod's alone."""


@dataclass(frozen=True)
class HostFolder:
    """A folder of the node that the engine's container has.

    Attributes:
        name: Name of the volume.
        folder: The folder of the node.
        path: Where the container has it.
        read_only: Whether it is mounted read-only.
        must_exist: Whether a pod waits on a node without it.
    """

    name: str
    folder: str
    path: str
    read_only: bool = True
    must_exist: bool = False


@dataclass(frozen=True)
class Preset:
    """What a pod needs to reach an RDMA network.

    Attributes:
        resource: Extended resource of the device; None where devices come by annotation or by claim.
        count: How many of it a pod takes.
        transports: What UCX moves bytes with between pods, best first. Never tcp.
        env: Environment of the engine.
        uccl_transport: UCCL_P2P_TRANSPORT of NIXL's UCCL backend; None for UCCL's own default, which is verbs.
        annotations: Annotations of the pod.
        network: Secondary network, as namespace/name, of which a pod gets an interface for each device.
        folders: Folders of the node with drivers and devices.
        capabilities: Linux capabilities of the engine's container.
        wants_privileged: Whether the container runs privileged if the user allows it.
        holds_accelerators: Whether a claim holds an accelerator and its network card, so that a pod takes one per accelerator.
        apart: Whether prefill and decode cannot talk on one node.
        one_zone: Whether the network ends at the zone.
        driver: Kernel driver of the device, where another one would not do.
        device_files: Whether the preflight check, too, is given /dev/infiniband.
    """

    resource: str | None = None
    count: Count = Count.ONE
    transports: tuple[str, ...] = ("rc_x", "rc", "dc_x", "dc")
    env: Mapping[str, str] = field(default_factory=dict)
    uccl_transport: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    network: str | None = None
    folders: tuple[HostFolder, ...] = ()
    capabilities: tuple[str, ...] = ("IPC_LOCK",)
    wants_privileged: bool = False
    holds_accelerators: bool = False
    apart: bool = False
    one_zone: bool = False
    driver: str | None = None
    device_files: bool = True


PLAIN = Preset()
"""A network of which the user says all that there is to say.

The order of transports is that of ai-dynamo/dynamo docs/kubernetes/disagg-communication-guide.md: `rc` takes verbs where a
card is not from Mellanox, and both bring the `ud` that they need to connect (openucx/ucx src/ucp/core/ucp_context.c,
ucp_tl_aliases). A transport that a node does not have costs a warning and nothing else. IPC_LOCK lets the network card pin
memory where the container runtime limits what a process may lock.
"""

_GKE_ENV = {
    # Each card is in a subnet of its own, between which UCX sees no route: llm-d/llm-d
    # guides/pd-disaggregation/modelserver/gpu/vllm/gke/base/kustomization.yaml.
    "UCX_IB_ROCE_REACHABILITY_MODE": "all",
    # The node's tuner plugin is made for other collectives than those of one pod: same file.
    "NCCL_TUNER_PLUGIN": "none",
}
_GKE_NETWORKS = ",".join(
    ['{"interfaceName":"eth0","network":"default"}']
    + [f'{{"interfaceName":"eth{number + 2}","network":"rdma-{number}"}}' for number in range(8)]
)

FABRICS: dict[Fabric, Preset] = {
    # CoreWeave, Nebius, Nscale and others call the shared device so, and take one of it: llm-d/llm-d
    # guides/pd-disaggregation/modelserver/gpu/vllm/coreweave/kustomization.yaml.
    # UCX_IB_ADDR_TYPE=eth of dynamo's guide is left out: of its values UCX acts upon ib_site_local and ib_global only
    # (openucx/ucx src/uct/ib/base/ib_iface.c, force_global_addr). UCX_IB_IS_GLOBAL=y is what such a cluster needs.
    Fabric.INFINIBAND: Preset(resource="rdma/ib"),
    # Name in the example of the plugin: Mellanox/k8s-rdma-shared-dev-plugin README.md. UCX chooses the GID index by the
    # version of RoCE (UCX_IB_GID_INDEX=auto); a fixed one is right on one cluster and wrong on the next.
    Fabric.ROCE: Preset(resource="rdma/hca_shared_devices_a"),
    # ai-dynamo/dynamo docs/kubernetes/cloud-providers/eks/efa.md, llm-d/llm-d
    # guides/pd-disaggregation/modelserver/gpu/vllm/aws.
    Fabric.EFA: Preset(
        resource="vpc.amazonaws.com/efa",
        # A node has one (p6-b200), two (p5en) or four (p5) per GPU, and NIXL stripes over what it gets. More than one would
        # leave pods pending on some nodes.
        count=Count.PER_ACCELERATOR,
        env={
            # Without it NIXL takes libfabric's tcp when it finds no EFA (nixl src/utils/libfabric/libfabric_common.cpp).
            "FI_PROVIDER": "efa",
            "FI_EFA_USE_DEVICE_RDMA": "1",
            "FI_EFA_ENABLE_SHM_TRANSFER": "0",
            # The default takes 2 MiB pages (libfabric man/fi_efa.7.md), of which the pod requests none.
            "FI_EFA_USE_HUGE_PAGE": "0",
        },
        # ai-dynamo/nixl src/plugins/uccl/README.md.
        uccl_transport="efa",
        # dynamo's guide says that IPC_LOCK alone does not let it register GPU memory; llm-d's runs with IPC_LOCK alone.
        wants_privileged=True,
        # EAGAIN on one node: ai-dynamo/dynamo docs/kubernetes/disagg-communication-guide.md, Pod Anti-Affinity.
        apart=True,
        one_zone=True,
        driver="efa",
    ),
    # A3 Ultra and A4, whose multi-networking gives all cards of a node to one pod: llm-d/llm-d
    # guides/pd-disaggregation/ms-pd/values_gke_rdma.yaml (v0.5),
    # https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom.
    Fabric.GKE: Preset(
        # llm-d/llm-d guides/pd-disaggregation/modelserver/gpu/vllm/gke/a4x/kustomization.yaml.
        transports=("rc_mlx5", "rc"),
        env=_GKE_ENV,
        annotations={
            "networking.gke.io/default-interface": "eth0",
            "networking.gke.io/interfaces": f"[{_GKE_NETWORKS}]",
        },
        folders=(
            HostFolder("gke-nvidia", "/home/kubernetes/bin/nvidia", "/usr/local/nvidia"),
            HostFolder("gke-gib", "/home/kubernetes/bin/gib", "/usr/local/gib"),
        ),
        # GKE adds devices to containers by itself, and does not say that it does so for init containers.
        device_files=False,
    ),
    # A3 Ultra and A4 with DRANET: one claim per rank holds an accelerator and the card on its PCIe root. llm-d/llm-d
    # guides/pd-disaggregation/modelserver/gpu/vllm/gke/base/kustomization.yaml.
    Fabric.GKE_DRANET: Preset(transports=("rc_mlx5", "rc"), env=_GKE_ENV, holds_accelerators=True),
    # SR-IOV virtual functions of the NVIDIA Network Operator: llm-d/llm-d
    # guides/pd-disaggregation/modelserver/amd/vllm/oci/kustomization.yaml.
    Fabric.OCI: Preset(
        resource="nvidia.com/sriov-rdma-vf",
        count=Count.PER_ACCELERATOR,
        transports=("rc", "ud"),
        env={"UCX_IB_GID_INDEX": "3"},
        network="default/sriov-rdma-vf",
        folders=(
            HostFolder("infiniband", "/dev/infiniband", "/dev/infiniband", read_only=False, must_exist=True),
        ),
    ),
    # ai-dynamo/dynamo recipes/qwen3-32b/cloud-providers/README.md; Azure/aks-rdma-infiniband for the plugin.
    Fabric.AKS: Preset(resource="rdma/shared_ib"),
}
