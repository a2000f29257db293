"""Events: what changed between two statuses, for whoever runs `kubectl describe`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from disagg.api.status import Condition, ConditionType, Reason, Status

_QUIET = (Reason.NO_TOPOLOGY_CONSTRAINT, Reason.SCALED_TO_ZERO, Reason.CONSTRAINT_CHANGED)
"""Reasons of Packed that are no news: the user has just asked for it."""
_FAILING = (Reason.CRASH_LOOP_BACK_OFF, Reason.IMAGE_PULL_BACK_OFF, Reason.CREATE_CONTAINER_ERROR)
"""Reasons of Ready that somebody has to see to, long before the Deployment gives up."""


@dataclass(frozen=True)
class Event:
    """An event to record on the resource.

    Attributes:
        type: Normal or Warning.
        reason: Why, in one word.
        message: Why, for people.
    """

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def events(previous: Status, current: Status) -> list[Event]:
    """Events for the transitions from `previous` to `current`: few, and never one for a count that moved."""
    found: list[Event] = []
    stalled, ready = current.condition(ConditionType.STALLED), current.condition(ConditionType.READY)
    if _became(previous, stalled, "True", with_reason=True) and stalled is not None:
        found.append(Event("Warning", stalled.reason, stalled.message))
    elif _became(previous, ready, "True") and ready is not None:
        found.append(Event("Normal", ready.reason, ready.message))
    elif (
        _became(previous, ready, "False", with_reason=True) and ready is not None and ready.reason in _FAILING
    ):
        found.append(Event("Warning", ready.reason, ready.message))
    packed = current.condition(ConditionType.PACKED)
    if packed is not None and packed.reason not in _QUIET:
        if _became(previous, packed, "True"):
            found.append(Event("Normal", packed.reason, packed.message))
        elif _became(previous, packed, "False", with_reason=True):
            found.append(Event("Warning", packed.reason, packed.message))
    transfer = current.condition(ConditionType.KV_COMPATIBLE)
    # What stalls the resource as well has been told.
    told = transfer is not None and stalled is not None and transfer.message == stalled.message
    if _became(previous, transfer, "False", with_reason=True) and transfer is not None and not told:
        found.append(Event("Warning", transfer.reason, transfer.message))
    paused = current.condition(ConditionType.PAUSED)
    if _became(previous, paused, "True") and paused is not None:
        found.append(Event("Normal", paused.reason, paused.message))
    return found


def _became(previous: Status, condition: Condition | None, status: str, *, with_reason: bool = False) -> bool:
    if condition is None or condition.status != status:
        return False
    before = previous.condition(ConditionType(condition.type))
    return before is None or before.status != status or (with_reason and before.reason != condition.reason)
