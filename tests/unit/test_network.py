"""What a transport makes of a pod."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from disagg.api.kv_transfer import Backend, Connector, Fabric, KVTransfer, Transport
from disagg.api.names import ENGINE_ROLES, RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.api.topology_constraint import PackMode
from disagg.build.engine_template import engine_template
from disagg.build.network import Network, network
from disagg.build.placement import placed
from disagg.build.pod_template import pod_templates
from disagg.build.transfer import resolve
from disagg.decide.decisions import GroupDecision, Mechanism, Placement
from tests.unit import strategies
from tests.unit.racks import RACK
from tests.unit.resources import container, resource, template

NVIDIA, AMD, INTEL, OTHER = "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "example.com/gpu"
ALL_MEMORY = "cuda_copy,cuda_ipc,rocm_copy,rocm_ipc,ze_copy,ze_ipc"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def over(transport: str, /, accelerator: str = NVIDIA, ranks: int = 1, **transfer: object) -> Network:
    wanted = resource(engine={"kind": "custom"}, kvTransfer={"transport": transport} | transfer)
    return network(resolve(wanted.spec), accelerator=accelerator, ranks=ranks)


def rdma(fabric: str = "infiniband", /, **overrides: object) -> Network:
    return over("rdma", fabric=fabric, rdma=overrides)


def env(made: Network) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in made.env}


# Over TCP


@pytest.mark.parametrize(
    ("accelerator", "transports"),
    [
        (NVIDIA, "tcp,cuda_copy,sm,self"),
        ("nvidia.com/mig-3g.40gb", "tcp,cuda_copy,sm,self"),
        (AMD, "tcp,rocm_copy,sm,self"),
        (INTEL, "tcp,ze_copy,sm,self"),
        (OTHER, "tcp,cuda_copy,rocm_copy,ze_copy,sm,self"),
    ],
)
def test_tcp_is_said_with_what_reads_the_accelerator(accelerator: str, transports: str) -> None:
    assert env(over("tcp", accelerator))["UCX_TLS"] == transports


def test_an_engine_on_the_cpu_has_no_memory_but_the_host_s() -> None:
    assert env(over("tcp", ranks=0)) == {"UCX_TLS": "tcp,sm,self"}


def test_tcp_takes_nothing_of_a_node_and_no_rights() -> None:
    made = over("tcp")
    assert made == Network(env=made.env)


def test_tcp_is_what_a_resource_has_that_says_nothing() -> None:
    variables = {variable["name"]: variable.get("value") for variable in container(resource())["env"]}
    assert variables["UCX_TLS"] == "tcp,cuda_copy,sm,self"


def test_a_custom_engine_that_says_nothing_is_told_nothing() -> None:
    names = {variable["name"] for variable in container(resource(engine={"kind": "custom"}))["env"]}
    assert "UCX_TLS" not in names


# Over RDMA


@pytest.mark.parametrize(
    ("accelerator", "memory"),
    [
        (NVIDIA, "cuda_copy,cuda_ipc"),
        (AMD, "rocm_copy,rocm_ipc"),
        (INTEL, "ze_copy,ze_ipc"),
        (OTHER, ALL_MEMORY),
    ],
)
def test_rdma_is_said_with_what_reads_the_accelerator(accelerator: str, memory: str) -> None:
    made = over("rdma", accelerator, fabric="infiniband")
    assert env(made)["UCX_TLS"] == f"rc_x,rc,dc_x,dc,{memory},sm,self"


@pytest.mark.parametrize("transport", ["tcp", "rdma"])
def test_ucx_does_not_take_intel_s_memory_for_the_host_s(transport: str) -> None:
    fabric: dict[str, Any] = {"fabric": "roce"} if transport == "rdma" else {}
    assert env(over(transport, INTEL, **fabric))["UCX_MEMTYPE_CACHE"] == "0"


@pytest.mark.parametrize("accelerator", [NVIDIA, AMD, OTHER])
def test_ucx_s_cache_is_left_alone_elsewhere(accelerator: str) -> None:
    assert "UCX_MEMTYPE_CACHE" not in env(over("rdma", accelerator, fabric="roce"))


@pytest.mark.parametrize(
    ("transfer", "expected"),
    [
        # UCX_TLS binds UCX and nothing else.
        pytest.param({"backend": "libfabric"}, {"FI_PROVIDER": "^tcp,sockets,udp"}, id="libfabric"),
        pytest.param({"backend": "uccl"}, {}, id="uccl"),
        pytest.param({"connector": "mooncake"}, {}, id="mooncake"),
        pytest.param(
            {"connector": "lmcache"}, {"UCX_TLS": "rc_x,rc,dc_x,dc,cuda_copy,cuda_ipc,sm,self"}, id="lmcache"
        ),
    ],
)
def test_each_library_is_held_to_rdma_in_its_own_way(
    transfer: dict[str, Any], expected: dict[str, str]
) -> None:
    assert env(over("rdma", fabric="infiniband", **transfer)) == expected


def test_uccl_speaks_efa_s_protocol_on_efa() -> None:
    assert env(over("rdma", fabric="efa", backend="uccl"))["UCCL_P2P_TRANSPORT"] == "efa"


def test_uccl_over_tcp_is_said() -> None:
    assert env(over("tcp", backend="uccl")) == {"UCCL_P2P_TRANSPORT": "tcp"}


# Devices


@pytest.mark.parametrize(("ranks", "count"), [(0, "1"), (1, "1"), (8, "8")])
def test_network_cards_of_a_pod_are_as_many_as_its_accelerators(ranks: int, count: str) -> None:
    assert over("rdma", ranks=ranks, fabric="oci").resources == {"nvidia.com/sriov-rdma-vf": count}


def test_a_shared_device_is_requested_once() -> None:
    assert over("rdma", ranks=8, fabric="infiniband").resources == {"rdma/ib": "1"}


def test_a_cluster_may_call_its_device_otherwise() -> None:
    assert rdma(resource="nvidia.com/hostdev", count=4).resources == {"nvidia.com/hostdev": "4"}


def test_a_device_needs_no_preset() -> None:
    made = over("rdma", rdma={"resource": "rdma/shared_device"})
    assert made.resources == {"rdma/shared_device": "1"}
    assert made.capabilities == ["IPC_LOCK"]


@pytest.mark.parametrize("fabric", ["infiniband", "efa", "oci"])
def test_a_claim_takes_the_place_of_the_device(fabric: str) -> None:
    made = over("rdma", ranks=4, fabric=fabric, rdma={"resourceClaimTemplate": "nic"})
    assert made.resources == {}
    assert made.claims == {"rdma": "nic"}
    assert not made.holds_accelerators


def test_who_claims_virtual_functions_names_their_networks() -> None:
    assert over("rdma", fabric="oci", rdma={"resourceClaimTemplate": "nic"}).annotations == {}


def test_interfaces_are_as_many_as_virtual_functions() -> None:
    networks = rdma("oci", count=2).annotations["k8s.v1.cni.cncf.io/networks"]
    assert networks == "default/sriov-rdma-vf,default/sriov-rdma-vf"


# What the user says


def test_own_annotations_are_laid_over_the_preset_s() -> None:
    made = rdma("gke", annotations={"networking.gke.io/interfaces": "[]", "own": "1"})
    assert made.annotations == {
        "networking.gke.io/default-interface": "eth0",
        "networking.gke.io/interfaces": "[]",
        "own": "1",
    }


def test_own_environment_overrides_the_preset_s_by_name() -> None:
    own = [{"name": "UCX_IB_GID_INDEX", "value": "5"}, {"name": "UCX_TLS", "value": "ib,cuda"}]
    made = rdma("oci", env=own)
    assert env(made) == {"UCX_IB_GID_INDEX": "5", "UCX_TLS": "ib,cuda"}


def test_the_environment_of_the_engine_has_the_last_word() -> None:
    wanted = resource(
        kvTransfer={
            "transport": "rdma",
            "fabric": "oci",
            "rdma": {"env": [{"name": "UCX_IB_GID_INDEX", "value": "5"}]},
        },
        engine={"env": [{"name": "UCX_IB_GID_INDEX", "value": "7"}]},
    )
    variables = [v["value"] for v in container(wanted)["env"] if v["name"] == "UCX_IB_GID_INDEX"]
    assert variables == ["7"]


@pytest.mark.parametrize("own", [[], ["IPC_LOCK", "NET_RAW"]])
def test_own_capabilities_replace_the_preset_s(own: list[str]) -> None:
    assert rdma(capabilities=own).capabilities == own


@pytest.mark.parametrize(
    ("fabric", "allowed", "privileged"),
    [("efa", True, True), ("efa", False, False), ("infiniband", True, False)],
)
def test_a_pod_is_privileged_where_its_fabric_wants_it_and_the_user_allows_it(
    fabric: str, *, allowed: bool, privileged: bool
) -> None:
    transfer = {"transport": "rdma", "fabric": fabric, "rdma": {"allowPrivileged": allowed}}
    security = container(resource(kvTransfer=transfer))["securityContext"]
    assert (security == {"privileged": True}) is privileged


# Where pods may be

EFA: dict[str, Any] = {"kvTransfer": {"transport": "rdma", "fabric": "efa"}}


def rule(values: list[str], key: str) -> dict[str, Any]:
    return {
        "labelSelector": {
            "matchLabels": {"disagg.dev/name": "llama"},
            "matchExpressions": [{"key": "disagg.dev/role", "operator": "In", "values": values}],
        },
        "matchLabelKeys": ["disagg.dev/group"],
        "topologyKey": key,
    }


@pytest.mark.parametrize(("role", "other"), [("prefill", "decode"), ("decode", "prefill")])
def test_with_efa_the_roles_are_on_different_nodes_of_one_zone(role: str, other: str) -> None:
    assert template(resource(**EFA), role)["spec"]["affinity"] == {
        "podAffinity": {REQUIRED: [rule(["prefill", "decode"], "topology.kubernetes.io/zone")]},
        "podAntiAffinity": {REQUIRED: [rule([other], "kubernetes.io/hostname")]},
    }


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_pods_of_a_group_of_their_own_look_for_each_other(role: str) -> None:
    """The key must be a label of the pod: with one that it lacks the API server adds nothing, and groups meet."""
    labels = template(resource(**EFA), role)["metadata"]["labels"]
    assert labels.keys() >= {"disagg.dev/group", "disagg.dev/name", "disagg.dev/role"}


def test_a_router_goes_where_it_likes() -> None:
    assert "affinity" not in template(resource(**EFA), "router")["spec"]


@pytest.mark.parametrize("fabric", [fabric for fabric in Fabric if fabric is not Fabric.EFA])
def test_other_fabrics_do_not_say_where_pods_are(fabric: Fabric) -> None:
    transfer = {"transport": "rdma", "fabric": fabric, "rdma": {"resourceClaimTemplate": "nic"}}
    assert "affinity" not in template(resource(kvTransfer=transfer))["spec"]


@pytest.mark.parametrize("mode", PackMode)
def test_packed_pods_keep_the_rules_of_their_network(mode: PackMode) -> None:
    wanted = resource(**EFA, topologyConstraint={"packDomain": "rack", "mode": mode})
    free = pod_templates(wanted)
    placement = Placement(RACK, mode, Mechanism.POD_AFFINITY, RoleName.DECODE, "r1")
    packed = placed(wanted, free, {0: GroupDecision(placement)})
    for role in (RoleName.PREFILL, RoleName.DECODE):
        before = free[Workload(role)].body["spec"]["affinity"]
        after = packed[Workload(role)].body["spec"]["affinity"]
        assert after["podAntiAffinity"] == before["podAntiAffinity"]
        (zone,) = before["podAffinity"][REQUIRED]
        keys = [term["topologyKey"] for term in after["podAffinity"][REQUIRED]]
        assert after["podAffinity"][REQUIRED][0] == zone
        assert keys[1:] == ([RACK] if mode is PackMode.REQUIRED else [])


# Whatever the resource


def transports(variables: list[dict[str, Any]]) -> list[str]:
    return [
        name
        for variable in variables
        if variable["name"] == "UCX_TLS"
        for name in str(variable.get("value")).split(",")
    ]


def engine_pods(wanted: DisaggregatedInference) -> list[dict[str, Any]]:
    """Specs of the pods as they are without the user's overlay."""
    return [engine_template(wanted, role)["spec"] for role in ENGINE_ROLES]


