from __future__ import annotations

import pytest

from disagg.api.status import Condition, ConditionType, Status
from disagg.assess.events import Event, events


def status(**conditions: str) -> Status:
    """A status with conditions such as `Ready="True Converged"`."""
    found = []
    for kind, value in conditions.items():
        holds, _, reason = value.partition(" ")
        found.append(
            Condition.model_validate(
                {
                    "type": kind,
                    "status": holds,
                    "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "reason": reason,
                    "message": f"{kind} for {reason}",
                }
            )
        )
    return Status(conditions=found)


NONE = Status()
STARTING = status(Ready="False Progressing", Stalled="False NotStalled", Paused="False NotPaused")
READY = status(Ready="True Ready", Stalled="False NotStalled", Paused="False NotPaused")
STALLED = status(Ready="False NameConflict", Stalled="True NameConflict", Paused="False NotPaused")
STALLED_OTHERWISE = status(Ready="False Forbidden", Stalled="True Forbidden", Paused="False NotPaused")
PAUSED = status(Ready="True Ready", Stalled="False NotStalled", Paused="True Paused")
STALLED_AND_PAUSED = status(Ready="False NameConflict", Stalled="True NameConflict", Paused="True Paused")

READY_EVENT = Event("Normal", "Ready", "Ready for Ready")
PAUSED_EVENT = Event("Normal", "Paused", "Paused for Paused")
STALLED_EVENT = Event("Warning", "NameConflict", "Stalled for NameConflict")
OTHER_STALLED_EVENT = Event("Warning", "Forbidden", "Stalled for Forbidden")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(NONE, STARTING, [], id="it starts"),
        pytest.param(NONE, READY, [READY_EVENT], id="it is ready at once"),
        pytest.param(STARTING, READY, [READY_EVENT], id="it becomes ready"),
        pytest.param(READY, STARTING, [], id="it is not ready any more"),
        pytest.param(STARTING, STALLED, [STALLED_EVENT], id="it stalls"),
        pytest.param(READY, STALLED, [STALLED_EVENT], id="it was ready and stalls"),
        pytest.param(STALLED, STALLED_OTHERWISE, [OTHER_STALLED_EVENT], id="it stalls for another reason"),
        pytest.param(STALLED, READY, [READY_EVENT], id="it recovers"),
        pytest.param(STALLED, STARTING, [], id="it goes on"),
        pytest.param(READY, PAUSED, [PAUSED_EVENT], id="it is paused"),
        pytest.param(STARTING, PAUSED, [READY_EVENT, PAUSED_EVENT], id="it is paused and becomes ready"),
        pytest.param(READY, STALLED_AND_PAUSED, [STALLED_EVENT, PAUSED_EVENT], id="it is paused and stalls"),
        pytest.param(PAUSED, READY, [], id="it is not paused any more"),
    ],
)
def test_events_tell_of_transitions(before: Status, after: Status, expected: list[Event]) -> None:
    assert events(before, after) == expected


@pytest.mark.parametrize("same", [NONE, STARTING, READY, STALLED, PAUSED, STALLED_AND_PAUSED])
def test_what_stays_is_no_event(same: Status) -> None:
    assert events(same, same) == []


def test_another_message_is_no_event() -> None:
    reworded = STALLED.model_copy(
        update={
            "conditions": [found.model_copy(update={"message": "2 of 4"}) for found in STALLED.conditions]
        }
    )
    assert events(STALLED, reworded) == []


def test_another_reason_to_be_ready_is_no_event() -> None:
    assert events(READY, status(Ready="True ScaledToZero", Stalled="False NotStalled")) == []


@pytest.mark.parametrize(
    "kind", [kind for kind in ConditionType if kind not in ("Ready", "Stalled", "Packed", "Paused")]
)
def test_other_conditions_are_no_events(kind: ConditionType) -> None:
    assert events(NONE, status(**{kind: "True Ready"})) == []


PACKED = status(Packed="True Packed")
PENDING = status(Packed="Unknown PlacementPending")
SPLIT = status(Packed="False Split")
FULL = status(Packed="False InsufficientDomainCapacity")
MOVING = status(Packed="False ConstraintChanged")
ASLEEP = status(Packed="True ScaledToZero")
ANYWHERE = status(Packed="True NoTopologyConstraint")

PACKED_EVENT = Event("Normal", "Packed", "Packed for Packed")
SPLIT_EVENT = Event("Warning", "Split", "Packed for Split")
FULL_EVENT = Event("Warning", "InsufficientDomainCapacity", "Packed for InsufficientDomainCapacity")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(NONE, PENDING, [], id="it is new"),
        pytest.param(PENDING, PACKED, [PACKED_EVENT], id="it is packed"),
        pytest.param(PACKED, SPLIT, [SPLIT_EVENT], id="it is split"),
        pytest.param(SPLIT, FULL, [FULL_EVENT], id="it is worse"),
        pytest.param(FULL, PACKED, [PACKED_EVENT], id="it is packed again"),
        pytest.param(PACKED, MOVING, [], id="the user moves it"),
        pytest.param(MOVING, PACKED, [PACKED_EVENT], id="it has moved"),
        pytest.param(PACKED, ASLEEP, [], id="it is put to sleep"),
        pytest.param(ASLEEP, PENDING, [], id="it is woken"),
        pytest.param(ASLEEP, PACKED, [], id="it is packed as it was"),
        pytest.param(PACKED, ANYWHERE, [], id="it may run anywhere"),
        pytest.param(NONE, ANYWHERE, [], id="it has always run anywhere"),
    ],
)
def test_events_tell_of_where_groups_are(before: Status, after: Status, expected: list[Event]) -> None:
    assert events(before, after) == expected
    assert events(after, after) == []
