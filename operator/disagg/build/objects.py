"""All objects that a resource is to become: the third step of event -> key -> read -> decide -> **build** -> apply."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from disagg.api.names import ENGINE_ROLES, GROUP_LABEL, RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.build import autoscaler, deployment, pod_group, rbac, router, service
from disagg.build.compatibility import difference
from disagg.build.placement import placed
from disagg.build.pod_group import POD_GROUP_KIND
from disagg.build.pod_template import pod_templates, wanted_roles
from disagg.decide.decide import decide
from disagg.decide.decisions import Decisions, Mechanism, Placement
from disagg.decide.environment import Environment
from disagg.decide.live import consists_of
from disagg.decide.observed import ObjectKey, Observed
from disagg.decide.placement import place
from disagg.decide.sequence import held

Object = dict[str, Any]


def plan(
    resource: DisaggregatedInference, observed: Observed, environment: Environment, now: datetime
) -> Decisions:
    """Everything that is to be decided about a resource, given what runs now and what the cluster offers.

    Args:
        resource: The resource.
        observed: Its live children.
        environment: The cluster.
        now: The time, in UTC.
    """
    rendered = pod_templates(resource)
    groups = {
        group: replace(
            decision,
            held=held(group, decision, observed, environment.pods_of(resource, group), now),
        )
        for group, decision in place(resource, observed, rendered, environment).items()
    }
    kind = resource.spec.engine.kind
    return decide(
        resource,
        observed,
        placed(resource, rendered, groups),
        groups,
        agree=lambda prefill, decode: difference(kind, prefill, decode) is None,
    )


def outgoing(observed: Observed, decisions: Decisions) -> set[ObjectKey]:
    """PodGroups that are not wanted any more, and that pods still name: without theirs they could not be replaced."""
    kept: set[ObjectKey] = set()
    for (kind, name), child in observed.children.items():
        if kind != POD_GROUP_KIND:
            continue
        number = int(child["metadata"].get("labels", {}).get(GROUP_LABEL, "0"))
        placement = decision.placement if (decision := decisions.groups.get(number)) is not None else None
        deployments = (observed.deployment(Workload(role, number)) for role in ENGINE_ROLES)
        if any(found is not None and not consists_of(found, placement) for found in deployments):
            kept.add((kind, name))
    return kept


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
    if router.finds_pods_by_name(resource.spec):
        objects += [
            service.group_service(resource, Workload(role, group))
            for group in range(resource.spec.groups)
            for role in ENGINE_ROLES
        ]
    # Before the pods that name it.
    objects += [
        pod_group.pod_group(resource, group, decision.placement, decision.min_count)
        for group, decision in decisions.groups.items()
        if decision.placement is not None and decision.placement.mechanism is Mechanism.POD_GROUP
    ]
    objects += [
        deployment.deployment(resource, workload, decision, _placement(decisions, workload))
        for workload, decision in decisions.workloads.items()
    ]
    objects += [
        autoscaler.horizontal_pod_autoscaler(resource, workload)
        for workload in decisions.workloads
        if workload.role in ENGINE_ROLES and getattr(resource.spec, workload.role).autoscaling is not None
    ]
    return objects


def _placement(decisions: Decisions, workload: Workload) -> Placement | None:
    group = decisions.groups.get(workload.group)
    return None if group is None or workload.role not in ENGINE_ROLES else group.placement
