from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.api.names import RoleName
from disagg.api.resource import DisaggregatedInference
from disagg.api.status import Condition, ConditionType, Reason, Status
from disagg.assess.assess import MAX_MESSAGE, assess, begin, refuse
from disagg.assess.problem import Problem
from disagg.decide.observed import Observed
from tests.unit.resources import observed, resource, running

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
STAMP, LATER_STAMP = "2026-01-02T03:04:05Z", "2026-01-02T03:09:05Z"

READY = observed(running("prefill", 4), running("decode", 2), running("router"))
STARTING = observed(running("prefill", 4, readyReplicas=1), running("decode", 2), running("router"))
GIVEN_UP = observed(
    running(
        "prefill",
        4,
        readyReplicas=1,
        conditions=[{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}],
    ),
    running("decode", 2),
    running("router"),
)
CONFLICT = Problem(Reason.NAME_CONFLICT, "Service llama-decode exists and is not this resource's")


def at_generation(generation: int, status: Status, **spec: object) -> DisaggregatedInference:
    wanted = resource(**spec)
    metadata = wanted.metadata.model_copy(update={"generation": generation})
    return wanted.model_copy(update={"metadata": metadata, "status": status})


def condition(status: Status, kind: ConditionType) -> Condition:
    found = status.condition(kind)
    assert found is not None
    return found


def summary(status: Status) -> dict[str, tuple[str, str]]:
    return {found.type: (found.status, found.reason) for found in status.conditions}


def assessed(children: Observed, problem: Problem | None = None, **spec: object) -> Status:
    return assess(resource(**spec), children, problem, NOW)


# What the conditions say


def test_a_message_is_as_long_as_somebody_reads() -> None:
    of_each_variable = Problem(Reason.REJECTED, "env is invalid; " * 5000)
    status = assessed(Observed("llama"), of_each_variable)
    found = condition(status, ConditionType.STALLED).message
    assert len(found) == MAX_MESSAGE
    assert found.endswith(" ...")
    assert (
        condition(assess(resource(), READY, CONFLICT, NOW), ConditionType.STALLED).message == CONFLICT.message
    )


@pytest.mark.parametrize(
    ("children", "problem", "ready", "reconciling", "stalled"),
    [
        pytest.param(
            observed(),
            None,
            ("False", "Progressing"),
            ("True", "Progressing"),
            ("False", "NotStalled"),
            id="nothing is there yet",
        ),
        pytest.param(
            STARTING,
            None,
            ("False", "PodsNotReady"),
            ("True", "PodsNotReady"),
            ("False", "NotStalled"),
            id="a pod is missing",
        ),
        pytest.param(
            READY, None, ("True", "Ready"), ("False", "Converged"), ("False", "NotStalled"), id="all is ready"
        ),
        pytest.param(
            GIVEN_UP,
            None,
            ("False", "ProgressDeadlineExceeded"),
            ("False", "Converged"),
            ("True", "ProgressDeadlineExceeded"),
            id="a Deployment has given up",
        ),
        pytest.param(
            READY,
            CONFLICT,
            ("False", "NameConflict"),
            ("False", "Converged"),
            ("True", "NameConflict"),
            id="the spec could not be applied",
        ),
        pytest.param(
            observed(running("prefill", 0), running("decode", 0), running("router")),
            None,
            ("True", "ScaledToZero"),
            ("False", "Converged"),
            ("False", "NotStalled"),
            id="scaled to zero",
        ),
        pytest.param(
            observed(running("prefill", 0), running("decode", 2), running("router")),
            None,
            ("True", "Ready"),
            ("False", "Converged"),
            ("False", "NotStalled"),
            id="one role is scaled to zero",
        ),
    ],
)
def test_a_resource_is_ready_or_reconciling_or_stalled(
    children: Observed,
    problem: Problem | None,
    ready: tuple[str, str],
    reconciling: tuple[str, str],
    stalled: tuple[str, str],
) -> None:
    found = summary(assessed(children, problem))
    assert (found["Ready"], found["Reconciling"], found["Stalled"]) == (ready, reconciling, stalled)


def test_each_role_has_a_condition() -> None:
    found = summary(assessed(observed(running("prefill", 4, readyReplicas=1), running("decode", 2))))
    assert found["PrefillReady"] == ("False", "PodsNotReady")
    assert found["DecodeReady"] == ("True", "Ready")
    assert found["RouterReady"] == ("False", "Progressing")


def test_conditions_come_in_their_order() -> None:
    for status in (assessed(READY), begin(resource(), NOW)):
        assert [found.type for found in status.conditions] == [str(kind) for kind in ConditionType]


def test_ready_names_each_role_that_is_not() -> None:
    message = condition(assessed(observed(running("decode", 2))), ConditionType.READY).message
    assert "prefill" in message
    assert "router" in message
    assert "decode" not in message


def test_a_problem_says_what_is_wrong_and_leaves_the_roles_as_they_are() -> None:
    status = assessed(READY, CONFLICT)
    assert condition(status, ConditionType.STALLED).message == CONFLICT.message
    assert summary(status)["PrefillReady"] == ("True", "Ready")


