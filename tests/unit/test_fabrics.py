"""What pods are given on each network, against what the guides of clouds and vendors have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from disagg.api.kv_transfer import Fabric
from disagg.build.fabrics import FABRICS, Preset
from tests.unit.resources import container, overlaid, resource, template

PAGE = Path(__file__).parents[2] / "docs/kv-transport.md"
ROLES = ("prefill", "decode")
TENSOR = {"prefill": 1, "decode": 4}
GUIDE: dict[str, Any] = {role: {"parallelism": {"tensor": TENSOR[role]}} for role in ROLES}
"""llm-d's guide to prefill and decode: prefill on one GPU, decode on four."""

ENGINES: dict[str, dict[str, Any]] = {
    "vllm": {},
    "sglang": {
        "engine": {"kind": "sglang", "image": "lmsysorg/sglang:v0.5.23"},
        "router": {"kind": "none"},
    },
    "trtllm": {
        "engine": {"kind": "trtllm", "image": "nvcr.io/nvidia/tensorrt-llm/release:1.2.0"},
        "router": {"kind": "none"},
    },
    "custom": {"engine": {"kind": "custom"}},
}


def spec(fabric: Fabric | str, *others: dict[str, Any]) -> dict[str, Any]:
    """Fields of a resource on a network."""
    wanted: dict[str, Any] = {"kvTransfer": {"transport": "rdma", "fabric": str(fabric)}}
    if fabric == Fabric.GKE_DRANET:
        wanted = overlaid(wanted, {"kvTransfer": {"rdma": {"resourceClaimTemplate": "gke-rdma-template"}}})
    for other in (GUIDE, *others):
        wanted = overlaid(wanted, other)
    return wanted


def environment(engine: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in engine["env"]}


def of_network(engine: dict[str, Any]) -> dict[str, str]:
    """The environment of libraries that move bytes."""
    prefixes = ("UCX_", "FI_", "NCCL_", "UCCL_")
    return {name: value for name, value in environment(engine).items() if name.startswith(prefixes)}


MELLANOX = {"UCX_TLS": "rc_x,rc,dc_x,dc,cuda_copy,cuda_ipc,sm,self"}
GKE_ENV = {
    "UCX_IB_ROCE_REACHABILITY_MODE": "all",
    "NCCL_TUNER_PLUGIN": "none",
    # llm-d's overlay for A4X, but for shm, which is another name of sm.
    "UCX_TLS": "rc_mlx5,rc,cuda_copy,cuda_ipc,sm,self",
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        # ai-dynamo/dynamo docs/kubernetes/disagg-communication-guide.md, InfiniBand Configuration.
        (Fabric.INFINIBAND, MELLANOX),
        (Fabric.ROCE, MELLANOX),
        (Fabric.AKS, MELLANOX),
        # ai-dynamo/dynamo docs/kubernetes/cloud-providers/eks/efa.md, Required EFA environment variables.
        (
            Fabric.EFA,
            {
                "FI_PROVIDER": "efa",
                "FI_EFA_USE_DEVICE_RDMA": "1",
                "FI_EFA_ENABLE_SHM_TRANSFER": "0",
                "FI_EFA_USE_HUGE_PAGE": "0",
            },
        ),
        # llm-d/llm-d guides/pd-disaggregation/modelserver/gpu/vllm/gke.
        (Fabric.GKE, GKE_ENV),
        (Fabric.GKE_DRANET, GKE_ENV),
        # llm-d/llm-d guides/pd-disaggregation/modelserver/amd/vllm/oci has rc,ud,sm,self,cuda_copy.
        (Fabric.OCI, {"UCX_TLS": "rc,ud,cuda_copy,cuda_ipc,sm,self", "UCX_IB_GID_INDEX": "3"}),
    ],
)
def test_libraries_are_told_what_the_guides_tell_them(
    fabric: Fabric, expected: dict[str, str], engine: str
) -> None:
    assert of_network(container(resource(**spec(fabric, ENGINES[engine])))) == expected


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        (Fabric.INFINIBAND, {"rdma/ib": ("1", "1")}),
        (Fabric.ROCE, {"rdma/hca_shared_devices_a": ("1", "1")}),
        (Fabric.AKS, {"rdma/shared_ib": ("1", "1")}),
        (Fabric.EFA, {"vpc.amazonaws.com/efa": ("1", "4")}),
        (Fabric.OCI, {"nvidia.com/sriov-rdma-vf": ("1", "4")}),
        # The annotation brings them.
        (Fabric.GKE, {}),
        (Fabric.GKE_DRANET, {}),
    ],
)
def test_devices_are_requested_as_the_guides_do(fabric: Fabric, expected: dict[str, tuple[str, str]]) -> None:
    for number, role in enumerate(ROLES):
        limits = container(resource(**spec(fabric)), role)["resources"].get("limits", {})
        devices = {name: count for name, count in limits.items() if name != "nvidia.com/gpu"}
        assert devices == {name: counts[number] for name, counts in expected.items()}


