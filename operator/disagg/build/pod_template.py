"""Pod templates.

A change of what is rendered here goes with a higher `RENDER_REVISION`: running pods then keep the template that they have (`disagg.decide.template`) and do not restart for a new release of the operator.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from disagg.api.engine import EngineKind
from disagg.api.names import (
    ENGINE_ROLES,
    KV_COMPATIBILITY_LABEL,
    RoleName,
    Workload,
    labels,
    selector_labels,
)
from disagg.api.resource import DisaggregatedInference
from disagg.api.router import RouterKind
from disagg.api.spec import Spec
from disagg.build import router
from disagg.build.compatibility import hash_of
from disagg.build.engine_template import engine_template
from disagg.build.routers import trtllm
from disagg.build.strategic_merge import merge
from disagg.decide.decisions import Template

RENDER_REVISION = 3
"""Number of this renderer. Golden templates in the tests hold it to what it renders."""

_NOT_IN_TEMPLATE = frozenset({"replicas", "autoscaling", "service"})
"""Fields of a role that change other objects than its pods."""


def pod_templates(resource: DisaggregatedInference) -> dict[Workload, Template]:
    """Pod templates of the roles that the resource is to have, in each group."""
    return {
        Workload(role, group): Template(
            body=_pod_template(resource, Workload(role, group)),
            revision=RENDER_REVISION,
            inputs=_inputs(resource, role),
        )
        for group in range(resource.spec.groups)
        for role in wanted_roles(resource.spec)
    }


def wanted_roles(spec: Spec) -> list[RoleName]:
    """The roles that the resource is to have."""
    if router.router_kind(spec) is RouterKind.NONE:
        return [*ENGINE_ROLES]
    return [*ENGINE_ROLES, RoleName.ROUTER]


def _inputs(resource: DisaggregatedInference, role: RoleName) -> str:
    """Hash over the fields of the resource that a role's template is rendered from.

    Without defaults: a field that a later release adds with a default must not look like a change by the user.
    """
    spec = resource.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    of_role = {key: value for key, value in spec.get(role, {}).items() if key not in _NOT_IN_TEMPLATE}
    inputs: dict[str, Any] = {str(role): of_role}
    kind = resource.spec.engine.kind
    if resource.spec.kv_transfer is not None:
        inputs["kvTransfer"] = spec["kvTransfer"]
    if role is RoleName.ROUTER:
        if router.router_kind(resource.spec) is RouterKind.TRTLLM:
            inputs["engine"] = trtllm.read_of_engine(resource.spec)
        elif kind in (EngineKind.SGLANG, EngineKind.TRTLLM):
            inputs["engine"] = {"kind": kind, "image": resource.spec.engine.image}
        if (drain := resource.spec.decode.drain_seconds) is not None:
            # Answers pass through it for as long.
            inputs["drainSeconds"] = drain
    else:
        inputs |= {key: spec.get(key, {}) for key in ("model", "engine", "accelerator")}
        if resource.spec.router.kind is RouterKind.SMG:
            inputs["router"] = {"kind": RouterKind.SMG}
        if kind is EngineKind.SGLANG:
            # Whether KV cache has to be cut anew on its way is seen in both roles.
            inputs["parallelism"] = {str(r): spec.get(r, {}).get("parallelism", {}) for r in ENGINE_ROLES}
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _pod_template(resource: DisaggregatedInference, workload: Workload) -> dict[str, Any]:
    """The pod template of a role in a group, the user's overlay included.

    The labels that select the pods are not the user's to change: a Deployment must select its own pods.
    """
    role = workload.role
    if role is RoleName.ROUTER:
        template, overlay = (
            router.router_template(resource, workload.group),
            resource.spec.router.pod_template.overlay,
        )
    else:
        template, overlay = (
            engine_template(resource, role),
            getattr(resource.spec, role).pod_template.overlay,
        )
    template["metadata"]["labels"] = labels(resource.metadata.name, workload)
    merged = merge(template, overlay)
    own = {"labels": selector_labels(resource.metadata.name, workload)}
    if role is not RoleName.ROUTER and (shared := hash_of(resource.spec.engine.kind, merged)) is not None:
        own["labels"][KV_COMPATIBILITY_LABEL] = shared
    return merged | {"metadata": merge(merged.get("metadata") or {}, own)}
