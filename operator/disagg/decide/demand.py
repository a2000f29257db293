"""How many pods of which shape a group is to have: what its domain must have room for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from disagg.api.names import ENGINE_ROLES, RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.api.roles import Autoscaling
from disagg.decide.decisions import Template
from disagg.decide.observed import Observed
from disagg.topology.capacity import GroupDemand, RoleDemand
from disagg.topology.claims import weight
from disagg.topology.eligibility import PodShape, shape_of


@dataclass(frozen=True)
class Demand:
    """The pods of a group.

    Attributes:
        resource: The resource.
        group: Number of the group.
        observed: The live children of the resource.
        rendered: Pod templates without any placement.
    """

    resource: DisaggregatedInference
    group: int
    observed: Observed
    rendered: Mapping[Workload, Template]

    @cached_property
    def desired(self) -> dict[RoleName, int]:
        """Pods that are wanted now."""
        return {role: self._desired(role) for role in ENGINE_ROLES}

    def _desired(self, role: RoleName) -> int:
        wanted = getattr(self.resource.spec, role)
        autoscaling: Autoscaling | None = wanted.autoscaling
        deployment = self.observed.deployment(Workload(role, self.group))
        running = int(deployment["spec"].get("replicas", 1)) if deployment is not None else None
        if autoscaling is not None:
            # An autoscaler leaves a role alone that somebody has scaled to 0.
            return 0 if running == 0 else max(running or 0, autoscaling.min_replicas)
        if wanted.replicas is not None:
            return int(wanted.replicas)
        return 1 if running is None else running

    @cached_property
    def minimum(self) -> dict[RoleName, int]:
        """Pods without which the group cannot live."""
        minimum = {}
        for role in ENGINE_ROLES:
            autoscaling: Autoscaling | None = getattr(self.resource.spec, role).autoscaling
            minimum[role] = self.desired[role] if autoscaling is None else autoscaling.min_replicas
        return minimum

    def maximum(self, role: RoleName) -> int:
        """Most pods of a role."""
        autoscaling: Autoscaling | None = getattr(self.resource.spec, role).autoscaling
        return (
            self.desired[role] if autoscaling is None else max(self.desired[role], autoscaling.max_replicas)
        )

    @property
    def is_fixed(self) -> bool:
        """Whether the resource says how many pods there are, and nobody else does."""
        roles = [getattr(self.resource.spec, role) for role in ENGINE_ROLES]
        return all(
            role.replicas is not None
            if role.autoscaling is None
            else role.autoscaling.min_replicas == role.autoscaling.max_replicas
            for role in roles
        )

    @cached_property
    def shapes(self) -> dict[RoleName, PodShape]:
        """What a pod of each role takes, and where it may run.

        Raises:
            ValueError: A template of the user's has a quantity that is none.
        """
        return {role: shape_of(self.rendered[Workload(role, self.group)].body) for role in ENGINE_ROLES}

    @cached_property
    def now(self) -> GroupDemand:
        """What must find room now: what is wanted, and of a role that sleeps what it wakes with."""
        return self.at_least({role: max(self.desired[role], self.minimum[role]) for role in ENGINE_ROLES})

    def at_least(self, minimum: Mapping[RoleName, int]) -> GroupDemand:
        """What must find room if these are the fewest pods."""
        return GroupDemand(
            tuple(
                RoleDemand(role, self.shapes[role], minimum[role], max(self.maximum(role), minimum[role]))
                for role in ENGINE_ROLES
            )
        )

    @cached_property
    def first(self) -> RoleName:
        """The role whose pods are larger: placed last, they would find the holes that they need taken apart."""
        return max(reversed(ENGINE_ROLES), key=lambda role: weight(self.shapes[role].requests))
