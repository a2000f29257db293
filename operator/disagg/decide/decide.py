"""Decisions about a resource: the second step of event -> key -> read -> **decide** -> build -> apply."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from disagg.api.names import FIELD_MANAGER, RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.api.roles import Autoscaling
from disagg.api.spec import Rollout
from disagg.decide import ownership
from disagg.decide.decisions import Decisions, GroupDecision, Template, WorkloadDecision
from disagg.decide.observed import Observed
from disagg.decide.template import Agree, choose_templates


def decide(
    resource: DisaggregatedInference,
    observed: Observed,
    rendered: Mapping[Workload, Template],
    groups: Mapping[int, GroupDecision] = MappingProxyType({}),
    agree: Agree = lambda _prefill, _decode: True,
) -> Decisions:
    """What is to be applied, given what runs now.

    Args:
        resource: The resource.
        observed: Its live children.
        rendered: Pod templates as this release renders them, of each role in each group.
        groups: Where the groups are packed, if they are.
        agree: Whether pods of two templates, of prefill and of decode, can exchange KV cache.
    """
    held = frozenset[Workload]().union(*(group.held for group in groups.values()))
    chosen = choose_templates(rendered, observed, agree)
    return Decisions(
        groups=groups,
        workloads={
            workload: _decide_workload(resource, workload.role, observed.deployment(workload), template)
            for workload, template in chosen.items()
            if workload not in held
        },
    )


def _decide_workload(
    resource: DisaggregatedInference, role: RoleName, live: dict[str, Any] | None, template: Template
) -> WorkloadDecision:
    replicas, autoscaling = _replicas(resource, role), _autoscaling(resource, role)
    if live is None and autoscaling is not None and resource.spec.topology_constraint is not None:
        # Packed with the pods that are there: the autoscaler would bring the rest when the first have their places.
        replicas = autoscaling.min_replicas
    # A Deployment that is applied without a count begins with 1, and its autoscaler lifts that to its minimum.
    running = int(live["spec"].get("replicas", 1)) if live is not None else 1
    expected = max(running, autoscaling.min_replicas) if autoscaling is not None else running
    max_surge, max_unavailable = _rollout(resource.spec.rollout, expected if replicas is None else replicas)
    return WorkloadDecision(
        template=template,
        replicas=replicas,
        seed=running if replicas is None and _owns_replicas(live) else None,
        max_surge=max_surge,
        max_unavailable=max_unavailable,
    )


def _replicas(resource: DisaggregatedInference, role: RoleName) -> int | None:
    if _autoscaling(resource, role) is not None:
        return None
    replicas: int | None = getattr(resource.spec, role).replicas
    return replicas


def _autoscaling(resource: DisaggregatedInference, role: RoleName) -> Autoscaling | None:
    autoscaling: Autoscaling | None = getattr(getattr(resource.spec, role), "autoscaling", None)
    return autoscaling


def _owns_replicas(live: dict[str, Any] | None) -> bool:
    """Whether leaving the count out of what is applied would reset it to 1, as the sole owner's omission does."""
    if live is None:
        return False
    return "f:replicas" in ownership.subtree(ownership.applied_fields(live, FIELD_MANAGER), "spec")


def _rollout(rollout: Rollout, replicas: int) -> tuple[int | str, int | str]:
    """Surge and unavailable pods. GPU nodes seldom have room for a surge, but a single replica needs one to go on."""
    alone = replicas <= 1
    surge: int | str | None = rollout.max_surge
    unavailable: int | str | None = rollout.max_unavailable
    if surge is None and unavailable is None:
        return (1, 0) if alone else (0, 1)
    # One of them is given: the other follows, and never so that both are 0.
    if surge is None:
        surge = 1 if unavailable in (0, "0", "0%") else 0
    if unavailable is None:
        unavailable = 1 if surge in (0, "0", "0%") else 0
    return surge, unavailable