@given(strategies.resources())
def test_no_pod_is_on_the_network_of_its_node(wanted: DisaggregatedInference) -> None:
    for pod in engine_pods(wanted):
        assert not pod.keys() & {"hostNetwork", "hostIPC", "hostPID"}


@given(strategies.resources())
def test_no_container_is_privileged_without_permission(wanted: DisaggregatedInference) -> None:
    transfer = wanted.spec.kv_transfer
    allowed = transfer is not None and transfer.rdma is not None and transfer.rdma.allow_privileged
    for pod in engine_pods(wanted):
        for part in [*pod["containers"], *pod.get("initContainers", [])]:
            assert allowed or "privileged" not in part.get("securityContext", {})


@given(strategies.resources())
def test_no_network_card_is_chosen_for_all_ranks(wanted: DisaggregatedInference) -> None:
    for pod in engine_pods(wanted):
        for part in pod["containers"]:
            names = {variable["name"] for variable in part.get("env", [])}
            assert not names & {"UCX_NET_DEVICES", "NCCL_IB_HCA"}


@given(strategies.resources())
def test_over_rdma_nothing_is_sent_over_tcp(wanted: DisaggregatedInference) -> None:
    transfer = wanted.spec.kv_transfer or KVTransfer(transport=Transport.TCP)
    if transfer.transport is Transport.TCP:
        return
    for pod in engine_pods(wanted):
        for part in pod["containers"]:
            variables = part.get("env", [])
            values = {variable["name"]: variable.get("value") for variable in variables}
            assert "tcp" not in transports(variables)
            if part["name"] == "engine" and transfer.connector is Connector.NIXL:
                backend = resolve(wanted.spec).backend
                assert backend is not Backend.UCX or transports(variables)
                assert backend is not Backend.LIBFABRIC or values["FI_PROVIDER"]
