"""Command line and file of `trtllm-serve disaggregated`.

Unlike a worker's, its file is not strict: what it does not know at the top is handed down to both roles.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disagg.engine_sim.dialects import StartError
from disagg.engine_sim.dialects.trtllm.arguments import DEFAULT_VERSION, ClickParser, release_of
from disagg.engine_sim.dialects.trtllm.config import Release, load_yaml
from disagg.engine_sim.dialects.trtllm.flags import CHOICES
from disagg.engine_sim.dialects.trtllm.options import names

_OWN = names(
    """
    hostname port max_retries perf_metrics_max_requests context_servers generation_servers conditional_disagg_config
    otlp_config disagg_cluster node_id schedule_style
    """
)
_LATER = {"server_keep_alive_timeout": (1, 3), "internal_request_auth_key": (1, 3)}
_NODES = 256
_ROUTERS = ("round_robin", "load_balancing", "kv_cache_aware", "conversation")
_KEEP_ALIVE = 10.0


@dataclass(frozen=True)
class OrchestratorConfig:
    """What the orchestrator was told.

    Attributes:
        version: Release that is pretended.
        host: Where it listens.
        port: As well.
        contexts: Context servers, as host:port.
        generations: Generation servers.
        max_retries: After a connection that failed.
        node_id: Part of the ids that it gives.
        start_timeout: Seconds that the servers have to come up.
        request_timeout: Seconds that a request may take on either side.
        keep_alive: Seconds that idle connections of clients stay open.
    """

    version: str
    host: str
    port: int
    contexts: tuple[str, ...]
    generations: tuple[str, ...]
    max_retries: int
    node_id: int
    start_timeout: int
    request_timeout: int
    keep_alive: float


def parse(arguments: Sequence[str], version: str = "") -> OrchestratorConfig:
    """Read the command line and the file that it names.

    Args:
        arguments: After `disaggregated`.
        version: Release that is pretended; empty for the default.

    Raises:
        SystemExit: With 2 for a command line that can't be parsed.
        StartError: For one that can, and that is refused.
    """
    version = version or DEFAULT_VERSION
    release = release_of(version)
    told = _parser(release).parse_args(list(arguments))
    if told.config_file is None:
        raise StartError("TypeError: expected str, bytes or os.PathLike object, not NoneType")
    if told.metadata_server_config_file is not None:
        raise StartError("--metadata_server_config_file is not simulated: there is no etcd")
    return read(load_yaml(told.config_file), version, told.server_start_timeout, told.request_timeout)


def read(
    values: Mapping[str, Any], version: str, start_timeout: int, request_timeout: int
) -> OrchestratorConfig:
    """Read the file.

    Args:
        values: Its content.
        version: Release that is pretended.
        start_timeout: Of the command line.
        request_timeout: As well.

    Raises:
        StartError: It is refused.
    """
    release = release_of(version)
    _check_unsupported(values)
    node_id = values.get("node_id", uuid.getnode() % _NODES)
    if not isinstance(node_id, int) or not 0 <= node_id < _NODES:
        raise StartError(f"ValueError: node_id must be in range [0, {_NODES}), got {node_id}")
    own = _OWN | {name for name, since in _LATER.items() if release >= since}
    inherited = {name: value for name, value in values.items() if name not in own}
    keep_alive = (
        values.get("server_keep_alive_timeout") if release >= _LATER["server_keep_alive_timeout"] else None
    )
    return OrchestratorConfig(
        version=version,
        host=str(values.get("hostname", "localhost")),
        port=int(values.get("port", 8000)),
        contexts=_servers(values, "context_servers", inherited),
        generations=_servers(values, "generation_servers", inherited),
        max_retries=int(values.get("max_retries", 1)),
        node_id=node_id,
        start_timeout=start_timeout,
        request_timeout=request_timeout,
        keep_alive=_KEEP_ALIVE if keep_alive is None else float(keep_alive),
    )


def _parser(release: Release) -> ClickParser:
    found = ClickParser(
        "trtllm-serve disaggregated", usage="trtllm-serve disaggregated [OPTIONS]", allow_abbrev=False
    )
    files = ["-c", "--config_file", *(["--config"] if release >= (1, 3) else [])]
    found.add_argument(*files, dest="config_file")
    found.add_argument("-m", "--metadata_server_config_file")
    found.add_argument("-t", "--server_start_timeout", type=int, default=180)
    found.add_argument("-r", "--request_timeout", type=int, default=180)
    found.add_argument("-l", "--log_level", choices=CHOICES["log_level"], default="info")
    found.add_argument("--metrics-log-interval", type=int, default=0)
    return found


def _check_unsupported(values: Mapping[str, Any]) -> None:
    style = values.get("schedule_style") or "context_first"
    if style not in {"context_first", "generation_first"}:
        raise StartError(f"ValueError: unknown schedule_style {style!r}")
    if style == "generation_first":
        raise StartError("schedule_style generation_first is not simulated")
    for name in ("conditional_disagg_config", "disagg_cluster"):
        if values.get(name):
            raise StartError(f"{name} is not simulated")


def _servers(values: Mapping[str, Any], role: str, inherited: Mapping[str, Any]) -> tuple[str, ...]:
    section = values.get(role) or {}
    if not isinstance(section, dict):
        raise StartError(f"TypeError: {role} must be a mapping")
    for name, value in inherited.items():
        if section.get(name, value) != value:
            raise StartError(
                f"ValueError: Parameter {name} is specified both in the top-level and in the {role} section, but with "
                "different values"
            )
    kind = (section.get("router") or {}).get("type", "round_robin")
    if kind not in _ROUTERS:
        raise StartError(f"ValueError: Unsupported router type: {kind}")
    if kind != "round_robin":
        raise StartError(f"the router {kind} is not simulated; there is round_robin")
    urls, count = section.get("urls") or [], section.get("num_instances", 1)
    if not urls:
        raise StartError(f"ValueError: no urls in {role}: nothing starts the servers for it")
    found = tuple(_address(url) for url in urls)
    if len(found) != count:
        raise StartError(
            f"ValueError: Number of hostnames ({len(found)}) should be equal to the number of instances ({count})"
        )
    return found


def _address(url: str) -> str:
    parts = str(url).split(":")
    if len(parts) != 2:  # noqa: PLR2004 - host and port; an IPv6 address has more
        few = "not enough values to unpack (expected 2, got 1)"
        raise StartError(
            f"ValueError: {url}: {'too many values to unpack (expected 2)' if parts[1:] else few}"
        )
    if not parts[1].isdecimal():
        raise StartError(f"ValueError: invalid literal for int() with base 10: {parts[1]!r}")
    return f"{parts[0]}:{parts[1]}"
