"""A container on this machine is the one that the operator renders: nothing is added to what the engine sees, nothing is lost."""

import json
from pathlib import Path

import pytest

from disagg.api.names import RoleName
from disagg.commands.render import rendered
from e2e.real_vllm import Installation, containers, tiny_model
from e2e.real_vllm.container import environment
from e2e.real_vllm.root import Folders, steps
from tests.real_vllm.pair import CLAIM, resource

VLLM = Installation(Path("/vllm"), "0.32.0")


def test_command_and_arguments_are_those_of_the_manifest() -> None:
    engine = _rendered_engine("tiny-decode")
    assert containers(resource())[RoleName.DECODE].command == [*engine["command"], *engine["args"]]  # type: ignore[misc]


def test_the_environment_is_that_of_the_manifest_and_a_few_variables_of_any_image() -> None:
    of_manifest = {entry["name"] for entry in _rendered_engine("tiny-decode")["env"]}  # type: ignore[attr-defined]
    found = environment(containers(resource())[RoleName.DECODE], "192.0.2.7", "/vllm/bin")
    assert found.keys() - of_manifest == {"PATH", "HOME", "LANG", "HOSTNAME"}
    assert of_manifest <= found.keys()


def test_the_address_of_the_pod_is_where_the_manifest_asks_for_it() -> None:
    found = environment(containers(resource())[RoleName.PREFILL], "192.0.2.7", "/vllm/bin")
    assert found["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "192.0.2.7"


def test_a_variable_that_nothing_stands_for_is_refused() -> None:
    secret = {"secretKeyRef": {"name": "hub", "key": "token"}}
    container = containers(resource(engine={"env": [{"name": "HF_TOKEN", "valueFrom": secret}]}))
    with pytest.raises(ValueError, match="HF_TOKEN: there is nothing here for"):
        environment(container[RoleName.PREFILL], "192.0.2.7", "/vllm/bin")


def test_each_mount_of_the_manifest_is_one_at_the_same_path() -> None:
    container = containers(resource())[RoleName.PREFILL]
    made = steps(Folders(Path("/pod")), container, VLLM, {CLAIM: Path("/claim")})
    mounted = {step[-1].removeprefix("/pod/root") for step in made if step[0] == "mount"}
    assert {str(mount.path) for mount in container.mounts} <= mounted


def test_a_claim_that_nothing_stands_for_is_refused() -> None:
    container = containers(resource())[RoleName.PREFILL]
    with pytest.raises(ValueError, match="/model: there is nothing here for"):
        steps(Folders(Path("/pod")), container, VLLM, {})


def test_the_tiny_model_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        tiny_model.write(tmp_path / name)
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_the_tiny_model_has_the_kv_cache_that_it_says(tmp_path: Path) -> None:
    tiny_model.write(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["num_hidden_layers"] == tiny_model.LAYERS
    assert config["num_key_value_heads"] == tiny_model.KV_HEADS
    assert config["head_dim"] == tiny_model.HEAD_SIZE


def _rendered_engine(deployment: str) -> dict[str, object]:
    objects = rendered(resource())
    found = next(
        obj for obj in objects if obj["kind"] == "Deployment" and obj["metadata"]["name"] == deployment
    )
    return dict(found["spec"]["template"]["spec"]["containers"][0])
