from __future__ import annotations

from typing import Any

import pytest

from tests.unit.resources import SMG, container, resource, template

ENGINE_ROLES = ("prefill", "decode")


def environment(role: str = "prefill", **spec: object) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in container(resource(**spec), role)["env"]}


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
    wanted = resource(
        model={"uri": "/models/llama"},
        engine={"kind": "custom", "args": ["serve"]},
        **{role: {"args": ["--mine"]}},
    )
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
