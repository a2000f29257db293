"""The pod of an engine, put together from what the engine, the network and the model need, and from what the user adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from disagg.api.engine import EngineKind
from disagg.api.fields import EnvVar, Resources
from disagg.api.names import ENGINE_VERSION, RoleName
from disagg.api.resource import DisaggregatedInference
from disagg.api.roles import Accelerator, Role
from disagg.api.spec import Spec
from disagg.build.annotation_file import ENGINE_FILE_ANNOTATION, annotation_file
from disagg.build.engines.engine import (
    FILES_PATH,
    HTTP_PORT,
    KERNELS_PATH,
    LAST_WORDS,
    STARTUP_SECONDS,
    EnginePod,
    Health,
)
from disagg.build.engines.registry import ENGINES
from disagg.build.model_files import ModelFiles, model_files
from disagg.build.network import Network, affinity, network
from disagg.build.preflight import SHARED_MEMORY_PATH, model_path, preflight
from disagg.build.transfer import Transfer, resolve
from disagg.build.volumes import Volume, claim, empty, sources
from disagg.topology.amounts import parse

ENDPOINT_REMOVAL_SECONDS = 15
"""How long a terminating pod goes on serving before the engine hears of it: routers need it to stop sending."""
EXIT_SECONDS = 30
"""Time for an engine to end once it has drained."""
_PROBE_PERIOD = 10
_STARTUP_PERIOD = 5
"""An engine that is up is not left waiting: while it loads, nothing listens, and a probe costs nothing."""


@dataclass(frozen=True)
class Parts:
    """What a pod of a role is made of.

    Attributes:
        image: Image of the engine.
        engine: What the engine needs.
        transfer: How KV cache moves.
        network: What the network needs.
        model: Where the model is.
    """

    image: str
    engine: EnginePod
    transfer: Transfer
    network: Network
    model: ModelFiles


def parts(spec: Spec, role: RoleName) -> Parts:
    """What a pod of `role` is made of."""
    wanted: Role = getattr(spec, role)
    image = wanted.image or spec.engine.image
    transfer, model = resolve(spec), model_files(spec.model)
    reach = (
        Network()
        if spec.engine.kind is EngineKind.CUSTOM and spec.kv_transfer is None
        else network(
            transfer, accelerator=accelerator(spec, wanted).resource, ranks=_accelerators(spec, wanted)
        )
    )
    engine = ENGINES[spec.engine.kind].engine_pod(spec, role, image, transfer, model)
    return Parts(image, engine, transfer, reach, model)


def engine_template(resource: DisaggregatedInference, role: RoleName) -> dict[str, Any]:
    """The pod template of prefill or decode, without labels and the user's overlay."""
    spec = resource.spec
    wanted: Role = getattr(spec, role)
    made = parts(spec, role)
    engine, reach = made.engine, made.network
    volumes = _volumes(spec, made)
    before_stop = ENDPOINT_REMOVAL_SECONDS + engine.linger_seconds
    container: dict[str, Any] = {
        "name": "engine",
        "image": made.image,
        **({"command": engine.command} if engine.command is not None else {}),
        "args": [*engine.args, *spec.engine.args, *wanted.args],
        "env": _environment([*engine.env, *made.model.env, *reach.env], spec.engine.env, wanted.env),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in ({"http": HTTP_PORT} | engine.ports).items()
        ],
        "resources": _resources(spec, wanted, made),
        **probes(engine.health, startup_seconds=STARTUP_SECONDS),
        "lifecycle": {"preStop": {"sleep": {"seconds": before_stop}}},
        **LAST_WORDS,
    }
    if volumes:
        container["volumeMounts"] = [volume.mount() for volume in volumes]
    if security := _security(reach):
        container["securityContext"] = security
    pod: dict[str, Any] = {
        # A Service called `vllm` would set VLLM_PORT=tcp://..., which vLLM reads as its own setting and dies of.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": before_stop + engine.drain_seconds + EXIT_SECONDS,
        "containers": [container],
    }
    if made.transfer.preflight:
        path = model_path(spec, role, made.model)
        # One rank alone has nobody to share memory with.
        alone = wanted.parallelism.ranks == 1
        checked = [volume for volume in volumes if not (alone and volume.path == SHARED_MEMORY_PATH)]
        pod["initContainers"] = [
            preflight(container, transfer=made.transfer, network=reach, volumes=checked, model=path)
        ]
    if volumes:
        pod["volumes"] = sources(volumes)
    pod |= _claims(reach, accelerator(spec, wanted).resource)
    if wanted.node_selector:
        pod["nodeSelector"] = dict(wanted.node_selector)
    if near := affinity(made.transfer, resource=resource.metadata.name, role=role):
        pod["affinity"] = near
    annotations = reach.annotations | engine.annotations
    if spec.engine.version is not None:
        annotations[ENGINE_VERSION] = spec.engine.version
    if engine.config_file is not None:
        annotations[ENGINE_FILE_ANNOTATION] = engine.config_file.text
    return {"metadata": {"annotations": annotations} if annotations else {}, "spec": pod}


