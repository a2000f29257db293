"""All objects that a resource is to become: the third step of event -> key -> read -> decide -> **build** -> apply."""

from __future__ import annotations

from typing import Any

from disagg.api.names import ENGINE_ROLES, RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.build import autoscaler, deployment, rbac, service
from disagg.build.pod_template import wanted_roles
from disagg.decide.decisions import Decisions

Object = dict[str, Any]


def build(resource: DisaggregatedInference, decisions: Decisions) -> list[Object]:
    """The objects that `resource` is to become, in the order in which they are applied.

    Args:
        resource: The resource.
        decisions: What depends on what runs now, see `disagg.decide`.

    Returns:
        Complete apply configurations: a field that is not in them is not the operator's.
    """
    objects: list[Object] = []
    roles = wanted_roles(resource.spec)
    if RoleName.ROUTER in roles:
        objects += rbac.pod_discovery(resource)
    objects += [service.service(resource, role) for role in roles]
    objects += [
        deployment.deployment(resource, workload, decision)
        for workload, decision in decisions.workloads.items()
    ]
    objects += [
        autoscaler.horizontal_pod_autoscaler(resource, Workload(role, group))
        for group in range(resource.spec.groups)
        for role in ENGINE_ROLES
        if getattr(resource.spec, role).autoscaling is not None
    ]
    return objects