@pytest.mark.parametrize("fabric", [fabric for fabric in Fabric if fabric is not Fabric.GKE_DRANET])
def test_accelerators_are_requested_besides(fabric: Fabric) -> None:
    assert container(resource(**spec(fabric)), "decode")["resources"]["limits"]["nvidia.com/gpu"] == "4"


@pytest.mark.parametrize("fabric", Fabric)
def test_memory_may_be_locked(fabric: Fabric) -> None:
    security = container(resource(**spec(fabric)))["securityContext"]
    assert security == {"capabilities": {"add": ["IPC_LOCK"]}}


def test_with_dranet_a_claim_of_each_rank_holds_its_gpu() -> None:
    """llm-d/llm-d guides/pd-disaggregation/modelserver/gpu/vllm/gke/base/kustomization.yaml."""
    wanted = resource(**spec(Fabric.GKE_DRANET))
    (prefill, decode) = (template(wanted, role)["spec"] for role in ROLES)
    names = [f"rdma-{number}" for number in range(4)]
    assert prefill["resourceClaims"] == [{"name": "rdma", "resourceClaimTemplateName": "gke-rdma-template"}]
    assert decode["resourceClaims"] == [
        {"name": name, "resourceClaimTemplateName": "gke-rdma-template"} for name in names
    ]
    assert decode["containers"][0]["resources"] == {"claims": [{"name": name} for name in names]}


@pytest.mark.parametrize("role", ROLES)
def test_with_dranet_pods_go_to_the_tainted_nodes_that_have_gpus(role: str) -> None:
    """The API server lets pods that request nvidia.com/gpu on them, and not those that claim it."""
    on = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert template(resource(**spec(Fabric.GKE_DRANET)), role)["spec"]["tolerations"] == [on]
    assert "tolerations" not in template(resource(**spec(Fabric.GKE)), role)["spec"]


def test_with_dranet_a_network_card_alone_may_be_claimed() -> None:
    """llm-d's overlay for A4X, where the device plugin has the GPUs."""
    wanted = resource(
        **spec(Fabric.GKE_DRANET, {"decode": {"resources": {"limits": {"nvidia.com/gpu": "4"}}}})
    )
    resources = container(wanted, "decode")["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": "4"}
    assert len(resources["claims"]) == 4


@pytest.mark.parametrize("role", ROLES)
def test_on_gke_a_pod_has_all_network_cards_of_its_node(role: str) -> None:
    """llm-d/llm-d guides/pd-disaggregation/ms-pd/values_gke_rdma.yaml."""
    pod = template(resource(**spec(Fabric.GKE)), role)
    annotations = pod["metadata"]["annotations"]
    assert annotations["networking.gke.io/default-interface"] == "eth0"
    assert json.loads(annotations["networking.gke.io/interfaces"]) == [
        {"interfaceName": "eth0", "network": "default"},
        *({"interfaceName": f"eth{number + 2}", "network": f"rdma-{number}"} for number in range(8)),
    ]
    folders = {volume["name"]: volume.get("hostPath") for volume in pod["spec"]["volumes"]}
    paths = {
        mount["mountPath"]: folders[mount["name"]] for mount in pod["spec"]["containers"][0]["volumeMounts"]
    }
    assert paths["/usr/local/nvidia"] == {"path": "/home/kubernetes/bin/nvidia"}
    assert paths["/usr/local/gib"] == {"path": "/home/kubernetes/bin/gib"}