def _claims(reach: Network, resource: str) -> dict[str, Any]:
    """Fields of a pod that go with its claims."""
    fields: dict[str, Any] = {}
    if reach.claims:
        fields["resourceClaims"] = [
            {"name": name, "resourceClaimTemplateName": template} for name, template in reach.claims.items()
        ]
    if reach.holds_accelerators:
        # Nodes with accelerators are tainted by the name of their resource. The API server lets pods that request it run
        # there (k8s.io/kubernetes plugin/pkg/admission/extendedresourcetoleration), but not pods that claim it.
        fields["tolerations"] = [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}]
    return fields


def accelerator(spec: Spec, role: Role) -> Accelerator:
    """The accelerator of a role."""
    return role.accelerator or spec.accelerator


def _accelerators(spec: Spec, role: Role) -> int:
    return accelerator(spec, role).per_rank * role.parallelism.ranks


def _resources(spec: Spec, role: Role, made: Parts) -> dict[str, Any]:
    count = 0 if made.network.holds_accelerators else _accelerators(spec, role)
    own = ({accelerator(spec, role).resource: str(count)} if count else {}) | made.network.resources
    resources = with_memory(resources_block(role.resources, own), made.engine.memory)
    if made.network.claims:
        resources["claims"] = [{"name": name} for name in made.network.claims]
    return resources


def resources_block(wanted: Resources, own: dict[str, str]) -> dict[str, Any]:
    """A container's `resources`. What the user says of a resource has the last word."""
    resources: dict[str, Any] = {}
    if wanted.requests:
        resources["requests"] = dict(wanted.requests)
    if limits := own | dict(wanted.limits):
        resources["limits"] = limits
    return resources


def with_memory(resources: dict[str, Any], additional: int) -> dict[str, Any]:
    """The same with `additional` bytes more memory, in the limit as well where there is one."""
    if not additional:
        return resources
    requests, limits = dict(resources.get("requests", {})), dict(resources.get("limits", {}))
    # A request that is not there is that of the limit.
    requests["memory"] = _more(requests.get("memory") or limits.get("memory") or 0, additional)
    if "memory" in limits:
        limits["memory"] = _more(limits["memory"], additional)
    return resources | {"requests": requests} | ({"limits": limits} if limits else {})


def _more(memory: str | int, additional: int) -> str:
    thousandths = parse({"memory": memory})["memory"]
    return str(-(-thousandths // 1000) + additional)


def _security(reach: Network) -> dict[str, Any]:
    if reach.privileged:
        return {"privileged": True}
    return {"capabilities": {"add": list(reach.capabilities)}} if reach.capabilities else {}


def _volumes(spec: Spec, made: Parts) -> list[Volume]:
    volumes = list[Volume]()
    if (size := made.engine.shared_memory) is not None:
        # Tensor-parallel ranks talk through it, and a container's own has 64 MiB.
        memory = {"medium": "Memory"} | ({"sizeLimit": size} if size else {})
        volumes.append(Volume("shm", {"emptyDir": memory}, "/dev/shm"))  # noqa: S108 - a mount, not a file
    volumes += made.model.volumes
    if spec.engine.kind is not EngineKind.CUSTOM:
        kept = spec.engine.kernel_cache
        volumes.append(claim("kernels", kept.claim, KERNELS_PATH) if kept else empty("kernels", KERNELS_PATH))
    if (file := made.engine.config_file) is not None:
        volumes.append(
            annotation_file("engine-config", ENGINE_FILE_ANNOTATION, folder=FILES_PATH, name=file.name)
        )
    return [*volumes, *made.engine.volumes, *made.network.volumes]


def _environment(own: list[dict[str, Any]], *layers: list[EnvVar]) -> list[dict[str, Any]]:
    variables = {variable["name"]: variable for variable in own}
    for layer in layers:
        for variable in layer:
            variables[variable.name] = variable.entry
    return list(variables.values())


def probes(health: Health, *, startup_seconds: int) -> dict[str, Any]:
    """Probes. Readiness is "model loaded"; liveness is lenient, since a busy engine answers late."""

    def get(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": "http"}}

    return {
        "startupProbe": get(health.startup)
        | {
            "periodSeconds": _STARTUP_PERIOD,
            "timeoutSeconds": 5,
            "failureThreshold": startup_seconds // _STARTUP_PERIOD,
        },
        "readinessProbe": get(health.ready)
        | {"periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": get(health.live)
        | {"periodSeconds": _PROBE_PERIOD, "timeoutSeconds": 30, "failureThreshold": 6},
    }
