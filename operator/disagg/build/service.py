"""Services: one that clients call, and a headless one for each engine role."""

from __future__ import annotations

from typing import Any

from disagg.api.names import RoleName, selector_labels
from disagg.api.resource import DisaggregatedInference
from disagg.build.engines.engine import HTTP_PORT
from disagg.build.metadata import child
from disagg.build.routers.router import ROUTER_PORT


def service(resource: DisaggregatedInference, role: RoleName) -> dict[str, Any]:
    """The Service of a role."""
    spec: dict[str, Any] = {"selector": selector_labels(resource.metadata.name, role)}
    if role is RoleName.ROUTER:
        wanted = resource.spec.router.service
        spec |= {"type": str(wanted.type), "ports": [_port(wanted.port, target=ROUTER_PORT)]}
    else:
        # Headless: a request must reach the pod that holds its KV cache, never one that a Service picks. And a
        # headless Service does not remap ports.
        spec |= {"clusterIP": "None", "ports": [_port(HTTP_PORT, target=HTTP_PORT)]}
    return child("v1", "Service", resource, role) | {"spec": spec}


def endpoint(resource: DisaggregatedInference) -> str:
    """URL of the router's Service inside the cluster."""
    port = resource.spec.router.service.port
    host = f"{resource.metadata.name}-{RoleName.ROUTER}.{resource.metadata.namespace}.svc"
    return f"http://{host}" if port == 80 else f"http://{host}:{port}"  # noqa: PLR2004 - HTTP's own port


def _port(port: int, *, target: int) -> dict[str, Any]:
    return {"name": "http", "port": port, "targetPort": target, "protocol": "TCP"}
