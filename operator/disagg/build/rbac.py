"""The router's identity: routers find prefill and decode pods by watching them."""

from __future__ import annotations

from typing import Any

from disagg.api.names import RoleName, child_name
from disagg.api.resource import DisaggregatedInference
from disagg.build.metadata import child


def pod_discovery(resource: DisaggregatedInference) -> list[dict[str, Any]]:
    """ServiceAccount, Role and RoleBinding that let the router read the pods of its namespace, and nothing else."""
    name = child_name(resource.metadata.name, RoleName.ROUTER)
    group = "rbac.authorization.k8s.io"
    return [
        child("v1", "ServiceAccount", resource, RoleName.ROUTER),
        child(f"{group}/v1", "Role", resource, RoleName.ROUTER)
        | {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]},
        child(f"{group}/v1", "RoleBinding", resource, RoleName.ROUTER)
        | {
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": resource.metadata.namespace}],
        },
    ]
