"""The spec of a `DisaggregatedInference`, as users write it.

These models are the only source: the CRD is generated from them (`disagg.api.crd`), descriptions and rules included.
A field is here only when the operator acts on it. Defaults that a later release may change are not schema defaults,
since those freeze in stored objects: they are `None` here and resolved where the object is built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from disagg.api.fields import (
    Arguments,
    Block,
    Environment,
    Image,
    IntOrPercent,
    PodTemplate,
    Resources,
    cel,
    rules,
)

Replicas = Annotated[int, Field(ge=0, le=10000)]
KubernetesName = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]


class EngineKind(StrEnum):
    """Inference engines that the operator knows how to start."""

    VLLM = "vllm"
    CUSTOM = "custom"


class RouterKind(StrEnum):
    """Routers that the operator knows how to start."""

    VLLM_ROUTER = "vllm-router"
    SMG = "smg"
    NONE = "none"


class ServiceType(StrEnum):
    """How the router's Service is reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class TokenSecret(Block):
    """Where the Hugging Face token is."""

    name: KubernetesName
    """Name of a Secret in the resource's namespace."""
    key: Annotated[str, Field(min_length=1, max_length=253)] = "token"
    """Key in that Secret."""


class Model(Block):
    """The model to serve."""

    uri: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^(hf://[^/\s]+/[^/\s]+|/\S*)$")]
    """`hf://organisation/name` for a model on the Hugging Face hub, or the absolute path of a model in the image."""
    served_name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^\S+$")] | None = None
    """Name that requests ask for. Default: the last part of the URI."""
    token_secret: TokenSecret | None = None
    """Secret with the token for gated models; becomes HF_TOKEN."""

    @property
    def name(self) -> str:
        """Name that requests ask for."""
        return self.served_name or self.uri.rstrip("/").rsplit("/", 1)[-1] or self.uri


class Engine(Block):
    """The inference engine, common to prefill and decode."""

    kind: EngineKind = EngineKind.VLLM
    """vllm: the operator writes the engine's arguments. custom: the image gets `args` only, listens on port 8000 and
    answers `/health`."""
    image: Image
    """Image of the engine. prefill.image and decode.image override it."""
    args: Arguments = []
    """Arguments for both roles, after the operator's own and before the role's."""
    env: Environment = []
    """Environment for both roles. The role's own env overrides it by name."""


class Accelerator(Block):
    """The extended resource that a tensor-parallel rank takes."""

    resource: Annotated[str, Field(min_length=1, max_length=317, pattern=r"^[^/\s]+/[^/\s]+$")] = (
        "nvidia.com/gpu"
    )
    """Name of the extended resource, such as nvidia.com/gpu or amd.com/gpu."""
    per_rank: Annotated[int, Field(ge=0, le=16)] = 1
    """How many of it a rank takes. 0 for engines that run on the CPU, and for simulators."""


class Parallelism(Block):
    """How one replica is spread over accelerators."""

    tensor: Annotated[int, Field(ge=1, le=64)] = 1
    """Tensor-parallel size: accelerators of one pod that hold a slice of each layer."""


_MIN_UP_TO_MAX = cel(
    "self.minReplicas <= self.maxReplicas",
    # `format` and not `string`, whose estimated cost has no bound.
    "'minReplicas (%d) must be at most maxReplicas (%d)'.format([self.minReplicas, self.maxReplicas])",
    field=".minReplicas",
)


class Autoscaling(Block):
    """Bounds of a role's HorizontalPodAutoscaler."""

    min_replicas: Annotated[int, Field(ge=1, le=10000)] = 1
    """Fewest replicas."""
    max_replicas: Annotated[int, Field(ge=1, le=10000)]
    """Most replicas."""


class PrefillAutoscaling(Autoscaling):
    """Prefill scales by queue depth: requests that wait or run."""

    model_config = rules(_MIN_UP_TO_MAX)

    queue_depth: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Requests waiting or running that one replica is meant to have. Default: 4."""


class DecodeAutoscaling(Autoscaling):
    """Decode scales by KV-cache use."""

    model_config = rules(_MIN_UP_TO_MAX)

    kv_cache_utilization: Annotated[int, Field(ge=1, le=90)] | None = None
    """Share of its KV cache that one replica is meant to use, in percent. At most 90: within the autoscaler's
    tolerance of 10 % of a higher target it would never scale up. Default: 80."""


class Role(Block):
    """What prefill and decode have in common."""

    replicas: Replicas | None = None
    """Number of pods. No default: while it is unset the operator never touches the count. Ignored while autoscaling
    is set."""
    image: Image | None = None
    """Image of this role, instead of engine.image."""
    args: Arguments = []
    """Arguments of this role, after engine.args."""
    env: Environment = []
    """Environment of this role; overrides engine.env by name."""
    parallelism: Parallelism = Parallelism()
    """How one replica is spread over accelerators."""
    resources: Resources = Resources()
    """Requests and limits of the engine container, besides the accelerators."""
    pod_template: PodTemplate = PodTemplate()
    """Strategic-merge overlay on the pod template that the operator renders (metadata and spec of a pod): it has the
    last word. The engine's container is called `engine`."""


class Prefill(Role):
    """The role that computes the KV cache of prompts: bound by compute."""

    autoscaling: PrefillAutoscaling | None = None
    """Let an HPA set the number of pods."""


class Decode(Role):
    """The role that generates tokens: bound by memory bandwidth."""

    autoscaling: DecodeAutoscaling | None = None
    """Let an HPA set the number of pods."""


class PackMode(StrEnum):
    """How strictly a group is packed."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"


_LABEL_KEY = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LabelKey = Annotated[str, Field(min_length=3, max_length=317, pattern=_LABEL_KEY)]


class Levels(Block):
    """Node labels of topology levels, where they differ from those that the operator was installed with."""

    host: LabelKey | None = None
    """Label whose value is the host of a node."""
    rack: LabelKey | None = None
    """Label whose value is the rack of a node: one switch."""
    block: LabelKey | None = None
    """Label whose value is the block of a node: some racks."""
    zone: LabelKey | None = None
    """Label whose value is the zone of a node."""

    def over(self, levels: Mapping[str, str]) -> dict[str, str]:
        """A level map with these labels laid over it."""
        return dict(levels) | self.model_dump(exclude_none=True)


class TopologyConstraint(Block):
    """Where the prefill and decode pods of a group are packed, so that KV cache has a short way."""

    model_config = rules(
        cel(
            f"self.packDomain in ['host', 'rack', 'block', 'zone'] || self.packDomain.matches('{_LABEL_KEY}')",
            "'packDomain \"' + self.packDomain + '\" is no level: use host, rack, block, zone,"
            " or the key of a node label with its prefix, such as example.com/rack'",
            field=".packDomain",
        )
    )

    pack_domain: Annotated[str, Field(min_length=1, max_length=317)]
    """host, rack, block or zone, or the key of a node label such as `example.com/rack`: the pods of a group go where
    this label has one value."""
    mode: PackMode = PackMode.PREFERRED
    """Preferred: pods that find no room in the domain run in another one. Required: they wait."""
    levels: Levels = Levels()
    """Node labels of the levels, for this resource alone."""

    @field_validator("pack_domain")
    @classmethod
    def _is_a_level_or_a_key(cls, value: str) -> str:
        if value not in ("host", "rack", "block", "zone") and not re.fullmatch(_LABEL_KEY, value):
            raise ValueError("use host, rack, block, zone, or the key of a node label with its prefix")
        return value


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
    """vllm-router: vLLM's router. smg: the SGLang model gateway. none: you bring your own. Default: vllm-router."""
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


class Rollout(Block):
    """How many pods of a role may be replaced at once."""

    model_config = rules(
        cel(
            "!(has(self.maxSurge) && has(self.maxUnavailable)"
            " && string(self.maxSurge) in ['0', '0%'] && string(self.maxUnavailable) in ['0', '0%'])",
            "'maxSurge and maxUnavailable must not both be 0: no pod could ever be replaced'",
            field=".maxUnavailable",
        )
    )

    max_unavailable: IntOrPercent | None = None
    """Pods of a role that may be missing during a rollout. Default: 1, or 0 while the role has one replica."""
    max_surge: IntOrPercent | None = None
    """Pods of a role that may be there in addition. Default: 0, since GPU nodes seldom have room to spare, or 1 while
    the role has one replica."""


_TENSOR = "(has(self.{role}) && has(self.{role}.parallelism) ? self.{role}.parallelism.tensor : 1)"
_PREFILL_TENSOR = _TENSOR.format(role="prefill")
_DECODE_TENSOR = _TENSOR.format(role="decode")


class Spec(Block):
    """What to serve, and how."""

    model_config = rules(
        # https://docs.vllm.ai, NixlConnector: a decode rank reads from one prefill rank, never from several.
        cel(
            f"self.engine.kind != 'vllm' || {_DECODE_TENSOR} % {_PREFILL_TENSOR} == 0",
            "'decode.parallelism.tensor (%d) must be a multiple of prefill.parallelism.tensor (%d) with engine vllm'"
            f".format([{_DECODE_TENSOR}, {_PREFILL_TENSOR}])",
        ),
        cel(
            "!(self.engine.kind == 'vllm' && has(self.router) && has(self.router.kind) && self.router.kind == 'smg')",
            "'router.kind smg cannot pair vllm pods: over HTTP it speaks the SGLang protocol only;"
            " use vllm-router, or engine.kind custom with an SGLang image'",
        ),
    )

    model: Model
    """The model to serve."""
    engine: Engine
    """The inference engine, common to prefill and decode."""
    accelerator: Accelerator = Accelerator()
    """The extended resource that a tensor-parallel rank takes."""
    prefill: Prefill = Prefill()
    """The role that computes the KV cache of prompts."""
    decode: Decode = Decode()
    """The role that generates tokens."""
    router: Router = Router()
    """The router that clients call."""
    groups: Annotated[int, Field(ge=1, le=100)] = 1
    """Sets of prefill and decode pods that exchange KV cache, each with Deployments and autoscalers of its own.
    `replicas` and `autoscaling` are those of one group."""
    topology_constraint: TopologyConstraint | None = None
    """Pack the prefill and decode pods of each group into one topology domain. Default: pods run anywhere."""
    rollout: Rollout = Rollout()
    """How many pods of a role may be replaced at once."""
    paused: bool = False
    """true: the operator changes nothing that belongs to this resource until it is false again."""

    @property
    def has_unchecked_fields(self) -> bool:
        """Whether it holds what goes into a pod as it is, and only the API server can judge there."""
        passed_on: list[object] = [
            self.engine.env,
            self.prefill.env,
            self.decode.env,
            self.model.token_secret,
        ]
        passed_on.append(self.accelerator.resource != Accelerator().resource)
        for role in (self.prefill, self.decode, self.router):
            passed_on += [role.resources.requests, role.resources.limits, role.pod_template.overlay]
        return any(passed_on)
