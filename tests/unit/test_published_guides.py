"""What the projects' own guides to disaggregation set, the pods have, too.

Sources: llm-d/llm-d, guides/pd-disaggregation (2026-06), and its overlays for providers; ai-dynamo/dynamo, docs on
disaggregated communication.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from disagg.build.engines.flags import flags
from tests.unit import goldens
from tests.unit.resources import container, template


def pod(name: str, role: str) -> dict[str, Any]:
    return dict(template(goldens.EXAMPLES[name], role)["spec"])


def engine(name: str, role: str) -> dict[str, Any]:
    return container(goldens.EXAMPLES[name], role)


def env(name: str, role: str) -> dict[str, Any]:
    return {
        variable["name"]: variable.get("value", variable.get("valueFrom"))
        for variable in engine(name, role)["env"]
    }


ROLES = ("prefill", "decode")
RDMA = ("infiniband", "roce", "efa", "gke", "oci", "aks")
ENGINES = ("vllm", "sglang", "trtllm")


@pytest.mark.parametrize("role", ROLES)
def test_vllm_is_started_as_in_llm_d_s_guide(role: str) -> None:
    args = engine("vllm-infiniband", role)["args"]
    given = flags(
        args,
        "--block-size",
        "--tensor-parallel-size",
        "--kv-transfer-config",
    )
    assert given["--block-size"] == "128"
    assert given["--tensor-parallel-size"] == {"prefill": "1", "decode": "4"}[role]
    config = json.loads(given["--kv-transfer-config"])
    assert config["kv_connector"] == "NixlConnector"
    assert config["kv_role"] == {"prefill": "kv_producer", "decode": "kv_consumer"}[role]
    assert config["kv_connector_extra_config"]["backends"] == ["UCX"]
    assert config["kv_buffer_device"] == "cuda"


@pytest.mark.parametrize("role", ROLES)
def test_the_hybrid_kv_cache_manager_is_kept_where_vllm_would_turn_it_off(role: str) -> None:
    given = {
        name: flags(engine(name, role)["args"], "--disable-hybrid-kv-cache-manager")
        for name in ("vllm-0.18-infiniband", "vllm-infiniband")
    }
    assert given == {
        "vllm-0.18-infiniband": {"--disable-hybrid-kv-cache-manager": "false"},
        "vllm-infiniband": {},
    }


@pytest.mark.parametrize("role", ROLES)
def test_vllm_has_the_environment_of_llm_d_s_guide(role: str) -> None:
    found = env("vllm-infiniband", role)
    assert found["VLLM_NIXL_SIDE_CHANNEL_HOST"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert found["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] == "120"


@pytest.mark.parametrize("name", [f"{engine}-{fabric}" for engine in ENGINES for fabric in RDMA])
@pytest.mark.parametrize("role", ROLES)
def test_a_pod_on_rdma_may_lock_memory_and_has_shared_memory(name: str, role: str) -> None:
    found = engine(name, role)
    security = found["securityContext"]
    assert "IPC_LOCK" in security["capabilities"]["add"]
    assert "privileged" not in security
    assert "hostNetwork" not in pod(name, role)
    assert "/dev/shm" in {mount["mountPath"] for mount in found["volumeMounts"]}  # noqa: S108 - a mount


@pytest.mark.parametrize("name", [f"{engine}-infiniband" for engine in ENGINES])
@pytest.mark.parametrize("role", ROLES)
def test_a_model_has_an_hour_to_load(name: str, role: str) -> None:
    probe = engine(name, role)["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 3600


@pytest.mark.parametrize(
    ("fabric", "resource"),
    [
        ("infiniband", "rdma/ib"),
        ("efa", "vpc.amazonaws.com/efa"),
        ("oci", "nvidia.com/sriov-rdma-vf"),
        ("aks", "rdma/shared_ib"),
    ],
)
@pytest.mark.parametrize("role", ROLES)
def test_a_fabric_has_the_resource_of_its_guide(fabric: str, resource: str, role: str) -> None:
    assert resource in engine(f"vllm-{fabric}", role)["resources"]["limits"]


def test_efa_has_a_device_an_accelerator_which_every_instance_has() -> None:
    counts = {
        role: engine("vllm-efa", role)["resources"]["limits"]["vpc.amazonaws.com/efa"] for role in ROLES
    }
    assert counts == {"prefill": "1", "decode": "4"}


@pytest.mark.parametrize("role", ROLES)
def test_efa_is_libfabric_in_each_engine(role: str) -> None:
    config = json.loads(
        flags(engine("vllm-efa", role)["args"], "--kv-transfer-config")["--kv-transfer-config"]
    )
    assert config["kv_connector_extra_config"]["backends"] == ["LIBFABRIC"]
    assert env("sglang-efa", role)["SGLANG_DISAGGREGATION_NIXL_BACKEND"] == "LIBFABRIC"
    assert env("trtllm-efa", role)["TRTLLM_NIXL_KVCACHE_BACKEND"] == "LIBFABRIC"
    for name in ENGINES:
        assert env(f"{name}-efa", role)["FI_PROVIDER"] == "efa"


@pytest.mark.parametrize("role", ROLES)
def test_dranet_has_no_accelerators_besides_its_claims(role: str) -> None:
    found = engine("vllm-gke-dranet", role)["resources"]
    assert "nvidia.com/gpu" not in found.get("limits", {})
    assert found["claims"]


@pytest.mark.parametrize("role", ROLES)
def test_sglang_is_started_as_in_llm_d_s_guide(role: str) -> None:
    names = ("--disaggregation-mode", "--disaggregation-transfer-backend", "--host", "--enable-metrics")
    given = flags(engine("sglang-infiniband", role)["args"], *names)
    assert given == dict(zip(names, (role, "nixl", "0.0.0.0", "true"), strict=True))  # noqa: S104


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize("role", ROLES)
def test_rdma_never_carries_kv_cache_over_tcp_in_silence(engine_name: str, role: str) -> None:
    for fabric in RDMA:
        transports = env(f"{engine_name}-{fabric}", role).get("UCX_TLS", "")
        assert "tcp" not in str(transports).split(",")


@pytest.mark.parametrize("role", ROLES)
def test_tcp_is_said_to_be_tcp(role: str) -> None:
    assert "tcp" in env("vllm-tcp", role)["UCX_TLS"].split(",")
