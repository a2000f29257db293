"""Deployments, one for each role in each group."""

from __future__ import annotations

from typing import Any

from disagg.api.names import PLACEMENT, RENDER_REVISION, TEMPLATE_INPUTS, Workload, selector_labels
from disagg.api.resource import DisaggregatedInference
from disagg.build.engines.engine import STARTUP_SECONDS
from disagg.build.metadata import child
from disagg.decide.decisions import Placement, WorkloadDecision

_MARGIN_SECONDS = 600
"""Time for scheduling and pulling the image, on top of loading the model."""


def deployment(
    resource: DisaggregatedInference,
    workload: Workload,
    decision: WorkloadDecision,
    placement: Placement | None = None,
) -> dict[str, Any]:
    """The Deployment of a role in a group.

    Args:
        resource: The resource.
        workload: Role and group.
        decision: Count, rollout and template, as far as they depend on what runs now. Without `replicas` in it the
            count is not the operator's: the field is left out, so that nothing that is applied ever moves it.
        placement: Where the group is packed, if it is.
    """
    head = child("apps/v1", "Deployment", resource, workload)
    head["metadata"]["annotations"] = {
        RENDER_REVISION: str(decision.template.revision),
        TEMPLATE_INPUTS: decision.template.inputs,
    }
    if placement is not None:
        head["metadata"]["annotations"][PLACEMENT] = placement.to_json()
    spec: dict[str, Any] = {
        "selector": {"matchLabels": selector_labels(resource.metadata.name, workload)},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": decision.max_surge, "maxUnavailable": decision.max_unavailable},
        },
        "progressDeadlineSeconds": STARTUP_SECONDS + _MARGIN_SECONDS,
        "template": decision.template.body,
    }
    if decision.replicas is not None:
        spec["replicas"] = decision.replicas
    return head | {"spec": spec}
