"""The decisions that `disagg.decide` takes and `disagg.build` carries out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from disagg.api.names import RoleName, Workload
from disagg.api.status import Reason
from disagg.api.topology_constraint import PackMode
from disagg.topology.capacity import DomainFit
from disagg.topology.claims import Claim


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


class Mechanism(StrEnum):
    """What keeps the pods of a group together."""

    POD_AFFINITY = "PodAffinity"
    POD_GROUP = "PodGroup"


LabelValue = Annotated[str, Field(max_length=63, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")]


@dataclass(frozen=True)
class Placement:
    """Where a group is packed, and how. It is part of the pod templates: another one restarts pods.

    Attributes:
        key: Key of the node label whose value is the domain.
        mode: Whether pods that find no room in the domain run elsewhere or wait.
        mechanism: What keeps the group together.
        first: The role whose pods are placed first: those that are hardest to place.
        domain: The domain that pods are steered to, or None if nodes are not known.
        wider_key: Key of the next wider level's node label, or None.
        wider_domain: Value of that label in the domain, or None.
        nodes: Hostnames of the nodes of the domain that the pods of the first role prefer, so that the other role's find
            room beside them. Empty if they do, wherever the first ones go.
        within: The only domains that pods may run in, or empty for all: in a large cluster the scheduler does not see a
            preference for one of many nodes.
        moves: How often the group had to leave a domain in which it could not live.
        asked: The level that the user has asked for, whatever label key that was then.
    """

    key: Annotated[str, Field(max_length=317)]
    mode: PackMode
    mechanism: Mechanism
    first: RoleName
    domain: LabelValue | None = None
    wider_key: str | None = None
    wider_domain: LabelValue | None = None
    nodes: tuple[LabelValue, ...] = ()
    within: tuple[LabelValue, ...] = ()
    moves: int = 0
    asked: str = ""

    @property
    def identity(self) -> str:
        """Value of the label by which pods of the group attract each other.

        It changes with each move, so that pods of a new domain are not drawn to those of the old one, and with nothing
        else, so that pods of a new template stay with those that they replace.
        """
        return hashlib.sha256(f"{self.key}={self.domain} {self.moves}".encode()).hexdigest()[:8]

    def to_json(self) -> str:
        """The placement as it is kept on the Deployments."""
        fields = {name: value for name, value in asdict(self).items() if value}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> Placement | None:
        """The placement that `to_json` wrote, or None if `text` is nothing of the kind: anybody may edit it."""
        try:
            return _PLACEMENT.validate_json(text or "", strict=True)
        except ValidationError:
            return None


_PLACEMENT = TypeAdapter(Placement)


@dataclass(frozen=True)
class GroupDecision:
    """Where a group is to be, and what that was decided on.

    Attributes:
        placement: What its pods are told, or None to leave them to the scheduler.
        current: The domain that most of its pods run in, else the one that they are steered to.
        min_count: Pods that a PodGroup places together or not at all.
        obstacle: Reason and message of what keeps the operator from knowing better, or None.
        fit: What the domain of the group has room for, or None if that is not known.
        best: Where nothing holds the group: the domain that lacks least.
        held: Workloads that wait for others of the group to be placed; they are left as they are.
        demand: Pods that are wanted now, by role.
        claim: What it takes of its domain, for the decisions about others.
    """

    placement: Placement | None = None
    current: str | None = None
    min_count: int = 1
    obstacle: tuple[Reason, str] | None = None
    fit: DomainFit | None = None
    best: DomainFit | None = None
    held: frozenset[Workload] = frozenset()
    demand: Mapping[RoleName, int] = field(default_factory=dict)
    claim: Claim | None = None


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
    """All decisions about a resource.

    Attributes:
        workloads: By role and group; without those that are held.
        groups: By number; empty without a topologyConstraint.
    """

    workloads: Mapping[Workload, WorkloadDecision]
    groups: Mapping[int, GroupDecision] = field(default_factory=dict)

    @property
    def held(self) -> frozenset[Workload]:
        """Workloads that are left as they are, whatever that is."""
        return frozenset().union(*(group.held for group in self.groups.values()))