def test_without_a_router_the_two_other_roles_make_it_ready() -> None:
    status = assessed(observed(running("prefill"), running("decode")), router={"kind": "none"})
    assert summary(status)["Ready"] == ("True", "Ready")
    assert summary(status)["RouterReady"] == ("True", "RouterDisabled")
    assert status.endpoint is None
    assert status.roles is not None
    assert status.roles.router is None


def test_with_a_router_there_is_an_endpoint() -> None:
    assert assessed(observed()).endpoint == "http://llama-router.inference.svc"


def test_roles_have_counts() -> None:
    roles = assessed(STARTING).roles
    assert roles is not None
    assert [getattr(roles, role).ready for role in RoleName] == ["1/4", "2/2", "1/1"]


def test_autoscaling_does_not_decide_on_ready() -> None:
    found = summary(assessed(READY, prefill={"autoscaling": {"maxReplicas": 8}}))
    assert found["AutoscalingReady"] == ("False", "AutoscalerStarting")
    assert found["Ready"] == ("True", "Ready")


# Paused


def test_a_paused_resource_says_so() -> None:
    found = summary(assessed(READY, paused=True))
    assert found["Paused"] == ("True", "Paused")
    assert found["Ready"] == ("True", "Ready")
    assert summary(assessed(READY))["Paused"] == ("False", "NotPaused")


def test_a_paused_resource_does_not_reconcile() -> None:
    found = summary(assessed(STARTING, paused=True))
    assert found["Reconciling"] == ("False", "Paused")
    assert found["Ready"] == ("False", "PodsNotReady")


def test_a_new_generation_of_a_paused_resource_is_still_paused() -> None:
    paused = assessed(READY, paused=True)
    begun = begin(at_generation(2, paused, paused=True), LATER)
    assert condition(begun, ConditionType.PAUSED).status == "True"
    assert condition(begun, ConditionType.PAUSED).last_transition_time == STAMP


# Readiness has a memory, which a new generation wipes out


def test_a_ready_resource_stays_ready_without_one_pod() -> None:
    fixed: dict[str, Any] = {"prefill": {"replicas": 4}}
    ready = assessed(READY, **fixed)
    assert summary(assess(at_generation(1, ready, **fixed), STARTING, None, LATER))["Ready"][0] == "False"
    one_less = observed(running("prefill", 4, readyReplicas=3), running("decode", 2), running("router"))
    assert summary(assess(at_generation(1, ready, **fixed), one_less, None, LATER))["Ready"][0] == "True"
    assert summary(assess(at_generation(2, ready, **fixed), one_less, None, LATER))["Ready"][0] == "False"


def test_a_resource_that_was_never_ready_is_not_ready_without_one_pod() -> None:
    one_less = observed(running("prefill", 4, readyReplicas=3), running("decode", 2), running("router"))
    starting = assessed(STARTING)
    assert summary(assess(at_generation(1, starting), one_less, None, LATER))["Ready"][0] == "False"


def test_a_ready_resource_stays_ready_while_it_scales_up() -> None:
    spec = {"prefill": {"autoscaling": {"minReplicas": 2, "maxReplicas": 8}}}
    scaler = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "llama-prefill"},
        "spec": {"minReplicas": 2, "metrics": []},
    }
    others = (running("decode", 2), running("router"), scaler)
    status = assess(resource(**spec), observed(running("prefill", 2), *others), None, NOW)
    assert summary(status)["Ready"][0] == "True"
    unseen = running("prefill", 8)
    unseen["metadata"]["generation"] = 2
    unseen["status"] |= {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}
    seen = running("prefill", 8, readyReplicas=2)
    for deployment in (unseen, seen, running("prefill", 8)):
        status = assess(at_generation(1, status, **spec), observed(deployment, *others), None, LATER)
        assert summary(status)["Ready"][0] == "True"


# begin


def test_a_new_generation_is_unknown_until_it_is_looked_at() -> None:
    begun = begin(at_generation(2, assessed(READY)), LATER)
    assert begun.observed_generation == 2
    assert summary(begun) == {
        "Ready": ("Unknown", "NewGeneration"),
        "Reconciling": ("True", "NewGeneration"),
        "Stalled": ("False", "NotStalled"),
        "PrefillReady": ("Unknown", "NewGeneration"),
        "DecodeReady": ("Unknown", "NewGeneration"),
        "RouterReady": ("Unknown", "NewGeneration"),
        "AutoscalingReady": ("Unknown", "NewGeneration"),
        "Packed": ("Unknown", "NewGeneration"),
        "KVCompatible": ("Unknown", "NewGeneration"),
        "Paused": ("False", "NotPaused"),
    }


def test_a_new_generation_keeps_what_runs() -> None:
    before = assessed(READY)
    begun = begin(at_generation(2, before), LATER)
    assert (begun.roles, begun.endpoint) == (before.roles, before.endpoint)


# refuse


def refused(previous: Status) -> Status:
    metadata = at_generation(2, previous).metadata
    return refuse(metadata, previous, Problem(Reason.INVALID_SPEC, "spec.groups: too many"), LATER)


