"""What a user changes that an engine needs is applied, and told with its field and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from disagg.api.names import RoleName, Workload
from disagg.build.contract import breaches
from disagg.build.pod_template import pod_templates
from tests.unit.resources import resource

HOST = "VLLM_NIXL_SIDE_CHANNEL_HOST"
OTHER_HOST = {"name": HOST, "value": "localhost"}


def overlay(**engine: object) -> dict[str, Any]:
    return {"podTemplate": {"spec": {"containers": [{"name": "engine"} | engine]}}}


def found(role: str = "prefill", **spec: object) -> list[str]:
    wanted = resource(**spec)
    return breaches(wanted, RoleName(role), pod_templates(wanted)[Workload(RoleName(role))].body)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_what_the_operator_renders_breaks_nothing(role: str) -> None:
    assert found(role) == []


@pytest.mark.parametrize(
    "overlaid",
    [
        {"metadata": {"labels": {"team": "ml"}}},
        {"spec": {"nodeSelector": {"pool": "gpu"}}},
        {"spec": {"containers": [{"name": "sidecar", "image": "sidecar:1"}]}},
        {"spec": {"containers": [{"name": "engine", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}]}},
        {"spec": {"containers": [{"name": "engine", "ports": [{"containerPort": 9, "name": "debug"}]}]}},
    ],
)
def test_an_overlay_that_adds_breaks_nothing(overlaid: dict[str, Any]) -> None:
    assert found(prefill={"podTemplate": overlaid}) == []


def test_arguments_that_add_break_nothing() -> None:
    assert found(engine={"args": ["--max-model-len=32768"]}, prefill={"args": ["--port=8000"]}) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"prefill": overlay(env=[{"name": HOST, "$patch": "delete"}])},
            f"prefill.podTemplate.spec.containers[engine].env removes {HOST}: ",
            id="an overlay removes a variable",
        ),
        pytest.param(
            {"prefill": overlay(env=[OTHER_HOST | {"valueFrom": None}])},
            f"prefill.podTemplate.spec.containers[engine].env changes {HOST}: ",
            id="an overlay changes a variable",
        ),
        pytest.param(
            {"prefill": {"env": [OTHER_HOST]}}, f"prefill.env changes {HOST}: ", id="the role's env"
        ),
        pytest.param(
            {"engine": {"env": [OTHER_HOST]}}, f"engine.env changes {HOST}: ", id="the engine's env"
        ),
        pytest.param(
            {"engine": {"args": ["--port", "9000"]}},
            "engine.args sets --port to 9000: ",
            id="the engine's arguments",
        ),
        pytest.param(
            {"prefill": {"args": ["--port=9000"]}},
            "prefill.args sets --port to 9000: ",
            id="the role's arguments",
        ),
        pytest.param(
            {"prefill": overlay(args=["org/llama"])},
            "prefill.podTemplate.spec.containers[engine].args leaves --kv-transfer-config out: ",
            id="an overlay replaces the arguments",
        ),
        pytest.param(
            {"prefill": overlay(command=["bash", "-c", "vllm serve"])},
            "prefill.podTemplate.spec.containers[engine].command replaces vllm serve: ",
            id="an overlay replaces the command",
        ),
        pytest.param(
            {"prefill": overlay(ports=[{"containerPort": 8000, "$patch": "delete"}])},
            "prefill.podTemplate.spec.containers[engine].ports: port 8000 (http) is not there",
            id="an overlay removes the port",
        ),
        pytest.param(
            {"prefill": overlay(ports=[{"containerPort": 8000, "name": "openai"}])},
            "port 8000 (http) is not there",
            id="an overlay renames the port",
        ),
        pytest.param(
            {"prefill": {"podTemplate": {"spec": {"containers": [{"name": "engine", "$patch": "delete"}]}}}},
            "prefill.podTemplate removes the container engine",
            id="an overlay removes the engine",
        ),
    ],
)
def test_what_breaks_the_contract_is_told_with_its_field(spec: dict[str, Any], expected: str) -> None:
    assert any(expected in text for text in found(**spec)), found(**spec)


def test_each_breach_says_what_comes_of_it() -> None:
    broken = found(prefill=overlay(args=["org/llama"], env=[{"name": HOST, "$patch": "delete"}]))
    assert len(broken) > 1
    assert all(text.partition(": ")[2] for text in broken)


def test_a_breach_of_one_role_is_none_of_the_other() -> None:
    assert found("decode", prefill={"args": ["--port=9000"]}) == []


@pytest.mark.parametrize("transports", ["rc,cuda_copy,tcp", "all"])
def test_tcp_beside_rdma_is_told(transports: str) -> None:
    rdma = {"transport": "rdma", "fabric": "infiniband"}
    variable = {"name": "UCX_TLS", "value": transports}
    (text,) = found(kvTransfer=rdma, prefill={"env": [variable]})
    assert text.startswith("prefill: UCX_TLS allows tcp: ")
    assert found(prefill={"env": [variable]}) == []


def test_of_a_custom_engine_only_the_port_is_expected() -> None:
    custom = {"kind": "custom"}
    assert found(engine=custom | {"args": ["anything"]}) == []
    assert found(engine=custom, prefill=overlay(ports=[{"containerPort": 8000, "$patch": "delete"}]))
