"""The picture as data: domains, their nodes, and who has which accelerators there. Drawn by `terminal` and `svg`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from disagg.api.names import RoleName
from disagg.topology.groups import GroupKey
from disagg.topology.levels import PackLevel
from disagg.topology.nodes import Node
from disagg.view.snapshot import Owner, PodUse, Snapshot

_LONG_NAME = 20


class NodeState(StrEnum):
    """Whether a node takes pods."""

    READY = "ready"
    CORDONED = "cordoned"
    NOT_READY = "not ready"


class Block(NamedTuple):
    """Accelerators of one pod. Which of the node's they are, nobody knows but the kubelet.

    Attributes:
        owner: Role and group, or None for a pod that is no group's.
        size: How many.
    """

    owner: Owner | None
    size: int


@dataclass(frozen=True)
class NodeView:
    """A node.

    Attributes:
        name: Its name.
        total: Accelerators that pods may have.
        state: Whether it takes pods.
        blocks: What pods have of them: groups first, others last.
    """

    name: str
    total: int
    state: NodeState = NodeState.READY
    blocks: tuple[Block, ...] = ()

    @cached_property
    def used(self) -> int:
        """Accelerators that pods have. More than there are, if some have failed under them."""
        return sum(block.size for block in self.blocks)

    @property
    def unused(self) -> int:
        """Accelerators that no pod has."""
        return max(self.total - self.used, 0)

    @property
    def free(self) -> int:
        """Those of them that a new pod could have."""
        return self.unused if self.state is NodeState.READY else 0


@dataclass(frozen=True)
class DomainView:
    """A domain.

    Attributes:
        name: Value of the node label; None for the nodes that lack it.
        within: The next wider domain, if its level has a label and nodes carry it.
        nodes: Its nodes, sorted.
    """

    name: str | None
    within: str | None
    nodes: tuple[NodeView, ...]

    @cached_property
    def total(self) -> int:
        """Accelerators."""
        return sum(node.total for node in self.nodes)

    @cached_property
    def used(self) -> int:
        """Accelerators that pods have."""
        return sum(node.used for node in self.nodes)

    @cached_property
    def free(self) -> int:
        """Accelerators that new pods could have."""
        return sum(node.free for node in self.nodes)

    @cached_property
    def out_of_reach(self) -> int:
        """Accelerators that no pod has, on nodes that take none."""
        return sum(node.unused - node.free for node in self.nodes)

    @property
    def largest_free(self) -> int:
        """The most that are free on one node: the largest pod that finds room."""
        return max((node.free for node in self.nodes), default=0)


@dataclass
class GroupView:
    """A group, for the legend.

    Attributes:
        key: The group.
        number: Its place among all groups: stands for its letter and its colour.
        used: Accelerators by role.
        domains: Accelerators by domain; under None those on nodes without the label.
        pending: Pods without a node, by role.
    """

    key: GroupKey
    number: int
    used: Counter[RoleName] = field(default_factory=Counter)
    domains: Counter[str | None] = field(default_factory=Counter)
    pending: Mapping[RoleName, int] = field(default_factory=dict)


class Names(NamedTuple):
    """What nodes are called where there is little room.

    Attributes:
        short: By name.
        pattern: How the names look from which something was left out, with * for what is left; * if nothing was.
    """

    short: Mapping[str, str]
    pattern: str


@dataclass(frozen=True)
class Picture:
    """The picture.

    Attributes:
        resource: The extended resource that is shown.
        others: Further accelerators that nodes have.
        level: What a domain is called, such as `rack`.
        key: The node label whose values are the domains.
        domains: Sorted; nodes without the label come last.
        groups: Groups that have accelerators or wait for a node, sorted.
        left_out: Nodes without accelerators that are not shown.
    """

    resource: str
    others: tuple[str, ...]
    level: str
    key: str
    domains: tuple[DomainView, ...]
    groups: tuple[GroupView, ...]
    left_out: int

    @property
    def total(self) -> int:
        """Accelerators."""
        return sum(domain.total for domain in self.domains)

    @property
    def free(self) -> int:
        """Accelerators that new pods could have."""
        return sum(domain.free for domain in self.domains)

    @property
    def out_of_reach(self) -> int:
        """Accelerators that no pod has, on nodes that take none."""
        return sum(domain.out_of_reach for domain in self.domains)

    @property
    def foreign(self) -> int:
        """Accelerators of pods that are no group's."""
        return sum(
            block.size
            for domain in self.domains
            for node in domain.nodes
            for block in node.blocks
            if block.owner is None
        )

    @cached_property
    def numbers(self) -> dict[GroupKey, int]:
        """Number of each group."""
        return {group.key: group.number for group in self.groups}

    @cached_property
    def names(self) -> Names:
        """What the nodes are called."""
        return short_names(node.name for domain in self.domains for node in domain.nodes)

    def sections(self) -> list[tuple[str | None, list[DomainView]]]:
        """The domains by the wider domain that they are in."""
        found: dict[str | None, list[DomainView]] = {}
        for domain in self.domains:
            found.setdefault(domain.within, []).append(domain)
        return list(found.items())


