"""What the operator read: the live children of a resource."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from disagg.api.names import Workload, child_name

ObjectKey = tuple[str, str]
"""Kind and name of an object in the resource's namespace."""


def key_of(obj: dict[str, Any]) -> ObjectKey:
    """Kind and name of an object."""
    return obj["kind"], obj["metadata"]["name"]


@dataclass(frozen=True)
class Observed:
    """Live objects by kind and name.

    Attributes:
        resource: Name of the resource.
        children: The objects that are labelled as this resource's.
    """

    resource: str
    children: dict[ObjectKey, dict[str, Any]] = field(default_factory=dict)

    def deployment(self, workload: Workload) -> dict[str, Any] | None:
        """The live Deployment of a role in a group."""
        return self.children.get(("Deployment", child_name(self.resource, workload)))

    def autoscaler(self, workload: Workload) -> dict[str, Any] | None:
        """The live HorizontalPodAutoscaler of a role in a group."""
        return self.children.get(("HorizontalPodAutoscaler", child_name(self.resource, workload)))
