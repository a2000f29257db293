"""Flags of the simulation, beside those of the engine that it stands for."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from disagg.engine_sim.timing import PROFILES

_MAX_PORT = 65535


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
    parser = _parser()
    found, rest = parser.parse_known_args(list(arguments))
    if {"-h", "--help"} & set(rest):
        parser.print_help()
        sys.stdout.write("\n")
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


def described(texts: Mapping[str, str], name: str) -> str:
    """Help on an engine's flag; none, and no mention, for one that is known and has no effect.

    Args:
        texts: Help by flag.
        name: The flag.
    """
    return texts.get(name, argparse.SUPPRESS)


REST = "All other flags of this release are known, too, and change nothing."
"""What is said of flags without help."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "disagg engine-sim",
        usage="disagg engine-sim [--dialect DIALECT] [--sim-...] [flags of the engine]",
        description="An inference engine without a GPU: takes the engine's flags, speaks its protocols, refuses what it refuses.",
        add_help=False,
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    add = parser.add_argument_group("the simulation").add_argument
    add(
        "--dialect",
        default="vllm",
        choices=("vllm", "sglang", "trtllm"),
        help="whose engine it stands for (vllm)",
    )
    add(
        "--sim-profile",
        default="tiny",
        choices=sorted(PROFILES),
        metavar="PROFILE",
        help=f"model and GPU to pretend, which say how long things take (tiny): {', '.join(sorted(PROFILES))}",
    )
    add(
        "--sim-time-scale",
        "--time-scale",
        type=_positive,
        default=1.0,
        metavar="FACTOR",
        help="how much faster than the world the engine's time passes (1)",
    )
    add(
        "--sim-engine-version",
        default="",
        metavar="RELEASE",
        help="release to pretend, with its flags, defaults and errors (vllm 0.33.0, sglang 0.5.23, trtllm 1.2.0)",
    )
    add(
        "--sim-load-seconds",
        type=_not_negative,
        metavar="SECONDS",
        help="from start to ready (the profile's)",
    )
    add(
        "--sim-freeze-at-start",
        action="store_true",
        help="never become ready, as an engine that hangs while it loads",
    )
    add(
        "--sim-bandwidth",
        type=_positive,
        metavar="BYTES_PER_SECOND",
        help="between engines (the profile's)",
    )
    add("--sim-data-port", type=_port, default=0, metavar="PORT", help="where peers read KV blocks (any)")
    add(
        "--sim-mean-tokens",
        type=_natural,
        default=200,
        metavar="TOKENS",
        help="after which answers end by themselves, on average; 0 for never (200)",
    )
    add(
        "--sim-attention-backend",
        default="FLASH_ATTN",
        metavar="NAME",
        help="part of what two vLLM engines must have in common (FLASH_ATTN)",
    )
    add("--sim-seed", type=int, metavar="NUMBER", help="of answers: the same seed gives the same ones (0)")
    return parser


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=110)


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("a whole number of 0 or more is expected")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"a port is at most {_MAX_PORT}")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError("a number of 0 or more is expected")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("a number above 0 is expected")
    return value
