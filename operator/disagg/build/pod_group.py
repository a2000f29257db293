"""PodGroups: the scheduler places the pods of a group in one domain, together or not at all."""

from __future__ import annotations

from typing import Any

from disagg.api.names import GROUP_LABEL, MANAGED_BY, MANAGED_BY_LABEL, NAME_LABEL
from disagg.api.resource import DisaggregatedInference
from disagg.build.placement import pod_group_name
from disagg.decide.decisions import Placement

POD_GROUP_API = "scheduling.k8s.io/v1beta1"
POD_GROUP_KIND = "PodGroup"


def pod_group(
    resource: DisaggregatedInference, group: int, placement: Placement, min_count: int
) -> dict[str, Any]:
    """The PodGroup of a group.

    Args:
        resource: The resource.
        group: Number of the group.
        placement: Where the group is packed.
        min_count: Pods that must be there before any of them is placed.
    """
    name = resource.metadata.name
    return {
        "apiVersion": POD_GROUP_API,
        "kind": POD_GROUP_KIND,
        "metadata": {
            "name": pod_group_name(name, group, placement),
            "namespace": resource.metadata.namespace,
            "labels": {
                NAME_LABEL: name,
                GROUP_LABEL: str(group),
                "app.kubernetes.io/name": "disagg",
                "app.kubernetes.io/part-of": name,
                MANAGED_BY_LABEL: MANAGED_BY,
            },
            "ownerReferences": [resource.owner_reference],
        },
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": min_count}},
            "schedulingConstraints": {"topology": [{"key": placement.key}]},
        },
    }
