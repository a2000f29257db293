"""Why pods do not come up: what their status says, and what the conditions of a role make of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.api.names import RoleName
from disagg.api.status import ConditionType, Reason, Status
from disagg.assess.assess import Findings, assess
from disagg.assess.events import events
from disagg.assess.pod_failure import MOST_WORDS, PodFailure, pod_failure, told
from disagg.build.preflight import CONTAINER as PREFLIGHT
from disagg.decide.observed import Observed
from disagg.reconcile.pod_failures import PodFailures
from disagg.reconcile.queue import Key
from tests.unit.racks import GROUP, OTHER, pod
from tests.unit.resources import observed, resource, running
from tests.unit.test_assess import NOW, condition

EXITED: dict[str, Any] = {
    "exitCode": 2,
    "reason": "Error",
    "message": "Traceback\nValueError: no such flag\n",
}
CRASH = ("CrashLoopBackOff", "container engine ended with exit code 2 (Error)", "ValueError: no such flag")
RUNNING: dict[str, Any] = {"running": {}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(**fields: object) -> dict[str, Any]:
    return {"terminated": EXITED | fields}


def with_container(
    state: dict[str, Any],
    last: dict[str, Any] | None = None,
    *,
    name: str = "engine",
    kind: str = "containerStatuses",
    role: str = "decode",
    **fields: object,
) -> dict[str, Any]:
    """A pod, as the kubelet describes one with that container."""
    raw = pod("a", "n1", group=GROUP, role=role)
    container = {"name": name, "ready": False, "started": False, "state": state, "lastState": last or {}}
    raw["status"][kind] = [container | fields]
    return raw


def found(raw: dict[str, Any]) -> tuple[str, str, str] | None:
    failure = pod_failure(raw)
    return None if failure is None else (str(failure.reason), failure.what, failure.words)


# A pod


@pytest.mark.parametrize(
    ("state", "last"),
    [
        pytest.param(ended(), None, id="has just ended"),
        pytest.param(waiting("CrashLoopBackOff", "back-off 40s restarting"), ended(), id="waits"),
        pytest.param(RUNNING, ended(), id="is tried again"),
    ],
)
def test_a_container_that_ends_again_and_again_is_told_the_same_in_each_moment(
    state: dict[str, Any], last: dict[str, Any] | None
) -> None:
    assert found(with_container(state, last)) == CRASH


def test_the_signal_of_the_kernel_is_told() -> None:
    killed = with_container(ended(exitCode=137, reason="OOMKilled", message=None))
    assert found(killed) == (
        "CrashLoopBackOff",
        "container engine ended with exit code 137 (OOMKilled)",
        "",
    )


def test_an_engine_that_ends_without_an_error_does_not_come_up_either() -> None:
    assert found(with_container(ended(exitCode=0, reason="Completed", message=""))) == (
        "CrashLoopBackOff",
        "container engine ended with exit code 0 (Completed)",
        "",
    )


def test_a_container_that_has_come_up_again_is_no_failure() -> None:
    assert found(with_container(RUNNING, ended(), started=True)) is None


def test_a_container_that_starts_is_no_failure() -> None:
    assert found(with_container(waiting("ContainerCreating"))) is None
    assert found(with_container(waiting("PodInitializing"))) is None


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        ("ErrImagePull", 'failed to resolve "a/b:c": not found', 'failed to resolve "a/b:c": not found'),
        (
            "ImagePullBackOff",
            'Back-off pulling image "a/b:c": ErrImagePull: failed to resolve "a/b:c": not found',
            'failed to resolve "a/b:c": not found',
        ),
        ("InvalidImageName", "couldn't parse image name", "couldn't parse image name"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_told_the_same_in_each_moment(
    reason: str, message: str, words: str
) -> None:
    what = "the image of container engine cannot be pulled"
    assert found(with_container(waiting(reason, message))) == ("ImagePullBackOff", what, words)


def test_a_container_that_lacks_a_secret_is_told_in_the_words_of_the_kubelet() -> None:
    raw = with_container(waiting("CreateContainerConfigError", 'secret "hf-token" not found'))
    what = "container engine cannot be started (CreateContainerConfigError)"
    assert found(raw) == ("CreateContainerError", what, 'secret "hf-token" not found')


def test_a_pod_without_a_node_is_told_where_to_look() -> None:
    raw = pod("a", group=GROUP)
    raw["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    assert found(raw) == ("Unschedulable", "no node takes it", "kubectl describe pod a tells why")


@pytest.mark.parametrize("role", list(RoleName))
def test_pods_of_each_role_are_looked_at(role: RoleName) -> None:
    failure = pod_failure(with_container(ended(), role=role))
    assert failure is not None
    assert (failure.role, failure.group, failure.pod) == (role, GROUP, "a")


def test_pods_that_are_nobodys_or_are_being_deleted_are_left_alone() -> None:
    leaving = with_container(ended())
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    foreign = with_container(ended())
    foreign["metadata"]["ownerReferences"] = []
    assert (found(leaving), found(foreign)) == (None, None)


# Containers that come first


def first(
    state: dict[str, Any], last: dict[str, Any] | None = None, *, name: str = PREFLIGHT, ready: bool = False
) -> dict[str, Any]:
    """A pod with an init container. A kubelet says of each that runs that it has started."""
    started = "running" in state
    return with_container(state, last, name=name, kind="initContainerStatuses", ready=ready, started=started)


NO_DEVICE = ended(exitCode=1, message="there is no RDMA device\n")


@pytest.mark.parametrize(
    ("state", "last"),
    [
        pytest.param(NO_DEVICE, None, id="failed"),
        pytest.param(waiting("CrashLoopBackOff"), NO_DEVICE, id="waits to be tried again"),
        pytest.param(RUNNING, NO_DEVICE, id="is tried again"),
    ],
)
def test_a_failed_check_is_told_in_its_words(state: dict[str, Any], last: dict[str, Any] | None) -> None:
    raw = first(state, last)
    assert found(raw) == ("PreflightFailed", "the preflight check failed", "there is no RDMA device")


@pytest.mark.parametrize(
    ("state", "last", "ready"),
    [
        pytest.param(RUNNING, None, False, id="runs"),
        pytest.param(ended(exitCode=0), None, True, id="passed"),
        pytest.param(ended(exitCode=0), NO_DEVICE, True, id="passed at last"),
    ],
)
def test_a_check_that_has_not_failed_is_not_told(
    state: dict[str, Any], last: dict[str, Any] | None, *, ready: bool
) -> None:
    assert found(first(state, last, ready=ready)) is None


def test_a_check_without_a_message_is_told_where_to_look() -> None:
    failure = pod_failure(first(ended(exitCode=137, message="")))
    assert failure is not None
    assert "kubectl logs --container preflight" in failure.words


def test_an_image_without_python_is_told_how_to_do_without() -> None:
    missing = 'exec: "python3": executable file not found in $PATH'
    state = ended(exitCode=128, reason="StartError", message=missing)
    failure = pod_failure(first(waiting("CrashLoopBackOff"), state))
    assert failure is not None
    assert failure.words.startswith(missing)
    assert "kvTransfer.preflight to false" in failure.words


def test_another_container_that_fails_before_the_engine_is_told_by_its_name() -> None:
    failure = pod_failure(first(ended(), name="istio-init"))
    assert failure is not None
    assert failure.what == "container istio-init ended with exit code 2 (Error)"


# Many pods


def crash(name: str = "a", words: str = "no such flag", code: int = 2) -> PodFailure:
    what = f"container engine ended with exit code {code} (Error)"
    return PodFailure(GROUP, RoleName.DECODE, name, Reason.CRASH_LOOP_BACK_OFF, what, words)


def test_no_failure_is_nothing_to_tell() -> None:
    assert told([]) is None


def test_one_pod_is_told_by_its_name() -> None:
    text = "pod a: container engine ended with exit code 2 (Error): no such flag"
    assert told([crash()]) == (Reason.CRASH_LOOP_BACK_OFF, text)


def test_pods_that_fail_alike_are_told_once() -> None:
    text = "2 pods, such as a: container engine ended with exit code 2 (Error): at 12:01"
    assert told([crash("b", "at 12:00"), crash("a", "at 12:01")]) == (Reason.CRASH_LOOP_BACK_OFF, text)


def test_what_befell_most_pods_comes_first_and_the_rest_is_counted() -> None:
    failures = [crash("a", "", code) for code in (1, 3, 4, 5)] + [crash("b", "", 5)]
    reason_and_text = told(failures)
    assert reason_and_text is not None
    text = reason_and_text[1].split("; ")
    assert text[0].startswith("2 pods, such as a: container engine ended with exit code 5")
    assert (len(text), text[-1]) == (4, "and 1 more")


@given(st.lists(st.builds(crash, st.sampled_from("abc"), st.text(max_size=9), st.integers(1, 9))))
def test_the_order_in_which_pods_are_seen_makes_no_difference(failures: list[PodFailure]) -> None:
    one_each = {failure.pod: failure for failure in failures}.values()
    assert told(one_each) == told(reversed(list(one_each)))


def test_a_long_log_line_is_cut() -> None:
    reason_and_text = told([crash("a", "x" * 5000)])
    assert reason_and_text is not None
    assert len(reason_and_text[1]) < MOST_WORDS + 100


# What conditions make of it

STARTING = observed(running("prefill", 4), running("decode", 1, readyReplicas=0), running("router"))
ALL_UP = observed(running("prefill", 4), running("decode", 2), running("router"))
DECODE = "0 of 1 decode pods are ready, 1 are needed; pod a: container engine ended with exit code 2 (Error): no such flag"


def judged(children: Observed, *failures: PodFailure) -> Status:
    return assess(resource(), children, None, NOW, Findings(failures=failures))


def test_a_role_says_why_its_pods_do_not_come_up_and_so_does_the_resource() -> None:
    status = judged(STARTING, crash())
    for kind in (ConditionType.DECODE_READY, ConditionType.READY):
        told_of = condition(status, kind)
        assert (told_of.status, told_of.reason, told_of.message) == ("False", "CrashLoopBackOff", DECODE)
    assert condition(status, ConditionType.PREFILL_READY).status == "True"
    # The kubelet tries again, and so it may come up yet.
    assert condition(status, ConditionType.STALLED).status == "False"


def test_a_role_that_has_all_that_it_needs_tells_of_the_pod_that_it_lacks() -> None:
    told_of = condition(judged(ALL_UP, crash()), ConditionType.DECODE_READY)
    assert (told_of.status, told_of.reason) == ("True", "Ready")
    assert told_of.message.endswith("exit code 2 (Error): no such flag")


def test_a_deployment_that_has_given_up_says_so_and_why() -> None:
    given_up = running(
        "decode",
        1,
        readyReplicas=0,
        conditions=[{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}],
    )
    status = judged(observed(running("prefill", 4), given_up, running("router")), crash())
    stalled = condition(status, ConditionType.STALLED)
    assert (stalled.status, stalled.reason) == ("True", "ProgressDeadlineExceeded")
    assert stalled.message.endswith("exit code 2 (Error): no such flag")


def test_the_failure_of_one_group_is_told_of_that_group() -> None:
    other = PodFailure(
        type(GROUP)(GROUP.namespace, GROUP.name, 1),
        RoleName.DECODE,
        "b",
        Reason.IMAGE_PULL_BACK_OFF,
        "no image",
    )
    assert "no image" not in condition(judged(STARTING, other), ConditionType.READY).message


def test_what_somebody_has_to_see_to_is_an_event_once() -> None:
    before, after = judged(STARTING), judged(STARTING, crash())
    (event,) = events(before, after)
    assert (event.type, event.reason, event.message) == ("Warning", "CrashLoopBackOff", DECODE)
    assert events(after, judged(STARTING, crash(words="something else"))) == []


def test_a_pod_that_waits_for_a_node_is_no_event() -> None:
    nowhere = PodFailure(GROUP, RoleName.DECODE, "a", Reason.UNSCHEDULABLE, "no node takes it")
    assert events(judged(STARTING), judged(STARTING, nowhere)) == []


# What is known of all pods

KEY = Key(GROUP.namespace, GROUP.name)
FAILING = with_container(ended())
FINE = pod("a", "n1", group=GROUP)


def test_a_pod_that_fails_and_then_does_not_is_news_of_its_resource() -> None:
    known = PodFailures()
    assert [known.put(raw) for raw in (FINE, FAILING, FAILING, FINE, FINE)] == [None, KEY, None, KEY, None]
    assert known == PodFailures()


def test_a_failing_pod_that_goes_is_news_of_its_resource() -> None:
    known = PodFailures()
    known.put(FAILING)
    assert [pod.pod for pod in known.of(KEY)] == ["a"]
    assert [known.remove(uid) for uid in ("a", "a", "b")] == [KEY, None, None]
    assert known.of(KEY) == []


def test_failures_are_kept_apart_by_resource() -> None:
    known = PodFailures()
    other = with_container(ended())
    other["metadata"] |= {"uid": "b", "name": "b", "labels": pod("b", group=OTHER)["metadata"]["labels"]}
    other["metadata"]["ownerReferences"] = pod("b", group=OTHER)["metadata"]["ownerReferences"]
    for raw in (FAILING, other):
        known.put(raw)
    assert [failure.pod for failure in known.of(KEY)] == ["a"]
    assert [failure.pod for failure in known.of(Key(OTHER.namespace, OTHER.name))] == ["b"]
