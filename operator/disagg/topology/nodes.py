"""A node, reduced to what decides whether a pod may run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from disagg.topology.amounts import Amounts, parse


class Taint(NamedTuple):
    """A taint that keeps pods away."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    Attributes:
        name: Its name.
        labels: Its labels.
        allocatable: What its pods may take together.
        taints: Those that keep pods away; PreferNoSchedule only asks to.
        unschedulable: Whether it is cordoned.
        ready: Whether its condition Ready is True.
    """

    name: str
    labels: Mapping[str, str]
    allocatable: Amounts
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True


def parse_node(raw: Mapping[str, Any]) -> Node:
    """The node that the API server describes."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    return Node(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        allocatable=parse(status.get("allocatable") or {}),
        taints=tuple(
            Taint(taint["key"], taint.get("value") or "", taint["effect"])
            for taint in spec.get("taints") or ()
            if taint["effect"] in ("NoSchedule", "NoExecute")
        ),
        unschedulable=bool(spec.get("unschedulable")),
        ready=any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in status.get("conditions") or ()
        ),
    )
