"""Flags of the simulation, beside those of the engine that it stands for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from disagg.engine_sim.timing import PROFILES


@dataclass(frozen=True)
class SimFlags:
    """What the simulation was told.

    Attributes:
        dialect: Whose engine it is.
        profile: Model and GPU that it pretends to be.
        time_scale: How much faster than the world its time passes.
        engine_version: Release that it pretends to be; empty for the dialect's default.
        load_seconds: From start to ready, over the profile's.
        bandwidth: Bytes a second between engines, over the profile's.
        data_port: Where peers read blocks; 0 for any.
        mean_tokens: Tokens after which answers end by themselves, on average; 0 for never.
        attention_backend: Part of what must be equal between peers.
        frozen: Whether loading never ends.
        seed: Of answers, for engines whose command line has none.
    """

    dialect: str
    profile: str
    time_scale: float
    engine_version: str
    load_seconds: float | None
    bandwidth: float | None
    data_port: int
    mean_tokens: int
    attention_backend: str
    frozen: bool
    seed: int | None = None


def split(arguments: Sequence[str]) -> tuple[SimFlags, list[str]]:
    """The simulation's flags and the rest.

    Raises:
        SystemExit: With 2 if one has a value that it can't have.
    """
    parser = argparse.ArgumentParser("disagg engine-sim", add_help=False, allow_abbrev=False)
    parser.add_argument("--dialect", default="vllm", choices=("vllm", "sglang", "trtllm"))
    parser.add_argument("--sim-profile", default="tiny", choices=sorted(PROFILES))
    parser.add_argument("--sim-time-scale", "--time-scale", type=_positive, default=1.0)
    parser.add_argument("--sim-engine-version", default="")
    parser.add_argument("--sim-load-seconds", type=float)
    parser.add_argument("--sim-bandwidth", type=_positive, metavar="BYTES_PER_SECOND")
    parser.add_argument("--sim-data-port", type=int, default=0)
    parser.add_argument("--sim-mean-tokens", type=int, default=200)
    parser.add_argument("--sim-attention-backend", default="FLASH_ATTN")
    parser.add_argument("--sim-freeze-at-start", action="store_true")
    parser.add_argument("--sim-seed", type=int)
    found, rest = parser.parse_known_args(list(arguments))
    if {"-h", "--help"} & set(rest):
        parser.print_help()
    # TensorRT-LLM takes a seed in a request only.
    if found.sim_seed is not None and found.dialect != "trtllm":
        rest += ["--seed", str(found.sim_seed)]
    return (
        SimFlags(
            dialect=found.dialect,
            profile=found.sim_profile,
            time_scale=found.sim_time_scale,
            engine_version=found.sim_engine_version,
            load_seconds=found.sim_load_seconds,
            bandwidth=found.sim_bandwidth,
            data_port=found.sim_data_port,
            mean_tokens=found.sim_mean_tokens,
            attention_backend=found.sim_attention_backend,
            frozen=found.sim_freeze_at_start,
            seed=found.sim_seed,
        ),
        rest,
    )


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("a number above 0 is expected")
    return value
