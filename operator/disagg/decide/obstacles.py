"""What keeps the operator from looking ahead for a domain, and what is to be said of it."""

from __future__ import annotations

from disagg.api.names import ENGINE_ROLES, Workload
from disagg.api.status import Reason
from disagg.decide.demand import Demand
from disagg.topology.inventory import Inventory
from disagg.topology.levels import PackLevel

Obstacle = tuple[Reason, str]
"""Reason and message of the condition `Packed`."""

NODES_UNKNOWN: Obstacle = (
    Reason.NODE_ACCESS_DENIED,
    (
        "the operator may not read nodes: pods of the group attract each other,"
        " but nothing looks ahead for a domain that holds them all"
    ),
)

_DEFAULT_SCHEDULER = "default-scheduler"
_KUEUE = "kueue.x-k8s.io/queue-name"


def of_templates(wanted: Demand) -> Obstacle | None:
    """Pods that are not the default scheduler's to place, or that are none."""
    for role in ENGINE_ROLES:
        body = wanted.rendered[Workload(role, wanted.group)].body
        scheduler = body["spec"].get("schedulerName", _DEFAULT_SCHEDULER)
        if scheduler != _DEFAULT_SCHEDULER:
            return Reason.OTHER_SCHEDULER, f"{role} pods are {scheduler}'s to place: nothing is steered"
        if _KUEUE in body["metadata"].get("labels", {}):
            return Reason.OTHER_SCHEDULER, f"{role} pods are Kueue's to place: nothing is steered"
    try:
        hash(tuple(wanted.shapes.values()))
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        # An overlay may be anything, and the API server refuses it by name.
        return Reason.PLACEMENT_PENDING, f"the pod template cannot be read: {error}"
    return None


def of_level(pack_domain: str) -> Obstacle:
    """A level that stands for no node label."""
    return Reason.LEVEL_UNKNOWN, (
        f"no node label is known for level {pack_domain}: set topologyConstraint.levels.{pack_domain},"
        f" or topology.levels.{pack_domain} of the chart"
    )


def of_nodes(inventory: Inventory, level: PackLevel, pack_domain: str, wanted: Demand) -> Obstacle | None:
    """Nodes that are not known, not labelled, or not for these pods."""
    if not inventory.knows_nodes:
        return NODES_UNKNOWN
    if not inventory.domains(level.key):
        return Reason.NO_TOPOLOGY_LABELS, f"no node carries the label {level.key} ({pack_domain})"
    nowhere = [role for role, shape in wanted.shapes.items() if not inventory.eligible(shape)]
    if nowhere:
        return Reason.INSUFFICIENT_DOMAIN_CAPACITY, (
            f"no node that is ready takes {' or '.join(nowhere)} pods:"
            " look at their node selector, affinity and tolerations, and at cordoned nodes"
        )
    return None
