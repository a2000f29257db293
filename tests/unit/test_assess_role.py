from __future__ import annotations

import re
from typing import Any

import pytest

from disagg.api.names import RoleName
from disagg.api.status import Reason, RoleStatus
from disagg.assess.role import RoleAssessment, assess_role, over_groups
from tests.unit.resources import overlaid, running


def progressing(reason: str, *others: dict[str, Any]) -> dict[str, Any]:
    return {"conditions": [{"type": "Progressing", "status": "True", "reason": reason}, *others]}


def judged(
    deployment: dict[str, Any] | None, minimum: int | None = None, *, was_ready: bool = False
) -> RoleAssessment:
    return assess_role(RoleName.PREFILL, deployment, minimum=minimum, was_ready=was_ready)


QUOTA = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}


@pytest.mark.parametrize(
    ("deployment", "reason", "message"),
    [
        pytest.param(None, Reason.PROGRESSING, "Deployment for prefill does not exist yet", id="absent"),
        pytest.param(
            running("prefill", 2) | {"status": {}},
            Reason.ROLLING_OUT,
            "0 of 2 prefill pods are ready",
            id="just made",
        ),
        pytest.param(
            running("prefill", 2, observedGeneration=0),
            Reason.ROLLING_OUT,
            "2 run the latest template",
            id="not seen",
        ),
        pytest.param(
            running("prefill", 3, updatedReplicas=1),
            Reason.ROLLING_OUT,
            "1 run the latest template",
            id="rolling out",
        ),
        pytest.param(
            running("prefill", 2, readyReplicas=1, **progressing("ReplicaSetUpdated")),
            Reason.PROGRESSING,
            "1 of 2 prefill pods are ready",
            id="starting",
        ),
        pytest.param(
            running("prefill", 2, readyReplicas=1),
            Reason.PODS_NOT_READY,
            "1 of 2 .*, 2 are needed",
            id="one is missing",
        ),
        pytest.param(running("prefill", 2), Reason.READY, "2 of 2 prefill pods are ready", id="ready"),
        pytest.param(
            running("prefill", 0), Reason.SCALED_TO_ZERO, "prefill is scaled to 0", id="scaled to zero"
        ),
        pytest.param(
            running("prefill", 2, readyReplicas=1, **progressing("ProgressDeadlineExceeded")),
            Reason.PROGRESS_DEADLINE_EXCEEDED,
            r"1 of 2 .* within 4200 s \(progressDeadlineSeconds\): .* Deployment llama-prefill",
            id="given up",
        ),
        pytest.param(
            running("prefill", 2, updatedReplicas=1, **progressing("ReplicaSetUpdated", QUOTA)),
            Reason.REPLICA_FAILURE,
            "exceeded quota",
            id="pods are refused",
        ),
        pytest.param(
            running("prefill", 2, **progressing("NewReplicaSetAvailable", QUOTA | {"status": "False"})),
            Reason.READY,
            "2 of 2",
            id="pods were refused once",
        ),
        pytest.param(
            running("prefill", 2, readyReplicas=1, **progressing("ProgressDeadlineExceeded", QUOTA)),
            Reason.PROGRESS_DEADLINE_EXCEEDED,
            "progressDeadlineSeconds",
            id="given up, since pods are refused",
        ),
    ],
)
def test_a_role_is_what_its_deployment_says(
    deployment: dict[str, Any] | None, reason: Reason, message: str
) -> None:
    found = judged(deployment)
    assert found.reason is reason
    assert re.search(message, found.message)


@pytest.mark.parametrize("reason", Reason)
def test_ready_are_roles_that_run_or_are_not_to_run(reason: Reason) -> None:
    ready = {Reason.READY, Reason.SCALED_TO_ZERO, Reason.ROUTER_DISABLED}
    assert RoleAssessment(reason, "").ready is (reason in ready)


@pytest.mark.parametrize("reason", Reason)
def test_stalled_is_a_role_whose_deployment_has_given_up(reason: Reason) -> None:
    assert RoleAssessment(reason, "").stalled is (reason is Reason.PROGRESS_DEADLINE_EXCEEDED)


def test_the_counts_are_those_of_the_deployment() -> None:
    status = judged(running("prefill", 4, updatedReplicas=3, readyReplicas=2)).status
    assert status is not None
    assert status.model_dump() == {
        "desired_replicas": 4,
        "ready_replicas": 2,
        "updated_replicas": 3,
        "ready": "2/4",
    }


def test_without_a_deployment_there_are_no_counts() -> None:
    assert judged(None).status is None


def test_a_deployment_without_a_count_wants_one_pod() -> None:
    deployment = running()
    del deployment["spec"]["replicas"]
    status = judged(deployment).status
    assert status is not None
    assert status.ready == "1/1"


# At first a role needs all its pods; from then on it may lack some.


@pytest.mark.parametrize("ready", [0, 1, 2, 3])
def test_a_new_role_is_ready_with_all_its_pods(ready: int) -> None:
    assert judged(running("prefill", 3, readyReplicas=ready)).ready is (ready == 3)


@pytest.mark.parametrize(("ready", "is_ready"), [(1, False), (2, False), (3, True)])
def test_a_new_role_is_ready_with_as_many_pods_as_its_autoscaler_begins_with(
    ready: int, is_ready: bool
) -> None:
    assert judged(running("prefill", 1, readyReplicas=ready), minimum=3).ready is is_ready


