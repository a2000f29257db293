from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.resources import SMG, container, resource, template

ENGINE_ROLES = ("prefill", "decode")


def environment(role: str = "prefill", **spec: object) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in container(resource(**spec), role)["env"]}


def kv_config(args: list[str]) -> dict[str, Any]:
    (option,) = [arg for arg in args if arg.startswith("--kv-transfer-config=")]
    return dict(json.loads(option.partition("=")[2]))


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_vllm_serves_the_model(role: str) -> None:
    wanted = resource(
        model={"servedName": "mine"},
        prefill={"parallelism": {"tensor": 2}},
        decode={"parallelism": {"tensor": 4}},
    )
    engine = container(wanted, role)
    tensor = {"prefill": 2, "decode": 4}[role]
    assert engine["command"] == ["vllm", "serve"]
    assert engine["args"][:4] == [
        "org/llama",
        "--served-model-name=mine",
        "--port=8000",
        f"--tensor-parallel-size={tensor}",
    ]


def test_vllm_serves_a_model_of_the_image_by_its_path() -> None:
    assert container(resource(model={"uri": "/models/llama"}))["args"][0] == "/models/llama"


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_vllm_transfers_with_nixl(role: str) -> None:
    config = kv_config(container(resource(), role)["args"])
    assert config["kv_connector"] == "NixlConnector"


def test_prefill_keeps_blocks_for_two_minutes() -> None:
    configs = {role: kv_config(container(resource(), role)["args"]) for role in ENGINE_ROLES}
    assert configs["prefill"]["kv_connector_extra_config"] == {"kv_lease_duration": 120}
    assert "kv_connector_extra_config" not in configs["decode"]


def test_the_version_is_that_of_the_image_that_the_role_runs() -> None:
    wanted = resource(prefill={"image": "vllm/vllm-openai:v0.10.0"})
    assert kv_config(container(wanted, "prefill")["args"])["kv_role"] == "kv_both"
    assert kv_config(container(wanted, "decode")["args"])["kv_role"] == "kv_consumer"


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_vllm_listens_for_nixl_on_the_address_of_the_pod(role: str) -> None:
    env = environment(role)
    ports = {port["name"]: port["containerPort"] for port in container(resource(), role)["ports"]}
    assert env["VLLM_NIXL_SIDE_CHANNEL_HOST"] == {
        "name": "VLLM_NIXL_SIDE_CHANNEL_HOST",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    }
    assert env["VLLM_NIXL_SIDE_CHANNEL_PORT"]["value"] == "5600"
    assert ports == {"http": 8000, "nixl": 5600}


def test_prefix_hashes_agree_between_pods() -> None:
    assert environment("prefill")["PYTHONHASHSEED"] == environment("decode")["PYTHONHASHSEED"]


@pytest.mark.parametrize("kind", ["vllm", "custom"])
@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_the_token_comes_from_the_secret(role: str, kind: str) -> None:
    env = environment(role, engine={"kind": kind}, model={"tokenSecret": {"name": "hf", "key": "k"}})
    assert env["HF_TOKEN"] == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hf", "key": "k"}},
    }


def test_without_a_secret_there_is_no_token() -> None:
    assert "HF_TOKEN" not in environment()


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_a_custom_engine_gets_the_arguments_of_the_user_only(role: str) -> None:
    wanted = resource(engine={"kind": "custom", "args": ["serve"]}, **{role: {"args": ["--mine"]}})
    engine = container(wanted, role)
    assert engine["args"] == ["serve", "--mine"]
    assert "command" not in engine
    assert engine["env"] == []
    assert [port["containerPort"] for port in engine["ports"]] == [8000]


def test_arguments_are_those_of_operator_then_engine_then_role() -> None:
    plain = container(resource())["args"]
    wanted = resource(engine={"args": ["--engine"]}, prefill={"args": ["--role"]})
    assert container(wanted, "prefill")["args"] == [*plain, "--engine", "--role"]
    assert container(wanted, "decode")["args"][-1] == "--engine"


def test_environment_is_overridden_by_name() -> None:
    env = environment(
        engine={"env": [{"name": "PYTHONHASHSEED", "value": "1"}, {"name": "A", "value": "engine"}]},
        prefill={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]},
    )
    assert env["PYTHONHASHSEED"]["value"] == "1"
    assert env["A"] == {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}


def test_environment_has_each_name_once() -> None:
    variables = [{"name": "PYTHONHASHSEED", "value": "1"}]
    engine = container(resource(engine={"env": variables}, prefill={"env": variables}))
    names = [variable["name"] for variable in engine["env"]]
    assert len(names) == len(set(names))


def test_an_empty_value_is_a_value() -> None:
    assert environment(prefill={"env": [{"name": "A", "value": ""}]})["A"] == {"name": "A", "value": ""}


def test_with_smg_prefill_says_where_sglang_meets() -> None:
    wanted = resource(**SMG)
    assert template(wanted, "prefill")["metadata"]["annotations"] == {"sglang.ai/bootstrap-port": "8998"}
    assert "annotations" not in template(wanted, "decode")["metadata"]


def test_without_smg_pods_have_no_annotations() -> None:
    assert "annotations" not in template(resource(engine={"kind": "custom"}))["metadata"]
