"""What two vLLM pods must share, whoever has written it: the operator, or the user in arguments, environment or overlay."""

from __future__ import annotations

import json
from typing import Any

import pytest

from disagg.build.engines.vllm_compatibility import compatibility
from tests.unit.resources import resource, template

NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'


def items(*args: str, image: str = "vllm/vllm-openai:v0.33.0", **env: str) -> dict[str, str]:
    """Of a container with these arguments after the model."""
    return compatibility(
        pod_template(
            image=image,
            command=["vllm", "serve"],
            args=["org/llama", *args],
            env=[{"name": name, "value": value} for name, value in env.items()],
        )
    )


def at(release: str) -> str:
    return f"vllm/vllm-openai:v{release}.0"


def pod_template(**container: object) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "sidecar"}, {"name": "engine"} | container]}}


def nixl(**extra: object) -> str:
    config = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return f"--kv-transfer-config={json.dumps(config)}"


@pytest.mark.parametrize("release", ["0.11", "0.18", "0.22", "0.33"])
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"kvTransfer": {"connector": "mooncake", "transport": "tcp"}},
        {"kvTransfer": {"connector": "lmcache", "transport": "tcp"}, "router": {"kind": "none"}},
        {"kvTransfer": {"transport": "tcp", "offload": {"cpu": "1Gi"}}},
        {"engine": {"attentionBackend": "FLASH_ATTN", "kvCacheDtype": "fp8", "blockSize": 64}},
        {"decode": {"parallelism": {"tensor": 4}}},
    ],
    ids=["nixl", "mooncake", "lmcache", "offload", "engine", "tensor"],
)
def test_the_operator_renders_roles_that_agree(release: str, spec: dict[str, Any]) -> None:
    engine = {"image": at(release)} | spec.get("engine", {})
    wanted = resource(**spec | {"engine": engine})
    assert compatibility(template(wanted, "prefill")) == compatibility(template(wanted, "decode"))


@pytest.mark.parametrize(
    ("item", "args"),
    [
        ("model", ["--model=other"]),
        ("revision", ["--revision=v2"]),
        ("dtype", ["--dtype=float16"]),
        ("KV cache dtype", ["--kv-cache-dtype=fp8"]),
        ("KV cache dtype", ["--kv_cache_dtype", "fp8"]),
        ("attention backend", ["--attention-backend=FLASHINFER"]),
        ("attention backend", ["--attention-config.backend=FLASHINFER"]),
        ("attention backend", ["-ac.backend", "FLASHINFER"]),
        ("attention backend", ['-ac={"backend":"FLASHINFER"}']),
        ("connector", ['--kv-transfer-config={"kv_connector":"MooncakeConnector"}']),
        ("connector", ["--kv-transfer-config.kv_connector=MooncakeConnector"]),
        ("transport", [nixl(backends=["LIBFABRIC"])]),
        ("transfer mode", ['--kv-transfer-config={"kv_connector":"NixlPushConnector"}']),
        ("hybrid KV cache manager", ["--disable-hybrid-kv-cache-manager"]),
        ("speculative decoding", ['--speculative-config={"method":"eagle3","model":"draft"}']),
        ("speculative decoding", ["-sc.method=mtp"]),
        ("speculative decoding", ["--spec-method=eagle", "--spec-model=draft"]),
    ],
)
def test_an_argument_of_one_role_is_seen(item: str, args: list[str]) -> None:
    start = ["serve", f"--kv-transfer-config={NIXL}"]
    plain = compatibility(pod_template(image=at("0.33"), args=start))
    changed = compatibility(pod_template(image=at("0.33"), args=[*start, *args]))
    assert item in {key for key in plain if plain[key] != changed[key]}


@pytest.mark.parametrize(
    "args",
    [
        ["--dtype=auto"],
        ["--kv-cache-dtype", "auto"],
        ["--revision=main"],
        ["--no-disable-hybrid-kv-cache-manager"],
        ["--enable-hybrid-kv-cache-manager"],
        ["--kv-cache-dtype=fp8", "--kv-cache-dtype=auto"],
        [nixl(backends=["UCX"])],
        [nixl(kv_lease_duration=300)],
        ["--tensor-parallel-size=8"],
        ["--block-size=64"],
        ["--max-model-len=4096"],
        ['--speculative-config={"method":"ngram","num_speculative_tokens":4}'],
    ],
    ids=" ".join,
)
def test_what_comes_to_the_same_is_no_difference(args: list[str]) -> None:
    assert items(nixl(), *args) == items(nixl())