def test_a_spec_that_cannot_be_read_is_stalled() -> None:
    status = refused(Status())
    assert status.observed_generation == 2
    assert summary(status) == {
        "Ready": ("False", "InvalidSpec"),
        "Reconciling": ("False", "Converged"),
        "Stalled": ("True", "InvalidSpec"),
    }
    assert condition(status, ConditionType.STALLED).message == "spec.groups: too many"


def test_a_spec_that_cannot_be_read_leaves_all_that_is_known() -> None:
    before = assessed(READY)
    status = refused(before)
    assert (status.roles, status.endpoint) == (before.roles, before.endpoint)
    kept = condition(status, ConditionType.PREFILL_READY)
    assert kept == condition(before, ConditionType.PREFILL_READY)
    assert kept.observed_generation == 1


def test_a_spec_that_cannot_be_read_settles() -> None:
    once = refused(assessed(READY))
    assert refused(once) == once


# For any history

_COUNTS = st.integers(0, 4)
_REASONS = st.sampled_from(["NewReplicaSetAvailable", "ReplicaSetUpdated", "ProgressDeadlineExceeded"])


@st.composite
def deployments(draw: st.DrawFn, role: RoleName) -> dict[str, Any]:
    return running(
        role,
        draw(_COUNTS),
        observedGeneration=draw(st.integers(0, 1)),
        replicas=draw(_COUNTS),
        updatedReplicas=draw(_COUNTS),
        readyReplicas=draw(_COUNTS),
        conditions=[{"type": "Progressing", "status": "True", "reason": draw(_REASONS)}],
    )


CHILDREN = st.tuples(*(st.none() | deployments(role) for role in RoleName)).map(
    lambda found: observed(*(deployment for deployment in found if deployment is not None))
)
PROBLEMS = st.none() | st.sampled_from(
    [CONFLICT, Problem(Reason.REJECTED, "refused"), Problem(Reason.FORBIDDEN, "no right")]
)
STEPS = st.tuples(
    st.sampled_from(["assess", "begin", "refuse"]), st.integers(1, 2), CHILDREN, PROBLEMS, st.booleans()
)


@st.composite
def histories(draw: st.DrawFn) -> list[Status]:
    """Statuses of a resource, one after the other, with a minute between them."""
    status, statuses = Status(), []
    steps = draw(st.lists(STEPS, min_size=1, max_size=4))
    for minute, (step, generation, children, problem, paused) in enumerate(steps):
        now = NOW + timedelta(minutes=minute)
        wanted = at_generation(generation, status, paused=paused)
        if step == "assess":
            status = assess(wanted, children, problem, now)
        elif step == "begin":
            status = begin(wanted, now)
        else:
            status = refuse(wanted.metadata, status, CONFLICT, now)
        statuses.append(status)
    return statuses


def holds(status: Status, kind: ConditionType) -> bool:
    return condition(status, kind).status == "True"


@given(statuses=histories())
def test_never_two_of_ready_reconciling_and_stalled(statuses: list[Status]) -> None:
    kinds = (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
    assert all(sum(holds(status, kind) for kind in kinds) <= 1 for status in statuses)


@given(children=CHILDREN, problem=PROBLEMS)
def test_what_is_ready_is_ready_in_each_role(children: Observed, problem: Problem | None) -> None:
    status = assessed(children, problem)
    roles = (ConditionType.PREFILL_READY, ConditionType.DECODE_READY, ConditionType.ROUTER_READY)
    all_ready = all(holds(status, kind) for kind in roles)
    assert holds(status, ConditionType.READY) is (all_ready and problem is None)


@given(statuses=histories())
def test_a_transition_is_a_change_of_status(statuses: list[Status]) -> None:
    for before, after in pairwise(statuses):
        for now in after.conditions:
            then = before.condition(ConditionType(now.type))
            if then is not None:
                moved = now.last_transition_time != then.last_transition_time
                assert moved is (now.status != then.status)


@given(children=CHILDREN, problem=PROBLEMS)
def test_what_does_not_change_is_not_written_again(children: Observed, problem: Problem | None) -> None:
    once = assessed(children, problem)
    twice = assess(at_generation(1, once), children, problem, LATER)
    thrice = assess(at_generation(1, twice), children, problem, LATER + timedelta(minutes=5))
    assert thrice == twice


@given(statuses=histories())
def test_messages_tell_no_time(statuses: list[Status]) -> None:
    for status in statuses:
        for found in status.conditions:
            assert not re.search(r"\d{4}-\d\d|\d\d:\d\d", found.message)


@given(statuses=histories())
def test_a_status_fits_its_schema(statuses: list[Status]) -> None:
    for status in statuses:
        body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert Status.model_validate(body) == status


def test_times_are_those_of_the_api_server() -> None:
    assert condition(assessed(READY), ConditionType.READY).last_transition_time == STAMP
    flipped = assess(at_generation(1, assessed(READY)), observed(), None, LATER)
    assert condition(flipped, ConditionType.READY).last_transition_time == LATER_STAMP
