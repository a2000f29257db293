"""The spec of a `DisaggregatedInference`, as users write it.

These models are the only source: the CRD is generated from them (`disagg.api.crd`), descriptions and rules included.
A field is here only when the operator acts on it. Defaults that a later release may change are not schema defaults,
since those freeze in stored objects: they are `None` here and resolved where the object is built.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from disagg.api.engine import Engine
from disagg.api.fields import Block, IntOrPercent, cel, rules
from disagg.api.kv_transfer import KVTransfer
from disagg.api.model import Model
from disagg.api.pair import PAIR_RULES
from disagg.api.roles import Accelerator, Decode, Prefill
from disagg.api.router import Router
from disagg.api.topology_constraint import TopologyConstraint


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


class Spec(Block):
    """What to serve, and how."""

    model_config = rules(*PAIR_RULES)

    model: Model
    """The model to serve."""
    engine: Engine
    """The inference engine, common to prefill and decode."""
    accelerator: Accelerator = Accelerator()
    """The extended resource that a rank takes. A role may have one of its own."""
    kv_transfer: KVTransfer | None = None
    """How the KV cache moves from prefill to decode. Default: NIXL over TCP, which every cluster has and few want."""
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
            self.kv_transfer,
            self.accelerator.resource != Accelerator().resource,
        ]
        for engine_role in (self.prefill, self.decode):
            passed_on += [engine_role.node_selector, engine_role.accelerator]
        for role in (self.prefill, self.decode, self.router):
            passed_on += [role.resources.requests, role.resources.limits, role.pod_template.overlay]
        return any(passed_on)
