"""What SGLang's environment says, as far as it matters here."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

_log = logging.getLogger("engine_sim.sglang")

_Value = TypeVar("_Value")

_TRUE = {"true", "1", "yes", "y"}
_FALSE = {"false", "0", "no", "n"}
_LEAST_HEARTBEAT = 2.0


@dataclass(frozen=True)
class Environment:
    """Variables of the process.

    Attributes:
        bootstrap_timeout: Seconds that a request waits in prefill for decode.
        waiting_timeout: Seconds that a request waits in decode for its KV cache.
        heartbeat: Seconds between two looks of decode's at a prefill.
        heartbeat_failures: Looks in a row after which a prefill counts as gone.
        entry_cleanup: Seconds that the bootstrap server remembers the rank of a room.
        host_ip: Where other engines reach this one's ranks.
        keep_alive: Seconds that idle connections stay open.
        health_generates: Whether /health has a token generated; /health_generate always does.
        health_timeout: Seconds after which that has failed.
        force_shutdown: Whether SIGTERM waits for nothing.
        staging: Whether heads are gathered where ranks have different numbers of them.
        query_rank: Whether decode asks which rank has a room, rather than to follow from it.
        header_overrides: Whether headers may say what the body does not.
    """

    bootstrap_timeout: float
    waiting_timeout: float
    heartbeat: float
    heartbeat_failures: int
    entry_cleanup: float
    host_ip: str
    keep_alive: int
    health_generates: bool
    health_timeout: float
    force_shutdown: bool
    staging: bool
    query_rank: bool
    header_overrides: bool


def read(environment: Mapping[str, str]) -> Environment:
    """Read the variables. One that can't be read has its default, as in the real engine, which warns of it."""

    def get(name: str, default: _Value, parse: Callable[[str], _Value]) -> _Value:
        text = environment.get(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            _log.warning('Invalid value for %s: %s, using default "%s"', name, error, default)
            return default

    return Environment(
        bootstrap_timeout=get("SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT", 300, int),
        waiting_timeout=get("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", 300, int),
        heartbeat=max(get("SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL", 5.0, float), _LEAST_HEARTBEAT),
        heartbeat_failures=max(get("SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE", 2, int), 1),
        entry_cleanup=get("SGLANG_DISAGGREGATION_BOOTSTRAP_ENTRY_CLEANUP_INTERVAL", 120, int),
        host_ip=environment.get("SGLANG_HOST_IP") or environment.get("HOST_IP") or _own_address(),
        keep_alive=get("SGLANG_TIMEOUT_KEEP_ALIVE", 5, int),
        health_generates=get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", True, _truth),
        health_timeout=get("SGLANG_HEALTH_CHECK_TIMEOUT", 20, int),
        force_shutdown=get("SGL_FORCE_SHUTDOWN", False, _truth)
        or get("SGLANG_FORCE_SHUTDOWN", False, _truth),
        staging=get("SGLANG_DISAGG_STAGING_BUFFER", False, _truth),
        query_rank=get("SGLANG_DISAGGREGATION_FORCE_QUERY_PREFILL_DP_RANK", False, _truth),
        header_overrides=get("SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES", False, _truth),
    )


def _truth(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f'"{text}" is not a valid boolean value')


def _own_address() -> str:
    """The address that packets to elsewhere leave from; the loopback if there is no way out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: it only asks which way a packet would take.
            probe.connect(("8.8.8.8", 80))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
