"""What a router has to tell of itself for pods to be made of it, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from disagg.api.names import Workload, selector_labels
from disagg.api.resource import DisaggregatedInference
from disagg.build.engines.engine import HTTP_PORT, ConfigFile, Health

ROUTER_PORT = 8080
"""Port of the router's OpenAI-compatible API and of its health check."""
METRICS_PORT = 29000
"""Port of the metrics of routers that serve them apart. Their own default."""
STARTUP_SECONDS = 120
"""Time for a router that waits for nobody."""
HEALTH = Health(startup="/liveness", ready="/readiness", live="/liveness")
"""Paths that vllm-router and smg have in common. `/readiness` answers 200 once there is a pod of each role to send requests to: a
router that has just come up and has found none yet takes no requests from the one that it replaces. `/health` of vllm-router
answers 503 as long as any pod is unhealthy (`PDRouter::health` in src/routers/http/pd_router.rs): one engine that hangs would
have the router restarted, and all requests lost.
"""


@dataclass(frozen=True)
class RouterPod:
    """A router.

    Attributes:
        image: Image of the router.
        args: Arguments that the operator writes; the user's are appended.
        command: Entry point, or None to keep the image's own.
        ports: Ports besides `http`, by name.
        health: Paths of the probes.
        config_file: Configuration file, where the router reads one.
        startup_seconds: Time until it must have answered its startup probe.
        watches_pods: Whether it finds the engines' pods through the API server.
    """

    image: str
    args: list[str]
    command: list[str] | None = None
    ports: dict[str, int] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    config_file: ConfigFile | None = None
    startup_seconds: int = STARTUP_SECONDS
    watches_pods: bool = True


def listening() -> list[str]:
    """Flags that vllm-router and smg have in common: where they listen. Their own default is localhost."""
    return [
        "--host=0.0.0.0",
        f"--port={ROUTER_PORT}",
        "--prometheus-host=0.0.0.0",
        f"--prometheus-port={METRICS_PORT}",
    ]


def discovery(resource: DisaggregatedInference, prefill: Workload, decode: Workload) -> list[str]:
    """Flags that vllm-router and smg have in common: which pods they pair.

    Args:
        resource: The resource.
        prefill: Prefill of a group.
        decode: Decode of the same group: KV cache stays in a group.
    """
    name = resource.metadata.name
    prefills, decodes = (
        [f"{key}={value}" for key, value in selector_labels(name, workload).items()]
        for workload in (prefill, decode)
    )
    return [
        "--service-discovery",
        f"--service-discovery-namespace={resource.metadata.namespace}",
        f"--service-discovery-port={HTTP_PORT}",
        "--prefill-selector",
        *prefills,
        "--decode-selector",
        *decodes,
    ]
