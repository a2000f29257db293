"""The router that clients call."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from disagg.api.fields import Arguments, Block, Image, PodTemplate, Resources, cel, rules
from disagg.api.roles import Replicas


class RouterKind(StrEnum):
    """Routers that the operator knows how to start."""

    VLLM_ROUTER = "vllm-router"
    SMG = "smg"
    TRTLLM = "trtllm"
    NONE = "none"


class ServiceType(StrEnum):
    """How the router's Service is reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class RouterService(Block):
    """The Service that clients call."""

    type: ServiceType = ServiceType.CLUSTER_IP
    """How it is reached."""
    port: Annotated[int, Field(ge=1, le=65535)] = 80
    """Port that clients call."""


class Router(Block):
    """The router: takes requests and sends each to a prefill and a decode pod."""

    model_config = rules(
        cel(
            "!has(self.kind) || self.kind != 'smg' || has(self.image)",
            "'image is required when kind is smg: name the smg image that you run'",
        )
    )

    kind: RouterKind | None = None
    """vllm-router: vLLM's router. smg: the SGLang model gateway. trtllm: TensorRT-LLM's own orchestrator. none: you bring
    your own. Default: the engine's, and vllm-router for a custom one."""
    image: Image | None = None
    """Image of the router. Default for vllm-router: the release that this operator was tested for."""
    replicas: Replicas = 1
    """Number of router pods."""
    args: Arguments = []
    """Arguments after the operator's own, such as `--policy=cache_aware`."""
    resources: Resources = Resources()
    """Requests and limits of the router's container."""
    pod_template: PodTemplate = PodTemplate()
    """Strategic-merge overlay on the router's pod template. Its container is called `router`."""
    service: RouterService = RouterService()
    """The Service that clients call."""

    @model_validator(mode="after")
    def _smg_has_an_image(self) -> Self:
        if self.kind is RouterKind.SMG and self.image is None:
            raise ValueError("image is required when kind is smg: name the smg image that you run")
        return self
