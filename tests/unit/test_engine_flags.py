"""What the lists of engine releases say, and that what we render for a release is in its list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.engine_flags import flags, releases
from tests.unit.resources import container, resource

VLLM = releases("vllm")
SGLANG = releases("sglang")


def test_there_are_lists_of_old_and_new_releases() -> None:
    assert VLLM == ["0.11.0", "0.18.0", "0.33.0"]
    assert SGLANG == ["0.5.6", "0.5.23"]
    assert releases("trtllm") == ["1.2"]


@pytest.mark.parametrize(
    ("engine", "version"),
    [(engine, version) for engine in ("vllm", "sglang", "trtllm") for version in releases(engine)],
)
def test_no_engine_accepts_a_made_up_flag(engine: str, version: str) -> None:
    found = flags(engine, version)
    assert not found.accepts("--make-it-fast")
    assert not found.accepts("--make-it-fast=1")
    assert not found.reads("VLLM_MAKE_IT_FAST")
    assert found.accepts("--port=8000")
    assert found.source


def test_a_value_comes_behind_an_equals_sign_or_a_space() -> None:
    vllm = flags("vllm", "0.33.0")
    assert vllm.accepts("--port=8000")
    assert vllm.accepts("--port 8000")
    assert not vllm.accepts("--port")


def test_a_switch_takes_no_value_and_has_an_opposite() -> None:
    vllm = flags("vllm", "0.33.0")
    assert vllm.accepts("--enable-prefix-caching")
    assert vllm.accepts("--no-enable-prefix-caching")
    assert not vllm.accepts("--enable-prefix-caching=true")


def test_only_the_newest_vllm_pairs_enable_with_disable() -> None:
    accepting = [version for version in VLLM if flags("vllm", version).accepts("--disable-prefix-caching")]
    assert accepting == ["0.33.0"]


def test_a_value_that_the_parser_does_not_offer_is_refused() -> None:
    assert flags("vllm", "0.11.0").accepts("--kv-cache-dtype=fp8")
    assert not flags("vllm", "0.11.0").accepts("--kv-cache-dtype=nvfp4")
    assert not flags("sglang", "0.5.23").accepts("--kv-cache-dtype=fp8")
    assert flags("sglang", "0.5.23").accepts("--kv-cache-dtype=fp8_e4m3")


def test_vllm_takes_underscores_for_dashes_and_reaches_into_json() -> None:
    vllm = flags("vllm", "0.33.0")
    assert vllm.accepts("--tensor_parallel_size=2")
    assert vllm.accepts("--kv-transfer-config.kv_role=kv_both")
    assert not vllm.accepts("--port.number=8000")


def test_sglang_takes_dashes_and_tensorrt_llm_underscores_only() -> None:
    assert flags("sglang", "0.5.23").accepts("--page-size=64")
    assert not flags("sglang", "0.5.23").accepts("--page_size=64")
    assert flags("trtllm", "1.2").accepts("--tp_size=2")
    assert not flags("trtllm", "1.2").accepts("--tp-size=2")


def test_a_shortened_name_counts_as_unknown() -> None:
    assert not flags("sglang", "0.5.23").accepts("--tp=4")
    assert flags("sglang", "0.5.23").accepts("--tp-size=4")
    assert flags("vllm", "0.33.0").accepts("-tp=4")


def test_the_refused_arguments_of_a_command_line_are_told() -> None:
    vllm = flags("vllm", "0.33.0")
    assert vllm.refused(["org/model", "--port", "8000", "--served-model-name", "a", "b", "-tp", "2"]) == []
    assert vllm.refused(["--port", "--headless"]) == ["--port"]
    assert vllm.refused(["--headless", "8000", "--swap-space=4"]) == ["8000", "--swap-space=4"]


@pytest.mark.parametrize(
    ("argument", "accepting"),
    [
        ("--shutdown-timeout=60", ["0.18.0", "0.33.0"]),
        ("--attention-backend=FLASH_ATTN", ["0.18.0", "0.33.0"]),
        ("--disable-access-log-for-endpoints=/health", ["0.18.0", "0.33.0"]),
        ("--disable-uvicorn-access-log", ["0.11.0", "0.18.0", "0.33.0"]),
        ("--disable-log-requests", ["0.11.0", "0.33.0"]),
        ("--data-parallel-external-lb", ["0.18.0", "0.33.0"]),
        ("--kv-offloading-size=10", ["0.18.0", "0.33.0"]),
        ("--max-num-queued-reqs=8", ["0.33.0"]),
        ("--swap-space=4", ["0.11.0"]),
        ("--max-lora-rank=64", ["0.11.0", "0.18.0", "0.33.0"]),
        ("--lora-modules a=/a", ["0.11.0", "0.18.0", "0.33.0"]),
        ("--revision=main", ["0.11.0", "0.18.0", "0.33.0"]),
    ],
)
def test_vllm_accepts_an_argument_in_some_releases(argument: str, accepting: list[str]) -> None:
    assert [version for version in VLLM if flags("vllm", version).accepts(argument)] == accepting


@pytest.mark.parametrize(
    ("variable", "reading"),
    [
        ("VLLM_NIXL_SIDE_CHANNEL_HOST", ["0.11.0", "0.18.0", "0.33.0"]),
        ("VLLM_NIXL_ABORT_REQUEST_TIMEOUT", ["0.11.0", "0.18.0"]),
        ("VLLM_ATTENTION_BACKEND", ["0.11.0"]),
        ("VLLM_ENGINE_READY_TIMEOUT_S", ["0.18.0", "0.33.0"]),
        ("VLLM_USE_V1", ["0.11.0"]),
    ],
)
def test_vllm_reads_a_variable_in_some_releases(variable: str, reading: list[str]) -> None:
    assert [version for version in VLLM if flags("vllm", version).reads(variable)] == reading


@pytest.mark.parametrize(
    ("connector", "registered"),
    [
        ("NixlConnector", ["0.11.0", "0.18.0", "0.33.0"]),
        ("P2pNcclConnector", ["0.11.0", "0.18.0"]),
        ("SimpleCPUOffloadConnector", ["0.33.0"]),
        ("SharedStorageConnector", ["0.11.0"]),
    ],
)
def test_vllm_has_a_connector_in_some_releases(connector: str, registered: list[str]) -> None:
    having = [version for version in VLLM if connector in flags("vllm", version).extra["kv_connectors"]]
    assert having == registered


def test_the_keys_of_vllms_transfer_change_with_the_release() -> None:
    lists = {version: flags("vllm", version).extra for version in VLLM}
    having = {
        key: [version for version in VLLM if key in lists[version]["kv_transfer_config"]]
        for key in ("kv_load_failure_policy", "kv_rank")
    }
    assert having == {"kv_load_failure_policy": ["0.18.0", "0.33.0"], "kv_rank": ["0.11.0", "0.18.0"]}
    nixl = {version: set(lists[version]["kv_connector_extra_config"]["nixl"]) for version in VLLM}
    assert nixl["0.11.0"] == {"backends"}
    assert "kv_lease_duration" not in nixl["0.18.0"]
    assert {"backends", "kv_lease_duration", "num_threads"} <= nixl["0.33.0"]
    assert "enable_cross_layers_blocks" in nixl["0.18.0"] - nixl["0.33.0"]


def test_vllm_counts_host_memory_for_offloading_in_blocks_at_first_and_in_bytes_later() -> None:
    keys = {
        version: flags("vllm", version).extra["kv_connector_extra_config"]["offloading"] for version in VLLM
    }
    assert [version for version in VLLM if "num_cpu_blocks" in keys[version]] == ["0.11.0"]
    assert [version for version in VLLM if "cpu_bytes_to_use" in keys[version]] == ["0.18.0", "0.33.0"]
    assert [version for version in VLLM if "secondary_tiers" in keys[version]] == ["0.33.0"]


@pytest.mark.parametrize(
    ("argument", "accepting"),
    [
        ("--disaggregation-mode=prefill", ["0.5.6", "0.5.23"]),
        ("--disaggregation-transfer-backend=nixl", ["0.5.6", "0.5.23"]),
        ("--disaggregation-transfer-backend=mooncake_tcp", ["0.5.23"]),
        ("--disaggregation-decode-tp=4", ["0.5.6"]),
        ("--disaggregation-decode-enable-radix-cache", ["0.5.23"]),
        ("--enable-hierarchical-cache", ["0.5.6", "0.5.23"]),
        ("--hicache-size=64", ["0.5.6", "0.5.23"]),
        ("--enable-lora", ["0.5.6", "0.5.23"]),
        ("--lora-paths a=/a", ["0.5.6", "0.5.23"]),
        ("--uvicorn-access-log-exclude-prefixes /health", ["0.5.23"]),
    ],
)
def test_sglang_accepts_an_argument_in_some_releases(argument: str, accepting: list[str]) -> None:
    assert [version for version in SGLANG if flags("sglang", version).accepts(argument)] == accepting


@pytest.mark.parametrize(
    ("variable", "reading"),
    [
        ("SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT", ["0.5.6", "0.5.23"]),
        ("SGLANG_DISAGGREGATION_NIXL_BACKEND", ["0.5.23"]),
        ("SGLANG_DISAGG_STAGING_BUFFER", ["0.5.23"]),
    ],
)
def test_sglang_reads_a_variable_in_some_releases(variable: str, reading: list[str]) -> None:
    assert [version for version in SGLANG if flags("sglang", version).reads(variable)] == reading


def test_tensorrt_llm_stops_at_an_unknown_key_of_its_configuration_file() -> None:
    trtllm = flags("trtllm", "1.2")
    assert (
        trtllm.unknown_options(
            {
                "enable_attention_dp": True,
                "cache_transceiver_config": {"backend": "NIXL", "max_tokens_in_buffer": 8192},
                "kv_cache_config": {"dtype": "fp8", "tokens_per_block": 64, "host_cache_size": 1},
                "moe_config": {"whatever": "is not described"},
            }
        )
        == []
    )
    assert trtllm.unknown_options(
        {
            "kv_cache": {},
            "kv_cache_config": {"host_cache": 1},
            "cache_transceiver_config": {"backend": "nixl"},
        }
    ) == ["kv_cache", "kv_cache_config.host_cache", "cache_transceiver_config.backend: nixl"]


@pytest.mark.parametrize("version", VLLM)
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_what_we_render_for_a_release_of_vllm_is_what_it_accepts(role: str, version: str) -> None:
    engine = container(resource(engine={"image": f"vllm/vllm-openai:v{version}"}), role)
    release = flags("vllm", version)
    assert release.refused(engine["args"]) == []
    config = transfer_config(engine["args"])
    assert set(config) <= set(release.extra["kv_transfer_config"])
    assert config["kv_connector"] in release.extra["kv_connectors"]
    variables = {variable["name"] for variable in engine["env"]}
    assert [name for name in sorted(variables) if name.startswith("VLLM_") and not release.reads(name)] == []


def transfer_config(arguments: list[str]) -> dict[str, Any]:
    (option,) = [text for text in arguments if text.startswith("--kv-transfer-config=")]
    return dict(json.loads(option.partition("=")[2]))
