"""The command line and the environment of `trtllm-serve`, and the file that it names; what the file says wins."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from disagg.engine_sim.dialects import StartError
from disagg.engine_sim.dialects.trtllm import flags
from disagg.engine_sim.dialects.trtllm.config import Release, check, load_yaml
from disagg.engine_sim.dialects.trtllm.help import HELP
from disagg.engine_sim.sim_flags import REST, described

DEFAULT_VERSION = "1.2.0"
_MAX_PORT = 65535
_DTYPES = ("auto", "fp8", "nvfp4")
_NIXL_BACKENDS = (1, 2)
"""The first release that lets NIXL use something else than UCX."""
_BY_VARIABLE = {
    "TRTLLM_USE_NIXL_KVCACHE": "NIXL",
    "TRTLLM_USE_UCX_KVCACHE": "UCX",
    "TRTLLM_USE_MOONCAKE_KVCACHE": "MOONCAKE",
    "TRTLLM_USE_MPI_KVCACHE": "MPI",
}


@dataclass(frozen=True)
class Arguments:
    """What `trtllm-serve` was told. Attributes are named as its options, if there are such.

    Attributes:
        version: Release that is pretended.
        name: Of the model in answers.
        transfer: What moves KV; None if nothing does.
        nixl_backend: What NIXL uses.
        transfer_timeout: Seconds that KV waits for the other side; None for ever.
        tokens: Room for KV, over that of the memory; None for that.
        guided: Whether answers can be held to a form.
        stats: Iterations that /metrics keeps; 0 for none.
        events: Events of the prefix cache that are kept; 0 for none.
    """

    version: str
    model: str
    name: str
    host: str
    port: int
    tensor_parallel_size: int
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int | None
    max_beam_width: int
    enable_chunked_prefill: bool
    disable_overlap_scheduler: bool
    enable_attention_dp: bool
    free_gpu_memory_fraction: float
    transfer: str | None
    nixl_backend: str
    transfer_timeout: float | None
    tokens: int | None
    tokens_per_block: int
    dtype: str
    enable_block_reuse: bool
    return_perf_metrics: bool
    perf_metrics_max_requests: int
    guided: bool
    stats: int
    events: int

    @property
    def release(self) -> Release:
        """The release as numbers."""
        return release_of(self.version)


class ClickParser(argparse.ArgumentParser):
    """Complains as click does."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with status 2."""
        self.print_usage(sys.stderr)
        message = message.replace("unrecognized arguments", "No such option")
        self.exit(2, f"Try '{self.prog} --help' for help.\n\nError: {message}\n")


def release_of(version: str) -> Release:
    """The numbers of a release.

    Raises:
        StartError: It has none.
    """
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match is None:
        raise StartError(f"{version!r} is not a release")
    return int(match[1]), int(match[2])


def parser(release: Release) -> ClickParser:
    """A parser that knows the options of a release."""
    found = ClickParser(
        "trtllm-serve serve", usage="trtllm-serve serve [OPTIONS] MODEL", epilog=REST, allow_abbrev=False
    )
    found.add_argument("model", help="model, such as org/model; any name does")
    for name in flags.SWITCHES:
        found.add_argument(f"--{name}", action="store_true", default=None, help=described(HELP, name))
    for name, others in flags.VALUES.items():
        if release < flags.SINCE.get(name, release):
            continue
        names = [name, *others] if name != "config" or release >= flags.CONFIG_SINCE else list(others)
        how: dict[str, Any] = {"dest": name, "help": described(HELP, name)}
        if name in flags.CHOICES:
            how["choices"] = flags.CHOICES[name]
        elif name in flags.INTEGERS:
            how["type"] = int
        elif name == "free_gpu_memory_fraction":
            how["type"] = float
        found.add_argument(*(f"--{each}" for each in names), **how)
    return found


