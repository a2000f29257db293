"""Services: one that clients call, and headless ones for the engine roles."""

from __future__ import annotations

from typing import Any

from disagg.api.names import Part, RoleName, Workload, selector_labels
from disagg.api.resource import DisaggregatedInference
from disagg.build.engines.engine import HTTP_PORT
from disagg.build.metadata import child
from disagg.build.routers.router import ROUTER_PORT
from disagg.build.routers.trtllm import group_service_name


def service(resource: DisaggregatedInference, role: RoleName) -> dict[str, Any]:
    """The Service of a role."""
    if role is not RoleName.ROUTER:
        return child("v1", "Service", resource, role) | {"spec": _headless(resource, role)}
    wanted = resource.spec.router.service
    spec = {
        "selector": selector_labels(resource.metadata.name, role),
        "type": str(wanted.type),
        "ports": [_port(wanted.port, target=ROUTER_PORT)],
    }
    return child("v1", "Service", resource, role) | {"spec": spec}


def group_service(resource: DisaggregatedInference, workload: Workload) -> dict[str, Any]:
    """The Service of an engine role in one group, for a router that finds pods by name: KV cache stays in a group."""
    made = child("v1", "Service", resource, workload)
    made["metadata"]["name"] = group_service_name(resource.metadata.name, workload)
    return made | {"spec": _headless(resource, workload)}


def endpoint(resource: DisaggregatedInference) -> str:
    """URL of the router's Service inside the cluster."""
    port = resource.spec.router.service.port
    host = f"{resource.metadata.name}-{RoleName.ROUTER}.{resource.metadata.namespace}.svc"
    return f"http://{host}" if port == 80 else f"http://{host}:{port}"  # noqa: PLR2004 - HTTP's own port


def _headless(resource: DisaggregatedInference, part: Part) -> dict[str, Any]:
    # A request must reach the pod that holds its KV cache, never one that a Service picks. And a headless Service does
    # not remap ports.
    return {
        "selector": selector_labels(resource.metadata.name, part),
        "clusterIP": "None",
        "ports": [_port(HTTP_PORT, target=HTTP_PORT)],
    }


def _port(port: int, *, target: int) -> dict[str, Any]:
    return {"name": "http", "port": port, "targetPort": target, "protocol": "TCP"}
