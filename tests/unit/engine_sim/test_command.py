from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from disagg.cli import app
from disagg.engine_sim.dialects import NAMES, StartError, dialect
from disagg.engine_sim.dialects.vllm.arguments import parse
from disagg.engine_sim.sim_flags import split


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["engine-sim", *arguments])
    return result.exit_code, result.output


def test_the_command_refuses_what_the_engine_does_not_know() -> None:
    status, said = run("model", "--no-such-flag", "--port=1")
    assert (status, "unrecognized arguments: --no-such-flag" in said) == (2, True)


def test_the_command_takes_flags_of_the_engine_and_of_the_simulation() -> None:
    status, said = run("--help")
    assert status == 0
    assert all(flag in said for flag in ("--kv-transfer-config", "--sim-profile", "--dialect"))


def test_the_command_line_of_the_operator_needs_nothing_of_it() -> None:
    code = "import sys, disagg.cli; print([each for each in ('zmq', 'msgspec') if each in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_flags_of_the_simulation_are_taken_out() -> None:
    flags, rest = split(
        ["serve", "m", "--sim-profile=llama-8b-h100", "--port", "1", "--sim-time-scale", "5", "--sim-seed=3"]
    )
    assert rest == ["serve", "m", "--port", "1", "--seed", "3"]
    assert (flags.profile, flags.time_scale, flags.dialect) == ("llama-8b-h100", 5.0, "vllm")


@pytest.mark.parametrize("wrong", ["--sim-profile=none", "--sim-time-scale=0", "--dialect=other"])
def test_the_simulation_refuses_what_it_does_not_know(wrong: str) -> None:
    with pytest.raises(SystemExit) as ending:
        split([wrong])
    assert ending.value.code == 2


def test_dialects_are_found_by_name() -> None:
    assert "vllm" in NAMES
    assert callable(dialect("vllm").build)
    with pytest.raises(StartError, match="unknown dialect 'none'"):
        dialect("none")


@pytest.mark.parametrize(
    ("version", "port", "lease_policy"),
    [("0.11.0", 5557, "recompute"), ("0.18.0", 5600, "fail"), ("0.33.0", 5600, "fail")],
)
def test_defaults_depend_on_the_release(version: str, port: int, lease_policy: str) -> None:
    found = parse(
        ["serve", "m", '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}'],
        {},
        version,
    )
    assert (found.side_host, found.side_port) == ("localhost", port)
    assert found.kv_transfer is not None
    assert found.kv_transfer.kv_load_failure_policy == lease_policy


@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [
        ([], (0,)),
        (["-dp", "4"], (0, 1, 2, 3)),
        (["-dp", "4", "--data-parallel-rank", "2"], (2,)),
        (["-dp", "4", "--data-parallel-size-local", "2", "--data-parallel-start-rank", "2"], (2, 3)),
    ],
)
def test_ranks_of_a_process(arguments: list[str], ranks: tuple[int, ...]) -> None:
    assert parse(["m", *arguments], {}).ranks == ranks


def test_underscores_are_dashes_in_names_of_flags() -> None:
    found = parse(
        ["m", "--max_model_len=32k", "--served_model_name", "a_b", "--no-enable_prefix_caching"], {}
    )
    assert (found.max_model_len, found.served_model_name, found.enable_prefix_caching) == (
        32_000,
        ("a_b",),
        False,
    )


@pytest.mark.parametrize(("variable", "value"), [("VLLM_PORT", "tcp://10.0.0.1:80"), ("VLLM_PORT", "x")])
def test_a_variable_that_is_no_port_breaks_the_start(variable: str, value: str) -> None:
    with pytest.raises(StartError, match="VLLM_PORT"):
        parse(["m"], {variable: value})