def test_how_many_tokens_are_drafted_is_no_difference() -> None:
    one, two = (
        items(f'-sc={{"method":"qwen3_next_mtp","num_speculative_tokens":{count}}}') for count in (1, 2)
    )
    assert one == two


def test_the_connector_that_moves_kv_cache_counts_and_not_those_beside_it() -> None:
    config = {
        "kv_connector": "MultiConnector",
        "kv_connector_extra_config": {
            "connectors": [{"kv_connector": "OffloadingConnector"}, {"kv_connector": "NixlConnector"}]
        },
    }
    assert items(f"--kv-transfer-config={json.dumps(config)}") == items(nixl())


def test_a_connector_without_hybrid_manager_turns_it_off() -> None:
    found = items('--kv-transfer-config={"kv_connector":"FlexKVConnectorV1"}')
    assert found["hybrid KV cache manager"] == "off"


@pytest.mark.parametrize(
    ("item", "first", "last"),
    [
        ("block size", "0.11", "0.27"),
        ("cross-layer blocks", "0.16", "0.28"),
        ("hybrid KV cache manager", "0.18", "0.33"),
        ("speculative decoding", "0.28", "0.33"),
        ("transfer mode", "0.28", "0.33"),
    ],
)
def test_only_what_the_release_compares_counts(item: str, first: str, last: str) -> None:
    found = [minor for minor in range(11, 34) if item in items(nixl(), image=at(f"0.{minor}"))]
    assert found == list(range(int(first[2:]), int(last[2:]) + 1))


@pytest.mark.parametrize("release", ["0.13", "0.14"])
def test_the_attention_backend_may_come_from_a_variable(release: str) -> None:
    by_flag = items("--attention-backend=FLASHINFER", image=at(release))
    assert items(image=at(release), VLLM_ATTENTION_BACKEND="FLASHINFER") == by_flag


def test_a_variable_that_the_release_does_not_read_is_no_difference() -> None:
    assert items(VLLM_ATTENTION_BACKEND="FLASHINFER") == items()


@pytest.mark.parametrize(
    ("release", "default"), [("0.18", "off"), ("0.21", "off"), ("0.22", "on"), ("0.33", "on")]
)
def test_the_hybrid_manager_is_on_as_the_release_has_it(release: str, default: str) -> None:
    assert items(nixl(), image=at(release))["hybrid KV cache manager"] == default


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("vllm/vllm-openai:v0.33.0", "vllm/vllm-openai-rocm:v0.33.0", True),
        ("vllm/vllm-openai:v0.33.0", "mirror.example/vllm:0.33.0-cu129", True),
        ("vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:v0.33.0@sha256:abc", True),
        ("vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:v0.33.1", False),
        ("vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:v0.33.0rc1", False),
        ("vllm/vllm-openai:nightly", "vllm/vllm-openai:v0.33.0", False),
        ("vllm@sha256:abc", "vllm@sha256:def", False),
    ],
)
def test_images_must_hold_the_same_release(one: str, other: str, same: bool) -> None:
    assert (items(image=one)["vLLM"] == items(image=other)["vLLM"]) == same


def test_offline_the_model_is_known_by_its_folder() -> None:
    online, offline = items(HF_HOME="/a"), items(HF_HOME="/a", HF_HUB_OFFLINE="1")
    assert online["model"] != offline["model"]
    assert offline["model"] != items(HF_HOME="/b", HF_HUB_OFFLINE="1")["model"]
    assert online["model"] == items(HF_HOME="/b")["model"]


def test_blocks_must_be_of_one_size_if_they_go_through_the_memory_of_the_host() -> None:
    config = '--kv-transfer-config={"kv_connector":"NixlConnector","kv_buffer_device":"cpu"}'
    assert items(config, "--block-size=64")["block size"] == "64"


def test_lmcache_finds_chunks_by_hashes_that_python_seeds() -> None:
    lmcache = '--kv-transfer-config={"kv_connector":"LMCacheConnectorV1"}'
    assert items(lmcache) != items(lmcache, PYTHONHASHSEED="0")


@pytest.mark.parametrize(
    "args", [["--kv-transfer-config={"], ["--kv-transfer-config=[]"], ["--kv-transfer-config"], ["-ac."]]
)
def test_arguments_that_vllm_would_refuse_are_no_error(args: list[str]) -> None:
    assert items(*args)["connector"] == "none"


def test_a_pod_without_the_engine_has_nothing_to_compare() -> None:
    assert compatibility({"spec": {"containers": [{"name": "other"}]}}) == {}
