"""The router's pod: existing routers, run as they are published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from disagg.api.engine import EngineKind
from disagg.api.names import RoleName, child_name
from disagg.api.resource import DisaggregatedInference
from disagg.api.router import RouterKind
from disagg.api.spec import Spec
from disagg.build.annotation_file import ROUTER_FILE_ANNOTATION, annotation_file
from disagg.build.engine_template import (
    ENDPOINT_REMOVAL_SECONDS,
    EXIT_SECONDS,
    probes,
    resources_block,
)
from disagg.build.engines.engine import FILES_PATH, LAST_WORDS
from disagg.build.routers import smg, trtllm, vllm_router
from disagg.build.routers.router import ROUTER_PORT, RouterPod
from disagg.build.transfer import answer_seconds
from disagg.build.volumes import sources

_OF_ENGINE = {
    EngineKind.VLLM: RouterKind.VLLM_ROUTER,
    EngineKind.SGLANG: RouterKind.SMG,
    EngineKind.TRTLLM: RouterKind.TRTLLM,
    EngineKind.CUSTOM: RouterKind.VLLM_ROUTER,
}

_ROUTERS: dict[RouterKind, Callable[[DisaggregatedInference, int], RouterPod]] = {
    RouterKind.VLLM_ROUTER: vllm_router.router_pod,
    RouterKind.SMG: smg.router_pod,
    RouterKind.TRTLLM: trtllm.router_pod,
}


def router_kind(spec: Spec) -> RouterKind:
    """The router that the resource gets."""
    return spec.router.kind or _OF_ENGINE[spec.engine.kind]


def finds_pods_by_name(spec: Spec) -> bool:
    """Whether the router reaches the pods of each group by a Service, rather than watching them."""
    return router_kind(spec) is RouterKind.TRTLLM


def router_template(resource: DisaggregatedInference, group: int) -> dict[str, Any]:
    """The pod template of the router that pairs the pods of `group`, without labels and the user's overlay.

    Raises:
        ValueError: The resource has no router, or one that cannot be started as the resource asks for it.
    """
    kind = router_kind(resource.spec)
    if kind is RouterKind.NONE:
        raise ValueError("router.kind: there is no router when it is none")
    made = _ROUTERS[kind](resource, group)
    container: dict[str, Any] = {
        "name": "router",
        "image": made.image,
        **({"command": made.command} if made.command is not None else {}),
        "args": [*made.args, *resource.spec.router.args],
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in ({"http": ROUTER_PORT} | made.ports).items()
        ],
        **probes(made.health, startup_seconds=made.startup_seconds),
        # Clients need a while to learn that it goes.
        "lifecycle": {"preStop": {"sleep": {"seconds": ENDPOINT_REMOVAL_SECONDS}}},
        **LAST_WORDS,
    }
    if resources := resources_block(resource.spec.router.resources, {}):
        container["resources"] = resources
    pod: dict[str, Any] = {
        "serviceAccountName": child_name(resource.metadata.name, RoleName.ROUTER),
        "enableServiceLinks": False,
        # Answers pass through it for as long as decode writes them.
        "terminationGracePeriodSeconds": ENDPOINT_REMOVAL_SECONDS
        + answer_seconds(resource.spec)
        + EXIT_SECONDS,
        "containers": [container],
    }
    if not made.watches_pods:
        pod["automountServiceAccountToken"] = False
    if made.config_file is None:
        return {"metadata": {}, "spec": pod}
    volume = annotation_file(
        "router-config", ROUTER_FILE_ANNOTATION, folder=FILES_PATH, name=made.config_file.name
    )
    container["volumeMounts"] = [volume.mount()]
    pod["volumes"] = sources([volume])
    return {"metadata": {"annotations": {ROUTER_FILE_ANNOTATION: made.config_file.text}}, "spec": pod}