def parse(arguments: Sequence[str], environment: Mapping[str, str], version: str = "") -> Arguments:
    """Read command line, file and environment.

    Args:
        arguments: With or without `serve` before them.
        environment: Variables.
        version: Release that is pretended; empty for the default.

    Raises:
        SystemExit: With 2, and a message, if the command line can't be parsed.
        StartError: If it can, and the engine would refuse it.
    """
    version = version or DEFAULT_VERSION
    release = release_of(version)
    given = list(arguments[1:] if arguments[:1] == ["serve"] else arguments)
    told = {
        name: value for name, value in vars(parser(release).parse_args(given)).items() if value is not None
    }
    values = load_yaml(told["config"]) if "config" in told else {}
    check(values, release)
    both = told | {name: value for name, value in values.items() if value is not None}
    cache, transceiver = _section(values, "kv_cache_config"), _section(values, "cache_transceiver_config")
    fraction = cache.get("free_gpu_memory_fraction", told.get("free_gpu_memory_fraction", 0.9))
    dtype = str(cache.get("dtype", told.get("kv_cache_dtype", "auto")))
    _check(both, fraction, dtype)
    timeout = transceiver.get("kv_transfer_timeout_ms")
    model = str(told["model"])
    stats = int(both.get("iter_stats_max_iterations", 1000))
    return Arguments(
        version=version,
        model=model,
        name=str(told.get("served_model_name", _shown(model))),
        host=str(told.get("host", "localhost")),
        port=int(told.get("port", 8000)),
        tensor_parallel_size=int(both.get("tensor_parallel_size", 1)),
        max_batch_size=int(both.get("max_batch_size", 2048)),
        max_num_tokens=int(both.get("max_num_tokens", 8192)),
        max_seq_len=both.get("max_seq_len"),
        max_beam_width=int(both.get("max_beam_width", 1)),
        enable_chunked_prefill=bool(both.get("enable_chunked_prefill", False)),
        disable_overlap_scheduler=bool(values.get("disable_overlap_scheduler", False)),
        enable_attention_dp=bool(values.get("enable_attention_dp", False)),
        free_gpu_memory_fraction=float(fraction),
        transfer=_transfer(transceiver.get("backend"), environment),
        nixl_backend=_nixl_backend(environment, release),
        transfer_timeout=None if timeout is None else timeout / 1000,
        tokens=cache.get("max_tokens"),
        tokens_per_block=int(cache.get("tokens_per_block", 32)),
        dtype=dtype,
        enable_block_reuse=bool(cache.get("enable_block_reuse", True)),
        return_perf_metrics=bool(values.get("return_perf_metrics", False)),
        perf_metrics_max_requests=int(values.get("perf_metrics_max_requests", 0)),
        guided=values.get("guided_decoding_backend") is not None,
        stats=stats if values.get("enable_iter_perf_stats", False) else 0,
        events=int(cache.get("event_buffer_max_size", 0)),
    )


def _section(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in (values.get(name) or {}).items() if value is not None}


def _check(both: Mapping[str, Any], fraction: Any, dtype: str) -> None:  # noqa: ANN401 - whatever the file holds
    for name in flags.INTEGERS - {"port", "num_postprocess_workers"}:
        if both.get(name, 1) < 1:
            raise StartError(f"{name}\n  Input should be greater than 0, input_value={both[name]!r}")
    if not 0 <= both.get("port", 8000) <= _MAX_PORT:
        raise StartError("OverflowError: bind(): port must be 0-65535.")
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise StartError(f"kv_cache_config.free_gpu_memory_fraction: not a number from 0 to 1: {fraction!r}")
    if dtype not in _DTYPES:
        raise StartError(f"ValueError: KV cache dtype {dtype!r} is none of {', '.join(_DTYPES)}")
    block = (both.get("kv_cache_config") or {}).get("tokens_per_block") or 32
    if block & (block - 1):
        raise StartError(f"ValueError: tokens_per_block must be a power of 2, got {block}")
    if both.get("backend", "pytorch") != "pytorch":
        raise StartError(f"the backend {both['backend']} is not simulated; there is pytorch")
    for name, what in (("server_role", "service discovery"), ("metadata_server_config_file", "etcd")):
        if both.get(name) is not None:
            raise StartError(f"--{name} is not simulated: there is no {what}")


def _shown(model: str) -> str:
    """How answers call a model: a folder by its last name, what comes from the hub as it is."""
    path = Path(model)
    return path.name if path.is_absolute() or path.is_dir() else model


def _transfer(backend: str | None, environment: Mapping[str, str]) -> str | None:
    if backend is None:
        return None
    if backend.upper() == "DEFAULT":
        found = [name for variable, name in _BY_VARIABLE.items() if environment.get(variable) == "1"]
        return found[0] if found else "NIXL"
    return backend.upper()


def _nixl_backend(environment: Mapping[str, str], release: Release) -> str:
    """NIXL takes UCX for one that it does not know, and before release 1.2 there is no other."""
    wanted = environment.get("TRTLLM_NIXL_KVCACHE_BACKEND")
    return "LIBFABRIC" if wanted == "LIBFABRIC" and release >= _NIXL_BACKENDS else "UCX"
