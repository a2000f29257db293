"""What `disagg engine-sim --help` tells."""

from __future__ import annotations

import re

import pytest

from disagg.engine_sim.dialects.sglang import arguments as sglang
from disagg.engine_sim.dialects.sglang.help import HELP as SGLANG
from disagg.engine_sim.dialects.trtllm import arguments as trtllm
from disagg.engine_sim.dialects.trtllm.help import HELP as TRTLLM
from disagg.engine_sim.dialects.vllm import arguments as vllm
from disagg.engine_sim.dialects.vllm.help import HELP as VLLM
from disagg.engine_sim.sim_flags import split


def test_each_flag_of_the_simulation_is_told_with_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    split(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    for flag in ("dialect", "sim-profile", "sim-time-scale", "sim-load-seconds", "sim-bandwidth", "sim-seed"):
        assert re.search(rf"--{flag} [^-]", told), flag
    assert "llama-70b-8xh100" in told


@pytest.mark.parametrize(
    ("told", "texts"),
    [
        (vllm.parser((0, 33)).format_help(), VLLM),
        (sglang.parser().format_help(), SGLANG),
        (trtllm.parser((1, 3)).format_help(), TRTLLM),
    ],
    ids=["vllm", "sglang", "trtllm"],
)
def test_flags_of_an_engine_that_do_something_are_told_and_no_others(
    told: str, texts: dict[str, str]
) -> None:
    flat = " ".join(told.split())
    for flag, text in texts.items():
        assert f"--{flag}" in flat
        assert text in flat, flag
    assert set(re.findall(r"^  (?:-\w+, )?--([\w-]+)", told, re.MULTILINE)) <= {*texts, "help"}
    assert "change nothing" in flat


@pytest.mark.parametrize(
    "flag", ["--sim-time-scale=0", "--sim-time-scale=inf", "--sim-load-seconds=-1", "--sim-mean-tokens=-1",
             "--sim-data-port=70000", "--sim-profile=none", "--dialect=none"]
)  # fmt: skip
def test_a_value_that_the_simulation_can_not_have(flag: str) -> None:
    with pytest.raises(SystemExit):
        split([flag])