def picture(  # noqa: PLR0913 - what to draw, and how
    snapshot: Snapshot,
    *,
    resource: str,
    level: str,
    pack_level: PackLevel,
    others: Iterable[str] = (),
    all_nodes: bool = False,
) -> Picture:
    """The picture of a cluster.

    Args:
        snapshot: The cluster.
        resource: The extended resource to show.
        level: The level that was asked for, or a label key.
        pack_level: Its label, and that of the next wider level.
        others: Further accelerators that nodes have.
        all_nodes: Whether to show nodes that have no such resource too.
    """
    members: dict[str, list[Node]] = {}
    left_out = 0
    for node in snapshot.nodes:
        if not all_nodes and not node.allocatable.get(resource) and not _uses(snapshot, node, resource):
            left_out += 1
            continue
        members.setdefault(node.labels.get(pack_level.key, ""), []).append(node)
    domains = [
        DomainView(
            name=name or None,
            within=_within(nodes, pack_level.wider_key) if name else None,
            nodes=tuple(
                _node(node, snapshot.pods_on(node.name), resource)
                for node in sorted(nodes, key=lambda node: natural(node.name))
            ),
        )
        for name, nodes in members.items()
    ]
    domains.sort(
        key=lambda domain: (domain.name is None, natural(domain.within or ""), natural(domain.name or ""))
    )
    return Picture(
        resource=resource,
        others=tuple(other for other in others if other != resource),
        level="domain" if "/" in level else level,
        key=pack_level.key,
        domains=tuple(domains),
        groups=_groups(snapshot, domains),
        left_out=left_out,
    )


def natural(text: str) -> list[int | str]:
    """A key that sorts rack-2 before rack-10."""
    # Every second part is a number, so that numbers are compared with numbers alone.
    return [int(part) if index % 2 else part for index, part in enumerate(re.split(r"([0-9]+)", text))]


def short_names(names: Iterable[str]) -> Names:
    """Names for a narrow place: long ones without what all of them begin and end with."""
    found = sorted(set(names))
    if len(found) > 1 and max(map(len, found)) > _LONG_NAME:
        start = _common([re.split(r"(?<=[-.])", name) for name in found])
        end = _common([re.split(r"(?=[-.])", name)[::-1] for name in found])
        if all(start + end < len(name) for name in found):
            short = {name: name[start : len(name) - end] for name in found}
            return Names(short, f"{found[0][:start]}*{found[0][len(found[0]) - end :]}")
    return Names({name: name for name in found}, "*")


def _common(parts: list[list[str]]) -> int:
    length = 0
    for same in zip(*parts, strict=False):
        if len(set(same)) > 1:
            break
        length += len(same[0])
    return length


def _uses(snapshot: Snapshot, node: Node, resource: str) -> bool:
    return any(name == resource for pod in snapshot.pods_on(node.name) for name, _ in pod.devices)


def _within(nodes: list[Node], wider_key: str | None) -> str | None:
    return (
        min((node.labels[wider_key] for node in nodes if node.labels.get(wider_key)), default=None)
        if wider_key
        else None
    )


def _node(node: Node, pods: list[PodUse], resource: str) -> NodeView:
    blocks = [
        Block(pod.owner, -(-amount // 1000))
        for pod in pods
        for name, amount in pod.devices
        if name == resource
    ]
    state = NodeState.CORDONED if node.unschedulable else NodeState.READY
    return NodeView(
        name=node.name,
        total=node.allocatable.get(resource, 0) // 1000,
        state=state if node.ready else NodeState.NOT_READY,
        blocks=tuple(sorted(blocks, key=_order)),
    )


def _order(block: Block) -> tuple[bool, tuple[GroupKey, bool] | tuple[()], int]:
    if block.owner is None:
        return True, (), -block.size
    return False, (block.owner.group, block.owner.role is not RoleName.PREFILL), -block.size


def _groups(snapshot: Snapshot, domains: list[DomainView]) -> tuple[GroupView, ...]:
    views = {key: GroupView(key, 0, pending=snapshot.inventory.pods(key).pending) for key in snapshot.groups}
    for domain in domains:
        for node in domain.nodes:
            for owner, size in node.blocks:
                if owner is not None:
                    views[owner.group].used[owner.role] += size
                    views[owner.group].domains[domain.name] += size
    shown = sorted(
        (view for view in views.values() if view.used or any(view.pending.values())),
        key=lambda view: view.key,
    )
    for number, view in enumerate(shown):
        view.number = number
    return tuple(shown)
