"""The command line and the environment of `vllm serve`, as far as they matter here; all of it is checked."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from disagg.engine_sim.dialects import StartError
from disagg.engine_sim.dialects.vllm import flags
from disagg.engine_sim.dialects.vllm.help import HELP
from disagg.engine_sim.dialects.vllm.kv_transfer import KVTransfer
from disagg.engine_sim.dialects.vllm.values import expanded, reader_of
from disagg.engine_sim.kv_events import EventsConfig
from disagg.engine_sim.sim_flags import REST, described

Release = tuple[int, int]

_MAX_PORT = 65535
DEFAULT_VERSION = "0.33.0"


@dataclass(frozen=True)
class Arguments:
    """What `vllm serve` was told. Attributes are named as its flags.

    Attributes:
        version: Release that is pretended.
        kv_transfer: The value of --kv-transfer-config.
        kv_events: The value of --kv-events-config.
        side_host: Where the side channel is, bound and advertised.
        side_port: As well, of rank 0.
        keep_alive: Seconds that idle connections stay open.
        runtime_loras: Whether adapters may be loaded by HTTP.
        development: Whether there are routes for developers.
        api_keys: Keys of which one is needed; none needed if empty.
    """

    version: str
    model: str
    served_model_name: tuple[str, ...]
    host: str
    port: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    ranks: tuple[int, ...]
    block_size: int
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    max_num_queued_reqs: int | None
    max_num_queued_tokens: int | None
    num_gpu_blocks_override: int | None
    kv_cache_memory_bytes: int | None
    enable_prefix_caching: bool
    by_priority: bool
    dtype: str
    kv_cache_dtype: str
    hybrid_kv_cache: bool
    speculative_config: str | None
    seed: int
    shutdown_timeout: int
    enable_lora: bool
    loras: dict[str, str]
    max_loras: int
    max_logprobs: int
    auto_tools: bool
    tool_parser: bool
    prompt_details: bool
    force_usage: bool
    echo_ids: bool
    kv_transfer: KVTransfer | None
    kv_events: EventsConfig
    side_host: str
    side_port: int
    keep_alive: float
    runtime_loras: bool
    development: bool
    api_keys: tuple[str, ...]

    @property
    def release(self) -> Release:
        """The release as numbers."""
        return release_of(self.version)


def release_of(version: str) -> Release:
    """The numbers of a release.

    Raises:
        StartError: It has none.
    """
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match is None:
        raise StartError(f"{version!r} is not a release")
    return int(match[1]), int(match[2])


class _Parser(argparse.ArgumentParser):
    """vLLM's parser takes underscores for dashes."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\n")


def parser(release: Release) -> argparse.ArgumentParser:
    """A parser that knows the flags of a release."""
    found = _Parser("vllm serve", usage="vllm serve [model_tag] [options]", epilog=REST)
    found.add_argument("model_tag", nargs="?", help="model, such as org/model; any name does")

    def add(name: str, **how: Any) -> None:  # noqa: ANN401 - JSON, or whatever is given
        if release >= flags.SINCE.get(name, release):
            short = [flags.SHORT[name]] if name in flags.SHORT else []
            found.add_argument(*short, f"--{name}", help=described(HELP, name), **how)

    for name in flags.SWITCHES:
        add(name, action="store_true")
    for name in flags.BOOLEANS:
        add(name, action=argparse.BooleanOptionalAction, default=None)
    for name in flags.LISTS:
        add(name, nargs="+")
    for name in flags.VALUES:
        add(name, **reader_of(name, release))
    return found


