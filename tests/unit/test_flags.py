from __future__ import annotations

import pytest

from disagg.build.engines.flags import flags


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (["--block-size=64"], "64"),
        (["--block-size", "64"], "64"),
        (["--block_size=64"], "64"),
        (["--block-size=16", "--block-size", "64"], "64"),
        (["org/model", "--other", "1", "--block-size=64", "--more"], "64"),
        (["--block-size=a=b"], "a=b"),
        (["--block-size="], ""),
        (["--block-size=-1"], "-1"),
        (["-bs", "64"], "64"),
        (["-bs=64"], "64"),
        (["--block-size=16", "--page_size=64"], "64"),
    ],
)
def test_the_last_value_counts_however_it_is_written(args: list[str], value: str) -> None:
    aliases = {"-bs": "--block-size", "--page-size": "--block-size"}
    assert flags(args, "--block-size", aliases=aliases) == {"--block-size": value}


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (["--hybrid"], "true"),
        (["--hybrid", "--other"], "true"),
        (["--no-hybrid"], "false"),
        (["--no_hybrid"], "false"),
        (["--no-hybrid", "--hybrid"], "true"),
        (["--hybrid", "--no-hybrid"], "false"),
    ],
)
def test_the_last_of_a_switch_and_its_negation_counts(args: list[str], value: str) -> None:
    assert flags(args, "--hybrid") == {"--hybrid": value}


@pytest.mark.parametrize(
    "args",
    [[], ["--block"], ["--block=64"], ["--block-size-per-rank=64"], ["--other=--block-size"], ["-b", "64"]],
)
def test_a_flag_that_is_not_there_has_no_value(args: list[str]) -> None:
    assert flags(args, "--block-size") == {}


def test_a_flag_is_named_as_it_was_asked_for() -> None:
    assert flags(["--tp-size=4"], "--tp_size", "--pp_size") == {"--tp_size": "4"}


def test_json_is_left_as_it_is() -> None:
    text = '{"kv_connector":"NixlConnector","a":[1, 2]}'
    assert flags(["--kv-transfer-config", text], "--kv-transfer-config") == {"--kv-transfer-config": text}


@pytest.mark.parametrize(
    "args", [["--block-size"], ["--no-block-size=3"], ["--", "--block-size=1"], ["-"], [""]]
)
def test_no_command_line_is_an_error(args: list[str]) -> None:
    assert flags(args, "--block-size").get("--block-size") in {"true", "false", None}
