"""What an engine has to tell of itself for pods to be made of it, whichever it is.

Each engine is a module with the members of `EngineModule`; nothing else in the package knows one engine from another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from disagg.api.names import RoleName
from disagg.api.spec import Spec
from disagg.build.model_files import ModelFiles
from disagg.build.transfer import Transfer
from disagg.build.volumes import Volume

HTTP_PORT = 8000
"""Port of the engine's OpenAI-compatible API, its health check and its metrics."""

STARTUP_SECONDS = 3600
"""Time to load a model: 140 GB from network storage take a quarter of an hour, compilation as much again."""

FILES_PATH = "/etc/disagg"
"""Folder in which the engine's container has its configuration file."""

KERNELS_PATH = "/var/cache/kernels"
"""Folder in which the engine's container keeps compiled kernels."""

LAST_WORDS = {"terminationMessagePolicy": "FallbackToLogsOnError"}
"""Fields of a container: the end of its log stays in the pod's status when it fails, for the condition that tells why."""

Container = Mapping[str, Any]
"""A container, as in a pod's spec."""

PodTemplateBody = Mapping[str, Any]
"""Metadata and spec of a pod, as in a Deployment's template."""


class PairProtocol(StrEnum):
    """How a router has a prefill and a decode pod work on one request."""

    SEQUENTIAL = "sequential"
    """Prefill first; its answer holds `kv_transfer_params`, which go to decode with the request (vLLM with NIXL)."""
    CONCURRENT = "concurrent"
    """Both at once, with an identifier that the router draws (SGLang, vLLM with Mooncake)."""
    CONTEXT_FIRST = "context-first"
    """Prefill first; its answer holds `disaggregated_params` and the first token (TensorRT-LLM)."""


@dataclass(frozen=True)
class Health:
    """HTTP paths of the probes.

    Attributes:
        startup: Answers 200 once the model is loaded.
        ready: Answers 200 while requests can be taken.
        live: Answers 200 unless a restart would help.
    """

    startup: str = "/health"
    ready: str = "/health"
    live: str = "/health"


@dataclass(frozen=True)
class Metrics:
    """What an engine tells of its load, as its metrics endpoint names it.

    Attributes:
        path: Path of the endpoint, on `HTTP_PORT`.
        waiting: Gauges whose sum is the number of requests that wait.
        running: Gauge of the requests that run.
        kv_cache_usage: Gauge of the share of the KV cache that is in use, 0 to 1.
    """

    path: str
    waiting: tuple[str, ...]
    running: str
    kv_cache_usage: str


@dataclass(frozen=True)
class ConfigFile:
    """A file that the engine reads.

    Attributes:
        name: Its name below `FILES_PATH`.
        text: Its content.
    """

    name: str
    text: str


@dataclass(frozen=True)
class EnginePod:
    """An engine as prefill or decode.

    Attributes:
        command: Entry point, or None to keep the image's own.
        args: Arguments that the operator writes; the user's are appended.
        env: Environment that the operator sets; the user's overrides it by name.
        ports: Ports besides `http`, by name.
        health: Paths of the probes.
        config_file: Configuration file, where the engine reads one.
        volumes: Volumes besides those of the model and of shared memory.
        shared_memory: Size limit of /dev/shm; empty for none, None to leave the container's own 64 MiB.
        linger_seconds: How long it stays as it is, with routers sending nothing any more, before it is told to stop: for an
            engine that ends while the other role still reads its KV cache.
        drain_seconds: How long it goes on with the requests that it has when it is told to stop.
        memory: Bytes of CPU memory that come on top of what the user requests.
        annotations: Annotations of the pod.
        required_flags: Flag of `args` -> what breaks without it, or with another value.
        required_env: Variable of `env` -> the same.
        notes: What a user should know of it, such as a release that is newer than any known one.
    """

    command: list[str] | None = None
    args: list[str] = field(default_factory=list)
    env: list[dict[str, Any]] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)
    health: Health = Health()
    config_file: ConfigFile | None = None
    volumes: list[Volume] = field(default_factory=list)
    shared_memory: str | None = None
    linger_seconds: int = 0
    drain_seconds: int = 15
    memory: int = 0
    annotations: dict[str, str] = field(default_factory=dict)
    required_flags: dict[str, str] = field(default_factory=dict)
    required_env: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class EngineModule(Protocol):
    """The members of a module below `disagg.build.engines`."""

    METRICS: Metrics | None

    def protocol(self, transfer: Transfer) -> PairProtocol | None:
        """How a router has a pair work on one request; None where nothing is known of it.

        Args:
            transfer: How KV cache moves. Connectors of one engine may differ in it.
        """

    def engine_pod(
        self, spec: Spec, role: RoleName, image: str, transfer: Transfer, model: ModelFiles
    ) -> EnginePod:
        """How to start the engine as `role`.

        Args:
            spec: The resource's spec.
            role: prefill or decode.
            image: Image that the role runs; its tag tells the version where engine.version does not.
            transfer: How KV cache moves, with all defaults resolved.
            model: Where the files of the model are.
        """

    def compatibility(self, template: PodTemplateBody) -> dict[str, str]:
        """What the two ends of a transfer compare, read from a finished pod template: item -> value.

        Args:
            template: The pod template, overlays included. An engine's configuration file is in its annotations.
        """


def engine_container(template: PodTemplateBody) -> Container:
    """The container that runs the engine; an empty one if an overlay has removed it."""
    containers: list[Container] = template.get("spec", {}).get("containers") or []
    return next((container for container in containers if container.get("name") == "engine"), {})


def variable(name: str, value: object) -> dict[str, Any]:
    """An environment variable."""
    return {"name": name, "value": str(value)}


def pod_ip(name: str) -> dict[str, Any]:
    """An environment variable that holds the address of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