@pytest.mark.parametrize(
    ("unavailable", "ready", "is_ready"),
    [
        (1, 9, True),
        (1, 8, False),
        (3, 7, True),
        (3, 6, False),
        ("25%", 7, True),
        ("25%", 6, False),
        ("3", 7, True),
        ("3", 6, False),
        (0, 10, True),
        (0, 9, False),
        ("100%", 1, True),
        ("100%", 0, False),
    ],
)
def test_a_ready_role_may_lack_as_many_pods_as_a_rollout_takes_down(
    unavailable: int | str, ready: int, is_ready: bool
) -> None:
    strategy = {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": unavailable}}}}
    deployment = overlaid(running("prefill", 10, readyReplicas=ready), strategy)
    assert judged(deployment, minimum=10, was_ready=True).ready is is_ready


def test_a_ready_role_whose_count_is_left_to_others_stays_ready_while_it_is_scaled_up() -> None:
    assert judged(running("prefill", 8, readyReplicas=2), was_ready=True).ready


def test_a_ready_role_whose_count_is_left_to_others_needs_one_pod() -> None:
    assert not judged(running("prefill", 8, readyReplicas=0), was_ready=True).ready


def test_a_ready_role_of_one_pod_needs_it() -> None:
    assert not judged(running("prefill", 1, readyReplicas=0), was_ready=True).ready


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({}, id="its Deployment has made the pods"),
        pytest.param(
            {"observedGeneration": 0, "replicas": 2, "updatedReplicas": 2},
            id="its Deployment has yet to see the count",
        ),
    ],
)
def test_a_ready_role_stays_ready_while_its_autoscaler_adds_pods(status: dict[str, Any]) -> None:
    deployment = running("prefill", 8)
    deployment["status"] |= {"readyReplicas": 2} | status
    assert judged(deployment, minimum=2, was_ready=True).ready


def test_a_ready_role_stays_ready_while_its_autoscaler_removes_pods() -> None:
    deployment = running("prefill", 2)
    deployment["status"] |= {"readyReplicas": 8, "replicas": 8, "updatedReplicas": 8, "observedGeneration": 0}
    assert judged(deployment, minimum=2, was_ready=True).ready


@pytest.mark.parametrize(("ready", "is_ready"), [(3, True), (2, False)])
def test_a_ready_role_that_scales_needs_the_minimum_of_its_autoscaler(ready: int, is_ready: bool) -> None:
    assert judged(running("prefill", 10, readyReplicas=ready), minimum=4, was_ready=True).ready is is_ready


def test_a_ready_role_that_rolls_out_again_is_not_ready() -> None:
    assert judged(running("prefill", 4, updatedReplicas=1), was_ready=True).reason is Reason.ROLLING_OUT


def test_a_ready_role_that_goes_to_zero_stays_ready() -> None:
    assert judged(running("prefill", 0), minimum=1, was_ready=True).reason is Reason.SCALED_TO_ZERO


# Several groups


def role(reason: Reason, message: str = "", ready: int = 0, desired: int = 2) -> RoleAssessment:
    counts = RoleStatus(
        desired_replicas=desired, ready_replicas=ready, updated_replicas=desired, ready=f"{ready}/{desired}"
    )
    return RoleAssessment(reason, message, counts)


READY = role(Reason.READY, "2 of 2 prefill pods are ready", ready=2)
ASLEEP = role(Reason.SCALED_TO_ZERO, "prefill is scaled to 0", desired=0)
ROLLING = role(Reason.ROLLING_OUT, "it rolls")
GIVEN_UP = role(Reason.PROGRESS_DEADLINE_EXCEEDED, "it has given up", ready=1)
ABSENT = RoleAssessment(Reason.PROGRESSING, "it does not exist yet")


@pytest.mark.parametrize(
    ("groups", "reason", "message", "counts"),
    [
        pytest.param([ROLLING], Reason.ROLLING_OUT, "it rolls", "0/2", id="one"),
        pytest.param(
            [READY, READY], Reason.READY, "4 of 4 pods are ready in 2 groups", "4/4", id="all are ready"
        ),
        pytest.param([READY, ROLLING], Reason.ROLLING_OUT, "group 1: it rolls", "2/4", id="one rolls out"),
        pytest.param(
            [ROLLING, READY, GIVEN_UP],
            Reason.PROGRESS_DEADLINE_EXCEEDED,
            "group 0: it rolls; group 2: it has given up",
            "3/6",
            id="one has given up",
        ),
        pytest.param(
            [READY, ABSENT], Reason.PROGRESSING, "group 1: it does not exist yet", "2/2", id="one is new"
        ),
        pytest.param(
            [ABSENT, ABSENT],
            Reason.PROGRESSING,
            "group 0: it does not exist yet; group 1: it does not exist yet",
            None,
            id="all are new",
        ),
        pytest.param(
            [ASLEEP, ASLEEP], Reason.SCALED_TO_ZERO, "prefill is scaled to 0", "0/0", id="all sleep"
        ),
        pytest.param(
            [ASLEEP, READY], Reason.READY, "2 of 2 pods are ready in 2 groups", "2/2", id="one sleeps"
        ),
    ],
)
def test_a_role_is_as_good_as_in_the_worst_group(
    groups: list[RoleAssessment], reason: Reason, message: str, counts: str | None
) -> None:
    found = over_groups(groups)
    assert (found.reason, found.message) == (reason, message)
    assert (found.status.ready if found.status else None) == counts