def parse(arguments: Sequence[str], environment: Mapping[str, str], version: str = "") -> Arguments:
    """Read command line and environment.

    Args:
        arguments: With or without `serve` before them.
        environment: Variables.
        version: Release that is pretended; empty for the newest known.

    Raises:
        SystemExit: With 2, and a message, if it can't be parsed.
        StartError: If it can, and the engine would refuse it.
    """
    version = version or DEFAULT_VERSION
    release = release_of(version)
    _check_port_variable(environment)
    given = list(arguments[1:] if arguments[:1] == ["serve"] else arguments)
    reader = parser(release)
    found = vars(reader.parse_args(expanded(given)))

    def get(name: str, default: Any) -> Any:  # noqa: ANN401 - JSON, or whatever is given
        value = found.get(name)
        return default if value is None else value

    model = get("model_tag", get("model", "Qwen/Qwen3-0.6B"))
    tp, dp = get("tensor_parallel_size", 1), get("data_parallel_size", 1)
    shutdown = get("shutdown_timeout", 0)
    for name, value, least in (
        ("tensor_parallel_size", tp, 1),
        ("data_parallel_size", dp, 1),
        ("block_size", get("block_size", 16), 1),
        ("max_num_seqs", get("max_num_seqs", 256), 1),
        ("shutdown_timeout", shutdown, 0),
        ("max_loras", get("max_loras", 1), 1),
    ):
        if value < least:
            raise StartError(f"Value error, {name} must be at least {least}, got {value}")
    if not 0 <= get("port", 8000) <= _MAX_PORT:
        raise StartError("OverflowError: bind(): port must be 0-65535.")
    if get("headless", False):
        raise StartError("--headless is not simulated: a node without an API has nothing to show")
    try:
        loras = _loras(get("lora_modules", []))
    except ValueError as error:
        reader.error(str(error))
    _check_template(get("chat_template", None))
    if loras and not get("enable_lora", False):
        raise StartError("LoRA is not enabled. Use --enable-lora to enable LoRA.")
    if get("enable_auto_tool_choice", False) and not get("tool_call_parser", None):
        raise StartError("Error: --enable-auto-tool-choice requires --tool-call-parser")
    return Arguments(
        version=version,
        model=model,
        served_model_name=tuple(get("served_model_name", [model])),
        host=get("host", "0.0.0.0"),
        port=get("port", 8000),
        tensor_parallel_size=tp,
        pipeline_parallel_size=get("pipeline_parallel_size", 1),
        data_parallel_size=dp,
        ranks=_ranks(get, dp),
        block_size=get("block_size", 16),
        max_model_len=get("max_model_len", None),
        max_num_seqs=get("max_num_seqs", 256),
        max_num_batched_tokens=get("max_num_batched_tokens", 8192),
        max_num_queued_reqs=get("max_num_queued_reqs", None),
        max_num_queued_tokens=get("max_num_queued_tokens", None),
        num_gpu_blocks_override=get("num_gpu_blocks_override", None),
        kv_cache_memory_bytes=get("kv_cache_memory_bytes", None),
        enable_prefix_caching=get("enable_prefix_caching", True),
        by_priority=get("scheduling_policy", "fcfs") == "priority",
        dtype=get("dtype", "auto"),
        kv_cache_dtype=get("kv_cache_dtype", "auto"),
        hybrid_kv_cache=not get("disable_hybrid_kv_cache_manager", False),
        speculative_config=get("speculative_config", None),
        seed=get("seed", 0),
        shutdown_timeout=shutdown,
        enable_lora=get("enable_lora", False),
        loras=loras,
        max_loras=get("max_loras", 1),
        max_logprobs=get("max_logprobs", 20),
        auto_tools=get("enable_auto_tool_choice", False),
        # Without the other flag a parser is not used. Older releases force a tool by a grammar alone.
        tool_parser=get("enable_auto_tool_choice", False) or release < (0, 32),
        prompt_details=get("enable_prompt_tokens_details", False),
        force_usage=get("enable_force_include_usage", False),
        echo_ids=get("enable_request_id_headers", False),
        kv_transfer=get("kv_transfer_config", None),
        kv_events=get("kv_events_config", EventsConfig()),
        side_host=environment.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost"),
        side_port=_number(environment, "VLLM_NIXL_SIDE_CHANNEL_PORT", 5600 if release >= (0, 18) else 5557),
        keep_alive=_number(environment, "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", 5),
        runtime_loras=_number(environment, "VLLM_ALLOW_RUNTIME_LORA_UPDATING", 0) == 1,
        development=_number(environment, "VLLM_SERVER_DEV_MODE", 0) == 1,
        api_keys=tuple(get("api_key", [])) or tuple(filter(None, [environment.get("VLLM_API_KEY")])),
    )


def _ranks(get: Callable[[str, Any], Any], dp: int) -> tuple[int, ...]:
    """Data-parallel ranks that this process runs."""
    rank = get("data_parallel_rank", None)
    if rank is not None or get("data_parallel_external_lb", False):
        return (rank or 0,)
    start = get("data_parallel_start_rank", 0)
    return tuple(range(start, start + get("data_parallel_size_local", dp)))


def _loras(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in given:
        if "=" in each and "," not in each:
            name, _equals, path = each.partition("=")
            found[name] = path
            continue
        try:
            module = json.loads(each)
        except ValueError as error:
            raise ValueError(f"Invalid JSON format for --lora-modules: {each}") from error
        if not isinstance(module, dict) or not {"name", "path"} <= module.keys():
            raise ValueError(f"Invalid fields for --lora-modules: {each} - name and path are required")
        found[module["name"]] = module["path"]
    return found


def _check_template(given: str | None) -> None:
    """A template is a file, or text that looks like one of Jinja's."""
    if given is None or set(given) & set("{}\n") or Path(given).is_file():
        return
    raise StartError(
        f"VLLMValidationError: The supplied chat template string ({given}) appears path-like, but doesn't exist! "
        "(parameter=chat_template)"
    )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError as error:
        raise StartError(f"ValueError: invalid literal for int() with base 10: {text!r} ({name})") from error


def _check_port_variable(environment: Mapping[str, str]) -> None:
    """A Service called `vllm` lets Kubernetes set VLLM_PORT to something else than a port."""
    port = environment.get("VLLM_PORT")
    if port is None or port.isdecimal():
        return
    if "://" in port:
        raise StartError(
            f"VLLM_PORT '{port}' appears to be a URI. This may be caused by a Kubernetes service discovery issue,check "
            "the warning in: https://docs.vllm.ai/en/latest/configuration/env_vars.html"
        )
    raise StartError(f"VLLM_PORT '{port}' must be a valid integer")
