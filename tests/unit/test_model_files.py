"""Where the files of a model come from, and where an engine finds them."""

from __future__ import annotations

from typing import Any

import pytest

from disagg.build.model_files import CACHE_PATH, MODEL_PATH, ModelFiles, model_files
from tests.unit.resources import resource


def files(**model: object) -> ModelFiles:
    return model_files(resource(model=model).spec.model)


def sources(found: ModelFiles) -> dict[str, dict[str, Any]]:
    return {volume.path: volume.source for volume in found.volumes}


@pytest.mark.parametrize(
    ("model", "argument", "local"),
    [
        ({"uri": "hf://org/llama"}, "org/llama", False),
        ({"uri": "/models/llama"}, "/models/llama", True),
        ({"uri": "pvc://models"}, MODEL_PATH, True),
        ({"uri": "pvc://models/"}, MODEL_PATH, True),
        ({"uri": "pvc://models/llama/8b"}, f"{MODEL_PATH}/llama/8b", True),
        ({"uri": "oci://example.com/llama:1"}, MODEL_PATH, True),
        ({"uri": "oci://example.com/llama:1", "path": "weights"}, f"{MODEL_PATH}/weights", True),
    ],
)
def test_an_engine_is_told_what_to_load(model: dict[str, Any], argument: str, local: bool) -> None:
    found = files(**model)
    assert (found.model, found.local) == (argument, local)


def test_a_claim_is_mounted_read_only() -> None:
    (volume,) = files(uri="pvc://models/llama").volumes
    assert volume.source == {"persistentVolumeClaim": {"claimName": "models"}}
    assert volume.mount() == {"name": "model", "mountPath": MODEL_PATH, "readOnly": True}


def test_an_image_is_mounted_as_a_volume() -> None:
    (volume,) = files(uri="oci://example.com/llama@sha256:12").volumes
    assert volume.source == {"image": {"reference": "example.com/llama@sha256:12"}}
    assert volume.read_only


def test_a_download_outlives_a_crash_of_the_container() -> None:
    found = files(uri="hf://org/llama")
    assert sources(found) == {CACHE_PATH: {"emptyDir": {}}}
    assert {"name": "HF_HOME", "value": CACHE_PATH} in found.env


def test_a_claim_keeps_downloads() -> None:
    found = files(uri="hf://org/llama", cache={"claim": "hub"})
    assert sources(found) == {CACHE_PATH: {"persistentVolumeClaim": {"claimName": "hub"}}}
    assert not found.volumes[0].read_only


@pytest.mark.parametrize("uri", ["/models/llama", "pvc://models", "oci://example.com/llama:1"])
def test_what_is_not_downloaded_needs_no_cache(uri: str) -> None:
    found = files(uri=uri)
    assert CACHE_PATH not in sources(found)
    assert found.env == []


def test_offline_nothing_is_looked_up() -> None:
    found = files(uri="pvc://models/llama", offline=True)
    assert found.env == [
        {"name": "HF_HUB_OFFLINE", "value": "1"},
        {"name": "TRANSFORMERS_OFFLINE", "value": "1"},
    ]


def test_the_token_comes_from_the_secret() -> None:
    found = files(tokenSecret={"name": "hf", "key": "k"})
    secret = {"secretKeyRef": {"name": "hf", "key": "k"}}
    assert {"name": "HF_TOKEN", "valueFrom": secret} in found.env


def test_without_a_secret_there_is_no_token() -> None:
    assert "HF_TOKEN" not in {variable["name"] for variable in files().env}


def test_adapters_are_found_by_name() -> None:
    adapters = [
        {"name": "hub", "uri": "hf://org/adapter"},
        {"name": "path", "uri": "/adapters/a"},
        {"name": "own", "uri": "pvc://adapters/sql"},
        {"name": "beside", "uri": "pvc://models/lora"},
    ]
    found = files(uri="pvc://models/llama", lora={"adapters": adapters})
    assert found.adapters == {
        "hub": "org/adapter",
        "path": "/adapters/a",
        "own": "/adapters/adapters/sql",
        "beside": f"{MODEL_PATH}/lora",
    }


def test_claims_of_adapters_are_mounted_once() -> None:
    adapters = [{"name": name, "uri": f"pvc://adapters/{name}"} for name in ("a", "b")]
    found = files(uri="/models/llama", lora={"adapters": adapters})
    assert sources(found) == {"/adapters/adapters": {"persistentVolumeClaim": {"claimName": "adapters"}}}


def test_an_adapter_of_the_hub_has_a_cache_beside_a_model_that_has_none() -> None:
    found = files(uri="/models/llama", lora={"adapters": [{"name": "a", "uri": "hf://org/a"}]})
    assert CACHE_PATH in sources(found)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("oci://example.com:5000/models/llama:1.0", "llama"),
        ("oci://example.com/llama@sha256:0123", "llama"),
        ("oci://example.com/llama", "llama"),
        ("pvc://models/llama", "llama"),
        ("pvc://models", "models"),
    ],
)
def test_the_served_name_is_the_last_part_of_the_uri_without_a_tag(uri: str, name: str) -> None:
    assert resource(model={"uri": uri}).spec.model.name == name
