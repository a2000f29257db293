"""Deployments, one a role."""

from __future__ import annotations

from typing import Any

from disagg.api.names import RENDER_REVISION, TEMPLATE_INPUTS, RoleName, selector_labels
from disagg.api.resource import DisaggregatedInference
from disagg.build.metadata import child
from disagg.build.pod_template import STARTUP_SECONDS
from disagg.decide.decisions import RoleDecision

_MARGIN_SECONDS = 600
"""Time for scheduling and pulling the image, on top of loading the model."""


def deployment(resource: DisaggregatedInference, role: RoleName, decision: RoleDecision) -> dict[str, Any]:
    """The Deployment of a role.

    Args:
        resource: The resource.
        role: The role.
        decision: Count, rollout and template, as far as they depend on what runs now. Without `replicas` in it the
            count is not the operator's: the field is left out, so that nothing that is applied ever moves it.
    """
    head = child("apps/v1", "Deployment", resource, role)
    head["metadata"]["annotations"] = {
        RENDER_REVISION: str(decision.template.revision),
        TEMPLATE_INPUTS: decision.template.inputs,
    }
    spec: dict[str, Any] = {
        "selector": {"matchLabels": selector_labels(resource.metadata.name, role)},
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
