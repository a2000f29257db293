"""The router's container: existing routers, run as they are published.

Flags are those of vllm-router 0.1.17 (vllm-project/router) and smg 1.13.0 (lightseekorg/smg).
"""

from __future__ import annotations

from typing import Any

from disagg.api.engine import EngineKind
from disagg.api.names import RoleName, Workload, selector_labels
from disagg.api.resource import DisaggregatedInference
from disagg.api.router import RouterKind
from disagg.api.spec import Spec
from disagg.build.engines.engine import HTTP_PORT

ROUTER_PORT = 8080
METRICS_PORT = 29000
VLLM_ROUTER_IMAGE = "vllm/vllm-router:v0.1.17"


_OF_ENGINE = {
    EngineKind.VLLM: RouterKind.VLLM_ROUTER,
    EngineKind.SGLANG: RouterKind.SMG,
    EngineKind.TRTLLM: RouterKind.TRTLLM,
    EngineKind.CUSTOM: RouterKind.VLLM_ROUTER,
}


def router_kind(spec: Spec) -> RouterKind:
    """The router that the resource gets."""
    return spec.router.kind or _OF_ENGINE[spec.engine.kind]


def container(resource: DisaggregatedInference, group: int) -> dict[str, Any]:
    """The container, without probes, of the router that pairs the pods of `group`: KV cache stays in a group.

    Raises:
        ValueError: The resource has no router.
    """
    router = resource.spec.router
    kind = router_kind(resource.spec)
    image = router.image or (VLLM_ROUTER_IMAGE if kind is RouterKind.VLLM_ROUTER else None)
    if image is None or kind is RouterKind.NONE:
        raise ValueError(f"router.image: required when router.kind is {kind}")
    start: dict[str, Any]
    if kind is RouterKind.VLLM_ROUTER:
        start = {"command": ["vllm-router"], "args": ["--vllm-pd-disaggregation", "--kv-connector=nixl"]}
        # Its default of 60 s would send requests to a dead pod for a minute.
        start["args"].append("--health-check-interval-secs=5")
    else:
        # smg's image starts smg itself.
        start = {"args": ["--pd-disaggregation"]}
    start["args"] += [
        "--host=0.0.0.0",
        f"--port={ROUTER_PORT}",
        "--prometheus-host=0.0.0.0",
        f"--prometheus-port={METRICS_PORT}",
        "--service-discovery",
        f"--service-discovery-namespace={resource.metadata.namespace}",
        f"--service-discovery-port={HTTP_PORT}",
        "--prefill-selector",
        *_selector(resource, Workload(RoleName.PREFILL, group)),
        "--decode-selector",
        *_selector(resource, Workload(RoleName.DECODE, group)),
        *router.args,
    ]
    return {
        "name": "router",
        "image": image,
        **start,
        "ports": [
            {"name": "http", "containerPort": ROUTER_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
    }


def _selector(resource: DisaggregatedInference, workload: Workload) -> list[str]:
    labels = selector_labels(resource.metadata.name, workload)
    return [f"{key}={value}" for key, value in labels.items()]
