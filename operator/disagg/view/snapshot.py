"""The cluster at one moment: an inventory, and beside it which pod takes which accelerators.

The inventory keeps sums, because the operator must hold a whole cluster for ever. A picture is drawn once, and shows the
accelerators of each pod side by side: only then does one see that free ones are scattered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from disagg.api.names import RoleName
from disagg.topology.amounts import Requests, freeze, pod_requests
from disagg.topology.claims import is_accelerator
from disagg.topology.groups import GroupKey, group_pod
from disagg.topology.inventory import Inventory
from disagg.topology.nodes import Node

_DONE = ("Succeeded", "Failed")


class Owner(NamedTuple):
    """A role of a group."""

    group: GroupKey
    role: RoleName


class PodUse(NamedTuple):
    """A bound pod that takes devices.

    Attributes:
        owner: Role and group, or None for a pod that is no group's.
        devices: What it takes of each.
    """

    owner: Owner | None
    devices: Requests


class Snapshot:
    """Nodes and pods. Give it all nodes and all pods once, in any order.

    Attributes:
        inventory: What the operator would know of them.
        groups: Groups that have pods.
    """

    def __init__(self) -> None:
        self.inventory = Inventory()
        self.groups: set[GroupKey] = set()
        self._names: set[str] = set()
        self._pods: dict[str, list[PodUse]] = {}

    def put_node(self, raw: Mapping[str, Any]) -> None:
        """Take over a node, as the API server describes it."""
        self.inventory.put_node(raw)
        self._names.add(raw["metadata"]["name"])

    def put_pod(self, raw: Mapping[str, Any]) -> None:
        """Take over a pod, as the API server describes it."""
        status = raw.get("status") or {}
        if status.get("phase") in _DONE:
            return
        self.inventory.put_pod(raw)
        own = group_pod(raw)
        if own is not None:
            self.groups.add(own.group)
        node = raw["spec"].get("nodeName")
        if not node:
            return
        requests = pod_requests(raw["spec"], status)
        devices = freeze({name: amount for name, amount in requests.items() if is_accelerator(name)})
        if devices:
            owner = None if own is None else Owner(own.group, own.role)
            self._pods.setdefault(node, []).append(PodUse(owner, devices))

    @property
    def nodes(self) -> list[Node]:
        """All nodes, in no order."""
        found = (self.inventory.node(name) for name in self._names)
        return [node for node in found if node is not None]

    def pods_on(self, node: str) -> list[PodUse]:
        """Pods on a node that take devices."""
        return self._pods.get(node, [])
