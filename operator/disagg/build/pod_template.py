"""Pod templates.

A change of what is rendered here goes with a higher `RENDER_REVISION`: running pods then keep the template that they have (`disagg.decide.template`) and do not restart for a new release of the operator.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from disagg.api.fields import EnvVar, Resources
from disagg.api.names import ENGINE_ROLES, RoleName, Workload, child_name, labels, selector_labels
from disagg.api.resource import DisaggregatedInference
from disagg.api.spec import EngineKind, Role, RouterKind, Spec
from disagg.build import router
from disagg.build.engines import custom, vllm
from disagg.build.engines.engine import HTTP_PORT, EnginePod
from disagg.build.strategic_merge import merge
from disagg.decide.decisions import Template

RENDER_REVISION = 1
"""Number of this renderer. Golden templates in the tests hold it to what it renders."""

STARTUP_SECONDS = 3600
"""Time to load a model: 140 GB from network storage take a quarter of an hour, compilation as much again."""

_NOT_IN_TEMPLATE = frozenset({"replicas", "autoscaling", "service"})
"""Fields of a role that change other objects than its pods."""

_PROBE_PERIOD = 10
_ENDPOINT_REMOVAL_SECONDS = 15
"""How long a terminating pod goes on serving before the engine hears of it: routers need it to stop sending."""


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
    if role is not RoleName.ROUTER:
        inputs |= {key: spec.get(key, {}) for key in ("model", "engine", "accelerator")}
        if resource.spec.router.kind is RouterKind.SMG:
            inputs["router"] = {"kind": RouterKind.SMG}
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _pod_template(resource: DisaggregatedInference, workload: Workload) -> dict[str, Any]:
    """The pod template of a role in a group, the user's overlay included.

    The labels that select the pods are not the user's to change: a Deployment must select its own pods.
    """
    role = workload.role
    if role is RoleName.ROUTER:
        template, overlay = (
            _router_template(resource, workload.group),
            resource.spec.router.pod_template.overlay,
        )
    else:
        template, overlay = (
            _engine_template(resource, role),
            getattr(resource.spec, role).pod_template.overlay,
        )
    template["metadata"]["labels"] = labels(resource.metadata.name, workload)
    merged = merge(template, overlay)
    own = {"labels": selector_labels(resource.metadata.name, workload)}
    return merged | {"metadata": merge(merged.get("metadata") or {}, own)}


def _engine_template(resource: DisaggregatedInference, role: RoleName) -> dict[str, Any]:
    spec = resource.spec
    wanted: Role = getattr(spec, role)
    image = wanted.image or spec.engine.image
    engine = (
        vllm.engine_pod(spec, role, image)
        if spec.engine.kind is EngineKind.VLLM
        else custom.engine_pod(spec, role)
    )
    container: dict[str, Any] = {
        "name": "engine",
        "image": image,
        **({"command": engine.command} if engine.command is not None else {}),
        "args": [*engine.args, *spec.engine.args, *wanted.args],
        "env": _environment(engine, spec.engine.env, wanted.env),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in ({"http": HTTP_PORT} | engine.ports).items()
        ],
        "resources": _resources(wanted.resources, spec.accelerator.resource, _accelerators(resource, wanted)),
        **_probes("http", startup_seconds=STARTUP_SECONDS),
        "lifecycle": {"preStop": {"sleep": {"seconds": _ENDPOINT_REMOVAL_SECONDS}}},
    }
    pod: dict[str, Any] = {
        # A Service called `vllm` would set VLLM_PORT=tcp://..., which vLLM reads as its own setting and dies of.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _ENDPOINT_REMOVAL_SECONDS + 45,
        "containers": [container],
    }
    if engine.shared_memory:
        # Tensor-parallel ranks talk through it, and a container's own has 64 MiB.
        container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - a mount, not a file
        pod["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    metadata = {"annotations": engine.annotations} if engine.annotations else {}
    return {"metadata": metadata, "spec": pod}


def _router_template(resource: DisaggregatedInference, group: int) -> dict[str, Any]:
    container = router.container(resource, group) | _probes("http", startup_seconds=120)
    resources = _resources(resource.spec.router.resources, "", 0)
    if resources:
        container["resources"] = resources
    return {
        "metadata": {},
        "spec": {
            "serviceAccountName": child_name(resource.metadata.name, RoleName.ROUTER),
            "enableServiceLinks": False,
            "containers": [container],
        },
    }


def _accelerators(resource: DisaggregatedInference, role: Role) -> int:
    return resource.spec.accelerator.per_rank * role.parallelism.tensor


def _resources(wanted: Resources, accelerator: str, count: int) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if wanted.requests:
        resources["requests"] = dict(wanted.requests)
    # The user's own number of accelerators has the last word.
    limits = ({accelerator: str(count)} if count else {}) | dict(wanted.limits)
    if limits:
        resources["limits"] = limits
    return resources


def _environment(engine: EnginePod, *layers: list[EnvVar]) -> list[dict[str, Any]]:
    variables = {variable["name"]: variable for variable in engine.env}
    for layer in layers:
        for variable in layer:
            variables[variable.name] = variable.model_dump(by_alias=True, exclude_none=True)
    return list(variables.values())


def _probes(port: str, *, startup_seconds: int) -> dict[str, Any]:
    """Probes on `/health`. Readiness is "model loaded"; liveness is lenient, since a busy engine answers late."""
    check = {"httpGet": {"path": "/health", "port": port}}
    return {
        "startupProbe": check
        | {
            "periodSeconds": _PROBE_PERIOD,
            "timeoutSeconds": 5,
            "failureThreshold": startup_seconds // _PROBE_PERIOD,
        },
        "readinessProbe": check | {"periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": check
        | {"periodSeconds": _PROBE_PERIOD, "timeoutSeconds": 10, "failureThreshold": 6},
    }
