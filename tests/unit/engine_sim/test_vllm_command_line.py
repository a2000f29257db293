"""Command lines of `vllm serve` that the stand-in's parser takes and refuses: each was given to vLLM 0.32's own parser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from disagg.engine_sim.dialects import StartError
from disagg.engine_sim.dialects.vllm.arguments import Arguments, parse

NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


def read(*words: str) -> Arguments:
    return parse(["serve", "m", *words], {})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-num-batched-tokens", "x"), "argument --max-num-batched-tokens: invalid human_readable_int value: 'x'"),
        (("--max-model-len", "25.6K"), "Decimals are not allowed with binary suffixes like K."),
        (("--max-cpu-loras", "x"), "argument --max-cpu-loras: invalid int value: 'x'"),
        (("--max-lora-rank", "7"), "argument --max-lora-rank: invalid choice: 7"),
        (("--gpu-memory-utilization", "x"), "argument --gpu-memory-utilization: invalid float value: 'x'"),
        (("--uvicorn-log-level", "x"), "argument --uvicorn-log-level: invalid choice: 'x'"),
        (("--speculative-config", "x"), "Value x cannot be converted"),
        (("--allowed-origins", "x"), "argument --allowed-origins: "),
        (("--lora-modules", "a"), "Invalid JSON format for --lora-modules: a"),
        (("--lora-modules", '{"name":"a"}'), 'Invalid fields for --lora-modules: {"name":"a"}'),
        (("--kv-transfer-config", "null"), "argument --kv-transfer-config"),
        (("--kv-transfer-config.kv_role", "nobody"), "Unsupported kv_role: nobody"),
        (("--kv-events-config", '{"buffer_steps":"x"}'), "buffer_steps"),
        (("--kv-events-config", '{"enable_kv_cache_events":"x"}'), "enable_kv_cache_events"),
        (("--no-max-loras",), "unrecognized arguments: --no-max-loras"),
        (("--enable-prefix-caching=true",), "ignored explicit argument 'true'"),
    ],
)  # fmt: skip
def test_a_command_line_that_can_not_be_parsed(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        read(*words)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kv_connector", 5),
        ("engine_id", 5),
        ("kv_port", "x"),
        ("kv_port", 1.5),
        ("kv_buffer_device", 5),
        ("kv_connector_extra_config", None),
        ("kv_connector_module_path", 5),
        ("enable_permute_local_kv", "x"),
        ("kv_load_failure_policy", None),
    ],
)
def test_a_transfer_config_with_a_value_of_another_type(
    key: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read("--kv-transfer-config", json.dumps({**NIXL, key: value}))
    assert key in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "longest"),
    [(("--max-model-len", "32k"), 32_000), (("--max-model-len=32K",), 32_768), (("--max-model-len", "1.5k"), 1500),
     (("--max-model-len", "auto"), None), (("--max-model-len=-1",), None)],
)  # fmt: skip
def test_a_length_may_have_a_unit(words: tuple[str, ...], longest: int | None) -> None:
    assert read(*words).max_model_len == longest


def test_a_flag_may_be_shortened() -> None:
    assert read("--por", "8001").port == 8001


def test_keys_of_a_config_may_be_flags_by_themselves() -> None:
    found = read("--kv-transfer-config.kv_connector=NixlConnector", "--kv_transfer_config.kv_role", "kv_both")
    assert found.kv_transfer is not None
    assert (found.kv_transfer.kv_connector, found.kv_transfer.kv_role) == ("NixlConnector", "kv_both")


def test_a_file_holds_flags_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("port: 8001\nmax-num-seqs: 7\nenforce-eager: true\nserved-model-name: [a, b]\n")
    found = read("--config", str(file), "--port", "8002")
    assert (found.model, found.port, found.max_num_seqs) == ("m", 8002, 7)
    assert found.served_model_name == ("a", "b")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--config", "/nothing.yaml"), "No such file"),
        (("--config", "/nothing"), "must be of a yaml/yml type"),
        (("--chat-template", "/nothing"), "appears path-like, but doesn't exist"),
    ],
)
def test_a_file_that_is_not_there(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(StartError, match=message):
        read(*words)
