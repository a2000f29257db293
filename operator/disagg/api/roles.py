"""The roles prefill and decode: how many pods, on what, and how each is spread over accelerators."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from disagg.api.fields import Arguments, Block, Environment, Image, PodTemplate, Resources, cel, rules

Replicas = Annotated[int, Field(ge=0, le=10000)]

MAX_ACCELERATORS = 16
"""No node has more of them in one operating system that a pod could be given."""


class Accelerator(Block):
    """The extended resource that a rank takes."""

    resource: Annotated[str, Field(min_length=1, max_length=317, pattern=r"^[^/\s]+/[^/\s]+$")] = (
        "nvidia.com/gpu"
    )
    """Name of the extended resource, such as nvidia.com/gpu or amd.com/gpu."""
    per_rank: Annotated[int, Field(ge=0, le=16)] = 1
    """How many of it a rank takes. 0 for engines that run on the CPU, and for simulators."""


class Parallelism(Block):
    """How one replica is spread over accelerators: it takes tensor x pipeline x data of them."""

    model_config = rules(
        cel(
            f"self.tensor * self.pipeline * self.data <= {MAX_ACCELERATORS}",
            "'tensor * pipeline * data is %d: a replica is one pod on one node, and no node has more than"
            f" {MAX_ACCELERATORS} accelerators. Replicas of several pods are not supported yet'"
            ".format([self.tensor * self.pipeline * self.data])",
        )
    )

    tensor: Annotated[int, Field(ge=1, le=64)] = 1
    """Tensor-parallel size: accelerators that hold a slice of each layer."""
    pipeline: Annotated[int, Field(ge=1, le=64)] = 1
    """Pipeline-parallel size: each stage holds some of the layers."""
    data: Annotated[int, Field(ge=1, le=64)] = 1
    """Data-parallel size: attention is replicated, each rank with a KV cache of its own."""
    expert: bool = False
    """Spread the experts of a mixture-of-experts model over all accelerators of the pod."""

    @property
    def ranks(self) -> int:
        """Ranks of one replica."""
        return self.tensor * self.pipeline * self.data


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
    accelerator: Accelerator | None = None
    """The extended resource that a rank of this role takes, instead of spec.accelerator."""
    node_selector: Annotated[dict[str, str], Field(max_length=32)] | None = None
    """Labels of the nodes that this role runs on, such as those with one kind of accelerator."""
    parallelism: Parallelism = Parallelism()
    """How one replica is spread over accelerators."""
    resources: Resources = Resources()
    """Requests and limits of the engine container, besides the accelerators."""
    drain_seconds: Annotated[int, Field(ge=0, le=86400)] | None = None
    """How long a pod that is being stopped goes on with the requests it has. Default: 300 for decode; for prefill a minute
    for the longest prompt, and the time for which decode may still pull KV cache (kvTransfer.leaseSeconds)."""
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
