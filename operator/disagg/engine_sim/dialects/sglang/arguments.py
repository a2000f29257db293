"""The command line of SGLang's `launch_server`, as far as it matters here; all of it is checked."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from disagg.engine_sim.dialects import StartError
from disagg.engine_sim.dialects.sglang import flags
from disagg.engine_sim.dialects.sglang.help import HELP
from disagg.engine_sim.dialects.sglang.settings import Environment
from disagg.engine_sim.kv_events import EventsConfig
from disagg.engine_sim.sim_flags import REST, described

DEFAULT_VERSION = "0.5.23"
_MAX_PORT = 65535
_NAMES = {"bf16": "bfloat16"}
"""Names of number formats that mean the same."""


@dataclass(frozen=True)
class Arguments:
    """What `launch_server` was told. Attributes are named as its flags.

    Attributes:
        mode: null, prefill or decode.
        dp_size: Ranks that each run requests of their own, whatever makes them.
        attention_dp: Whether they share their GPUs with tensor parallelism.
        attn_tp_size: GPUs that attention's heads are spread over.
        radix_cache: Whether prefixes are found again.
        follow_room: Whether prefill's rank follows from the room.
        kv_cache_dtype: Resolved: never auto.
    """

    version: str
    mode: str
    model_path: str
    served_model_name: str
    host: str
    port: int
    bootstrap_port: int
    transfer_backend: str
    tp_size: int
    dp_size: int
    attention_dp: bool
    pp_size: int
    attn_tp_size: int
    page_size: int
    dtype: str
    kv_cache_dtype: str
    context_length: int | None
    max_running_requests: int
    max_total_tokens: int | None
    chunked_prefill_size: int
    radix_cache: bool
    follow_room: bool
    by_priority: bool
    random_seed: int
    enable_metrics: bool
    enable_cache_report: bool
    stream_usage: bool
    auto_truncate: bool
    skip_warmup: bool
    enable_lora: bool
    loras: dict[str, str]
    max_loras_per_batch: int
    tool_call_parser: str | None
    reasoning_parser: str | None
    api_key: str | None
    admin_api_key: str | None
    kv_events: EventsConfig

    @property
    def engine_type(self) -> str:
        """As metrics have it."""
        return "unified" if self.mode == "null" else self.mode


def parser() -> argparse.ArgumentParser:
    """A parser that knows the flags. Names may be shortened, as in the real one."""
    found = argparse.ArgumentParser("launch_server.py", usage="launch_server.py [options]", epilog=REST)

    def add(name: str, **how: Any) -> None:  # noqa: ANN401 - what argparse takes
        names = [f"--{each}" for each in (name, *flags.ALIASES.get(name, ()))]
        if name in flags.CHOICES:
            how["choices"] = flags.CHOICES[name]
        found.add_argument(*names, dest=name.replace("-", "_"), help=described(HELP, name), **how)

    for name in flags.SWITCHES:
        add(name, action="store_true")
    for name in flags.LISTS:
        add(name, nargs="+")
    for name in flags.OPTIONAL:
        add(name, nargs="?", const="")
    for name in flags.VALUES:
        if name in flags.INTEGERS:
            add(name, type=int)
        elif name in flags.FLOATS:
            add(name, type=float)
        else:
            add(name, required=name == "model-path")
    return found


def parse(arguments: Sequence[str], environment: Environment, version: str = "") -> Arguments:
    """Read the command line.

    Args:
        arguments: Those after `sglang.launch_server`.
        environment: Decides on some of them.
        version: Release that is pretended; empty for the newest known.

    Raises:
        SystemExit: With 2, and a message, if it can't be parsed.
        StartError: If it can, and the engine would refuse it.
    """
    found = vars(parser().parse_args(list(arguments)))

    def get(name: str, default: Any) -> Any:  # noqa: ANN401 - whatever the flag holds
        value = found.get(name)
        return default if value is None else value

    mode = get("disaggregation_mode", "null")
    _check_sizes(get)
    _check_disaggregation(get, mode, environment)
    tp, attention = get("tp_size", 1), get("attn_dp_size", 1)
    if get("enable_dp_attention", False):
        attention = max(attention, get("dp_size", 1))
    if tp % attention:
        raise StartError("AssertionError: tp_size must be divisible by attn_dp_size * attn_cp_size")
    balance = get("load_balance_method", "auto")
    dtype = get("dtype", "auto")
    dtype = "bfloat16" if dtype == "auto" else dtype
    kept = get("kv_cache_dtype", "auto")
    loras = _loras(get("lora_paths", []))
    return Arguments(
        version=version or DEFAULT_VERSION,
        mode=mode,
        model_path=get("model_path", ""),
        served_model_name=get("served_model_name", get("model_path", "")),
        host=get("host", "127.0.0.1"),
        port=get("port", 30000),
        bootstrap_port=get("disaggregation_bootstrap_port", 8998),
        transfer_backend=get("disaggregation_transfer_backend", "mooncake"),
        tp_size=tp,
        dp_size=attention if attention > 1 else get("dp_size", 1),
        attention_dp=attention > 1,
        pp_size=get("pp_size", 1),
        attn_tp_size=tp // attention,
        page_size=get("page_size", 1),
        dtype=dtype,
        kv_cache_dtype=_NAMES.get(kept, dtype if kept == "auto" else kept),
        context_length=get("context_length", None),
        max_running_requests=get("max_running_requests", 2048),
        max_total_tokens=get("max_total_tokens", None),
        chunked_prefill_size=_chunk(get),
        radix_cache=_radix_cache(get, mode),
        follow_room=balance == "follow_bootstrap_room" or (balance == "auto" and mode == "prefill"),
        by_priority=get("enable_priority_scheduling", False),
        random_seed=get("random_seed", 0),
        enable_metrics=get("enable_metrics", False),
        enable_cache_report=get("enable_cache_report", False),
        stream_usage=get("stream_response_default_include_usage", False),
        auto_truncate=get("allow_auto_truncate", False),
        skip_warmup=get("skip_server_warmup", False),
        enable_lora=get("enable_lora", False) or bool(loras),
        loras=loras,
        max_loras_per_batch=get("max_loras_per_batch", 8),
        tool_call_parser=get("tool_call_parser", None),
        reasoning_parser=get("reasoning_parser", None),
        api_key=get("api_key", None),
        admin_api_key=get("admin_api_key", None),
        kv_events=_events(get("kv_events_config", None)),
    )


_Get = Callable[[str, Any], Any]


def _check_sizes(get: _Get) -> None:
    for name, default in (
        ("tp_size", 1),
        ("dp_size", 1),
        ("pp_size", 1),
        ("attn_dp_size", 1),
        ("page_size", 1),
    ):
        value = get(name, default)
        if value < 1:
            raise StartError(f"AssertionError: --{name.replace('_', '-')} must be at least 1, got {value}")
    for name, default in (("port", 30000), ("disaggregation_bootstrap_port", 8998)):
        value = get(name, default)
        if not 0 <= value <= _MAX_PORT:
            raise StartError(f"OverflowError: --{name.replace('_', '-')} must be 0-65535, got {value}")
    if get("attn_dp_size", 1) > 1 and get("dp_size", 1) > 1:
        raise StartError(
            f"ValueError: --dp-size {get('dp_size', 1)} with --attn-dp-size {get('attn_dp_size', 1)}: only one of them"
        )
    if get("nnodes", 1) > 1 and get("node_rank", 0) > 0:
        raise StartError("--node-rank above 0 is not simulated: a node without an API has nothing to show")


def _check_disaggregation(get: _Get, mode: str, environment: Environment) -> None:
    """What SGLang refuses between flags of prefill and decode (arg_groups/pd_disaggregation_hook.py)."""
    backend = get("disaggregation_transfer_backend", "mooncake")
    own_radix = get("disaggregation_decode_enable_radix_cache", False)
    if mode == "prefill" and backend == "fake":
        raise StartError("AssertionError: Prefill server does not support 'fake' as the transfer backend")
    if mode == "decode" and own_radix and backend == "fake":
        raise StartError(
            "ValueError: --disaggregation-decode-enable-radix-cache is incompatible with "
            "--disaggregation-transfer-backend fake"
        )
    if mode == "decode" and get("enable_hierarchical_cache", False) and not own_radix:
        raise StartError(
            "ValueError: The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive and "
            "cannot be used at the same time. Please use only one of them."
        )
    if (
        mode == "decode"
        and get("disaggregation_decode_enable_offload_kvcache", False)
        and not get("hicache_storage_backend", None)
    ):
        raise StartError(
            "ValueError: --disaggregation-decode-enable-offload-kvcache requires --hicache-storage-backend to be set."
        )
    if mode != "null" and environment.staging and backend not in {"mooncake", "nixl"}:
        raise StartError(
            "ValueError: SGLANG_DISAGG_STAGING_BUFFER requires disaggregation_transfer_backend='mooncake' or 'nixl', "
            f"got '{backend}'."
        )
    if get("disaggregation_decode_allocation_policy", "early") == "prefill_complete":
        raise StartError("--disaggregation-decode-allocation-policy prefill_complete is not simulated")


def _chunk(get: _Get) -> int:
    size: int = get("chunked_prefill_size", 8192)
    # -1 computes a prompt in one go.
    return size if size > 0 else 1 << 30


def _radix_cache(get: _Get, mode: str) -> bool:
    if mode == "decode":
        return bool(get("disaggregation_decode_enable_radix_cache", False))
    return not get("disable_radix_cache", False)


def _loras(given: Sequence[str]) -> dict[str, str]:
    """Adapters, as PATH, NAME=PATH or JSON.

    Raises:
        StartError: One is none of these.
    """
    found = {}
    for each in given:
        if each.startswith("{"):
            try:
                adapter = json.loads(each)
                found[str(adapter["lora_name"])] = str(adapter["lora_path"])
            except (ValueError, KeyError) as error:
                raise StartError(
                    f"AssertionError: When providing LoRA paths as a list of dict: {each}"
                ) from error
        else:
            name, equals, path = each.partition("=")
            found[name] = path if equals else name
    return found


def _events(text: str | None) -> EventsConfig:
    """The value of --kv-events-config, which turns events on by being there."""
    if text is None:
        return EventsConfig()
    try:
        value = json.loads(text)
        known = EventsConfig(**value)
    except (ValueError, TypeError) as error:
        raise StartError(f"pydantic_core.ValidationError: KVEventsConfig: {error}") from error
    return EventsConfig(**{**value, "enable_kv_cache_events": known.publisher == "zmq"})
