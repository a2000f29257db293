"""The kinds of objects that the operator reads and writes."""

from __future__ import annotations

from disagg.api.names import API_VERSION, KIND, PLURAL
from disagg.build.pod_group import POD_GROUP_API, POD_GROUP_KIND
from disagg.cluster.client import ResourceType

DISAGGREGATED_INFERENCE = ResourceType(API_VERSION, KIND, PLURAL)
EVENT = ResourceType("v1", "Event", "events")
NODE = ResourceType("v1", "Node", "nodes")
POD = ResourceType("v1", "Pod", "pods")

DEPLOYMENT = ResourceType("apps/v1", "Deployment", "deployments")
AUTOSCALER = ResourceType("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")

POD_GROUP = ResourceType(POD_GROUP_API, POD_GROUP_KIND, "podgroups")
"""Served by clusters with gang scheduling alone."""

WATCHED_KINDS = {
    resource.kind: resource
    for resource in (
        DEPLOYMENT,
        AUTOSCALER,
        ResourceType("v1", "Service", "services"),
        ResourceType("v1", "ServiceAccount", "serviceaccounts"),
        ResourceType("rbac.authorization.k8s.io/v1", "Role", "roles"),
        ResourceType("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    )
}
"""What is always served of what a resource may own, by kind."""

CHILD_KINDS = WATCHED_KINDS | {POD_GROUP.kind: POD_GROUP}
"""Everything that a resource may own, by kind."""

ALL_KINDS = frozenset(CHILD_KINDS)
STATUS_KINDS = frozenset({DEPLOYMENT.kind, AUTOSCALER.kind})
"""The children that the status of a resource is made from."""
