"""The decisions that `disagg.decide` takes and `disagg.build` carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from disagg.api.names import Workload


@dataclass(frozen=True)
class Template:
    """A pod template and where it comes from.

    Attributes:
        body: Metadata and spec of a pod.
        revision: Revision of the renderer that made it.
        inputs: Hash over the fields of the resource that it was rendered from.
    """

    body: dict[str, Any]
    revision: int
    inputs: str


@dataclass(frozen=True)
class WorkloadDecision:
    """How a Deployment is applied.

    Attributes:
        template: The pod template.
        replicas: Count to apply, or None when the count is somebody else's (an HPA's, or a person's).
        seed: Count that another field manager has to hold before the operator lets go of it, or None.
        max_surge: Pods in addition during a rollout, count or percentage.
        max_unavailable: Pods missing during a rollout, count or percentage.
    """

    template: Template
    replicas: int | None
    seed: int | None
    max_surge: int | str
    max_unavailable: int | str


@dataclass(frozen=True)
class Decisions:
    """All decisions about a resource, by role and group."""

    workloads: Mapping[Workload, WorkloadDecision]
