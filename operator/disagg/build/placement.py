"""Puts the decision where a group is packed into pod templates: how the default scheduler is told.

Pods of a group attract each other, and a node affinity steers the first of them: without it they would follow whichever
pod happens to be bound first, into a rack that may not hold them all. Nothing of it needs a running operator later.

Weights: a node's scores are scaled so that the best node has 100, so a weight counts by its share of the sum. The
domain must outweigh all else that the scheduler scores by (kubernetes/pkg/scheduler/apis/config/v1/default_plugins.go).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from disagg.api.names import ENGINE_ROLES, GROUP_LABEL, NAME_LABEL, PLACEMENT, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.api.topology_constraint import PackMode
from disagg.decide.decisions import GroupDecision, Mechanism, Placement, Template
from disagg.topology.levels import HOSTNAME

_DOMAIN_WEIGHT = 100
_FIRST_NODE_WEIGHT = 100
_LAST_NODE_WEIGHT = 60
_WIDER_WEIGHT = 10


def pod_group_name(resource: str, group: int, placement: Placement) -> str:
    """Name of a group's PodGroup. Pods of a new domain need a new one: running pods hold theirs where they are."""
    return f"{resource}-group-{group}-{placement.identity}"


def placed(
    resource: DisaggregatedInference,
    templates: Mapping[Workload, Template],
    groups: Mapping[int, GroupDecision],
) -> dict[Workload, Template]:
    """The pod templates with the decisions about placement in them.

    Args:
        resource: The resource.
        templates: Pod templates as they are without.
        groups: The decisions, by group.
    """
    return {
        workload: _placed(resource, workload, template, decision.placement)
        if workload.role in ENGINE_ROLES
        and (decision := groups.get(workload.group)) is not None
        and decision.placement is not None
        else template
        for workload, template in templates.items()
    }


def _placed(
    resource: DisaggregatedInference, workload: Workload, template: Template, placement: Placement
) -> Template:
    body = deepcopy(template.body)
    body["metadata"]["labels"][PLACEMENT] = placement.identity
    pod, name = body["spec"], resource.metadata.name
    selector = {
        "matchLabels": {
            NAME_LABEL: name,
            GROUP_LABEL: str(workload.group),
            PLACEMENT: placement.identity,
        }
    }
    affinity = pod["affinity"] = pod.get("affinity") or {}
    _append(affinity, "podAffinity", _attraction(placement, selector))
    _append(affinity, "nodeAffinity", _steer(placement, first=workload.role is placement.first))
    if placement.within:
        _confine(affinity["nodeAffinity"], placement)
    # The scheduler's own rule for pods without one, to spread them over nodes and zones, pulls as hard as the steer. One
    # that selects no pod takes its place.
    pod.setdefault(
        "topologySpreadConstraints",
        [
            {
                "maxSkew": 1,
                "topologyKey": HOSTNAME,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {NAME_LABEL: ""}},
            }
        ],
    )
    if placement.mechanism is Mechanism.POD_GROUP:
        pod["schedulingGroup"] = {"podGroupName": pod_group_name(name, workload.group, placement)}
    digest = hashlib.sha256(placement.to_json().encode()).hexdigest()[:8]
    return replace(template, body=body, inputs=f"{template.inputs}-{digest}")


def _attraction(placement: Placement, selector: dict[str, Any]) -> dict[str, Any]:
    term = {"labelSelector": selector, "topologyKey": placement.key}
    if placement.mode is PackMode.REQUIRED:
        # A pod counts for its own term as long as there is no other: the first one finds a node.
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    terms = [{"weight": _DOMAIN_WEIGHT, "podAffinityTerm": term}]
    if placement.wider_key is not None:
        wider = term | {"topologyKey": placement.wider_key}
        terms.append({"weight": _WIDER_WEIGHT, "podAffinityTerm": wider})
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}


def _steer(placement: Placement, *, first: bool) -> dict[str, Any]:
    if placement.domain is None:
        return {}
    terms = [_prefers(_DOMAIN_WEIGHT, placement.key, placement.domain)]
    if first and placement.nodes:
        # One is filled before the next begins. Even the last must outweigh what the scheduler likes of empty nodes.
        step = (_FIRST_NODE_WEIGHT - _LAST_NODE_WEIGHT) / max(len(placement.nodes) - 1, 1)
        terms += [
            _prefers(round(_FIRST_NODE_WEIGHT - number * step), HOSTNAME, node)
            for number, node in enumerate(placement.nodes)
        ]
    if placement.wider_key is not None and placement.wider_domain is not None:
        terms.append(_prefers(_WIDER_WEIGHT, placement.wider_key, placement.wider_domain))
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}


def _prefers(weight: int, key: str, *values: str) -> dict[str, Any]:
    expression = {"key": key, "operator": "In", "values": list(values)}
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def _confine(node_affinity: dict[str, Any], placement: Placement) -> None:
    """Let pods run in some domains only. Terms are alternatives, so each of the user's gets the condition."""
    condition = {"key": placement.key, "operator": "In", "values": list(placement.within)}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [
            term | {"matchExpressions": [*(term.get("matchExpressions") or []), condition]} for term in terms
        ]
    }


def _append(affinity: dict[str, Any], kind: str, terms: dict[str, list[Any]]) -> None:
    """Add terms after those that the user's overlay has brought."""
    for when, added in terms.items():
        present = affinity[kind] = affinity.get(kind) or {}
        # What is no list of terms is left for the API server to name in its refusal.
        if isinstance(present, dict) and isinstance(own := present.get(when) or [], list):
            present[when] = [*own, *added]
