"""What the cluster offers, as far as decisions depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from disagg.api.resource import DisaggregatedInference
from disagg.topology.claims import Claim
from disagg.topology.groups import GroupKey, GroupPods
from disagg.topology.inventory import Inventory
from disagg.topology.levels import level_map


@dataclass(frozen=True)
class Environment:
    """The cluster.

    Attributes:
        levels: Name of a topology level -> key of the node label for it.
        pod_groups: Whether PodGroups with a topology constraint work.
        inventory: Nodes and what is taken on them, or None where nobody looks, as without a cluster. Only read.
    """

    levels: Mapping[str, str] = field(default_factory=lambda: level_map("generic", {}))
    pod_groups: bool = False
    inventory: Inventory | None = None

    def pods_of(self, resource: DisaggregatedInference, group: int) -> GroupPods | None:
        """The pods of a group, or None if nobody knows."""
        metadata = resource.metadata
        if self.inventory is None:
            return None
        return self.inventory.pods(GroupKey(metadata.namespace, metadata.name, group))

    def after(self, resource: DisaggregatedInference, group: int, claim: Claim | None) -> Environment:
        """The environment as the next decision is to see it, once `group` has this claim."""
        metadata = resource.metadata
        if self.inventory is None:
            return self
        key = GroupKey(metadata.namespace, metadata.name, group)
        return replace(self, inventory=self.inventory.with_claim(key, claim))
