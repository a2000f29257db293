"""How things are called and told apart, in the terminal and in the SVG alike. A group has a letter and a colour.

Colour never speaks alone: prefill has the capital letter and the dark shade, decode the small one and the light shade.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import ascii_uppercase
from typing import NamedTuple

from disagg.api.names import RoleName
from disagg.topology.groups import GroupKey
from disagg.view.picture import DomainView, GroupView, NodeState, NodeView, Picture

IN_A_LINE = 16
"""Accelerators of a node that stand side by side."""


class Shade(NamedTuple):
    """A fill, and the ink that can be read on it."""

    fill: str
    ink: str


OTHER = Shade("#8b929c", "#ffffff")
"""Pods that are no group's."""

PALETTE: tuple[Mapping[RoleName, Shade], ...] = tuple(
    {RoleName.PREFILL: Shade(dark, "#ffffff"), RoleName.DECODE: Shade(light, "#17202c")}
    for dark, light in (
        ("#1d5fd0", "#8fc1ff"),
        ("#c2530c", "#ffbe85"),
        ("#14804a", "#86e0ae"),
        ("#8333c4", "#d9b5fb"),
        ("#c01f5b", "#ffa9c8"),
        ("#0b7a85", "#74dce6"),
        ("#8a6a00", "#f2d65c"),
        ("#b3261e", "#ff9d94"),
        ("#4f7a10", "#c0e277"),
    )
)


def letter(number: int, role: RoleName) -> str:
    """The letter of a role of the group with this number."""
    found = ascii_uppercase[number % len(ascii_uppercase)]
    return found if role is RoleName.PREFILL else found.lower()


def shade(number: int, role: RoleName) -> Shade:
    """The colour of a role of the group with this number."""
    return PALETTE[number % len(PALETTE)][role]


def places(group: GroupView) -> str:
    """The domains of a group, the fullest first."""
    ordered = sorted(group.domains.items(), key=lambda item: (-item[1], item[0] or ""))
    names = [(name or "no label", size) for name, size in ordered]
    if len(names) == 1:
        return names[0][0]
    return ", ".join(f"{name} ({size})" for name, size in names)


def waiting(group: GroupView) -> str:
    """The pods of a group that have no node, or nothing."""
    counts = listed(f"{count} {role}" for role, count in group.pending.items() if count)
    return f"{counts} without a node" if counts else ""


def listed(parts: Iterable[str]) -> str:
    """Parts in a line."""
    return ", ".join(parts)


def plural(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def headline(picture: Picture) -> str:
    """The picture in a line."""
    named = sum(domain.name is not None for domain in picture.domains)
    nodes = sum(len(domain.nodes) for domain in picture.domains)
    parts = [
        f"{picture.free} of {picture.total} free",
        *([f"{picture.out_of_reach} more unused on nodes that take no pods"] if picture.out_of_reach else []),
        plural(named, picture.level),
        plural(nodes, "node"),
        picture.key,
        *([f"nodes {picture.names.pattern}"] if picture.names.pattern != "*" else []),
    ]
    return listed(parts)


def domain_name(domain: DomainView, picture: Picture) -> str:
    """What a domain is called."""
    return f"no {picture.level} label" if domain.name is None else domain.name


def room(domain: DomainView) -> str:
    """What a domain has free."""
    return f"{domain.free} of {domain.total} free"


def node_note(node: NodeView) -> str:
    """What stands behind a node: what it has free, or why that is of no use."""
    if node.state is not NodeState.READY:
        return str(node.state)
    if node.used > node.total:
        return f"{node.used - node.total} too many"
    return str(node.free or "-")


def group_name(key: GroupKey) -> str:
    """What a group is called."""
    return f"{key.namespace}/{key.name} group {key.group}"