@pytest.mark.parametrize("role", ROLES)
def test_on_oci_a_pod_has_an_interface_for_each_virtual_function(role: str) -> None:
    """llm-d/llm-d guides/pd-disaggregation/modelserver/amd/vllm/oci/kustomization.yaml."""
    pod = template(resource(**spec(Fabric.OCI)), role)
    networks = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"].split(",")
    assert networks == ["default/sriov-rdma-vf"] * TENSOR[role]
    assert {
        "name": "infiniband",
        "hostPath": {"path": "/dev/infiniband", "type": "Directory"},
    } in pod["spec"]["volumes"]


def test_on_oci_with_amd_memory_is_that_of_rocm() -> None:
    amd = {"accelerator": {"resource": "amd.com/gpu"}}
    engine = container(resource(**spec(Fabric.OCI, amd)))
    assert environment(engine)["UCX_TLS"] == "rc,ud,rocm_copy,rocm_ipc,sm,self"


def test_the_counts_of_p5en_can_be_asked_for_by_role() -> None:
    """llm-d/llm-d guides/pd-disaggregation/modelserver/gpu/vllm/aws: two network cards a GPU."""
    counts = {"prefill": "2", "decode": "8"}
    own = {role: {"resources": {"limits": {"vpc.amazonaws.com/efa": counts[role]}}} for role in ROLES}
    wanted = resource(**spec(Fabric.EFA, own))
    for role in ROLES:
        for part in ("containers", "initContainers"):
            limits = template(wanted, role)["spec"][part][0]["resources"]["limits"]
            assert limits["vpc.amazonaws.com/efa"] == counts[role]


def test_a_cluster_with_networks_of_its_own_is_described_by_overriding() -> None:
    """llm-d/llm-d guides/pd-disaggregation/ms-pd/values_ocp_rdma.yaml."""
    own = {
        "resource": "rdma/roce_gdr",
        "count": 2,
        "annotations": {"k8s.v1.cni.cncf.io/networks": "multi-nic-compute"},
        "capabilities": ["IPC_LOCK", "SYS_RAWIO", "NET_ADMIN", "NET_RAW"],
    }
    wanted = resource(**spec(Fabric.ROCE, {"kvTransfer": {"rdma": own}}))
    engine = container(wanted)
    assert engine["resources"]["limits"] == {"nvidia.com/gpu": "1", "rdma/roce_gdr": "2"}
    assert engine["securityContext"]["capabilities"]["add"] == own["capabilities"]
    assert template(wanted)["metadata"]["annotations"].items() >= own["annotations"].items()  # type: ignore[attr-defined]


@pytest.mark.parametrize("fabric", Fabric)
@pytest.mark.parametrize("role", ROLES)
def test_pods_are_valid(fabric: Fabric, role: str) -> None:
    pod = template(resource(**spec(fabric)), role)
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"} | pod["metadata"],
        "spec": pod["spec"],
    }
    kubernetes_validate.validate(body, "1.37", strict=True)


# The page about it


def cells(preset: Preset) -> dict[str, set[str]]:
    """What the page has to say of a preset, by column."""
    devices = {preset.resource} if preset.resource else set()
    annotations = set(preset.annotations) | ({"k8s.v1.cni.cncf.io/networks"} if preset.network else set())
    return {
        "Device": devices | ({"resourceClaimTemplate"} if preset.holds_accelerators else set()),
        "How many": {preset.count.value}
        if preset.resource
        else {"one per accelerator"}
        if preset.holds_accelerators
        else {"all of the node"},
        "UCX between pods": {",".join(preset.transports)} if preset.driver is None else {"libfabric"},
        "Environment": {f"{name}={value}" for name, value in preset.env.items()},
        "Annotations": annotations,
        "Folders of the node": {folder.folder for folder in preset.folders},
        "Capabilities": set(preset.capabilities) | ({"privileged"} if preset.wants_privileged else set()),
    }


def test_the_page_has_each_preset_as_it_is() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith(("| Fabric |", *(f"| `{fabric}` |" for fabric in Fabric)))
    ]
    header, *body = rows
    told = {
        row[0].strip("`"): {
            column: set(re.findall(r"`([^`]+)`", cell)) or ({cell} if cell else set())
            for column, cell in zip(header[1:], row[1:], strict=True)
        }
        for row in body
    }
    assert told == {str(fabric): cells(preset) for fabric, preset in FABRICS.items()}
