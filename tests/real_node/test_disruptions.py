"""What goes wrong with pods, while clients call."""

import json
from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, wait_until
from e2e.images import Image
from tests.real_node.release import Release, is_ready, name_of
from tests.real_node.serving import Serving, chat, failed

NAME = "chat"
ROUTER = f"http://{NAME}-router/v1/chat/completions"
TOKENS = 50
STREAMS = 4
BODY = chat("what has been said before is said again " * 20, tokens=TOKENS, stream=True)


@pytest.fixture(scope="module")
def serving(real_cluster: Cluster, images: dict[str, Image], operator: Release) -> Iterator[Serving]:
    """A pair of vLLM, and resources whose pods will never be ready: nothing waits for those."""
    operator.pod()
    made = Serving(real_cluster, images, "disruptions")
    made.start()
    made.apply(
        made.resource(NAME),
        made.resource("crashes", decode={"replicas": 1, "args": ["--no-such-flag"]}, router={"kind": "none"}),
        made.resource("unknown", engine={"image": "localhost/no/such:image"}, router={"kind": "none"}),
        made.resource(
            "secretless",
            model={"uri": "hf://org/model", "tokenSecret": {"name": "hf-token"}},
            router={"kind": "none"},
        ),
    )
    made.wait_ready(NAME)
    yield made
    made.end()


def scale(serving: Serving, role: str, replicas: int) -> None:
    """As a user does, and wait until it is done."""
    patch = json.dumps({"spec": {role: {"replicas": replicas}}})
    serving.kubectl("patch", "dinf", NAME, "--type=merge", f"--patch={patch}")
    wait_until(f"there are {replicas} {role} pods", lambda: len(ready(serving, role)) == replicas)


def ready(serving: Serving, role: str) -> set[str]:
    """Names of pods that are ready and stay."""
    return {
        name_of(pod)
        for pod in serving.pods(NAME, role)
        if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
    }


def test_no_request_fails_while_the_operators_pod_is_replaced(serving: Serving, operator: Release) -> None:
    old = operator.pod()["metadata"]
    with serving.under_load(ROUTER, BODY, streams=STREAMS) as found:
        operator.kubectl("delete", "pod", old["name"], "--wait=false")
        wait_until("another pod is there", lambda: operator.pod()["metadata"]["uid"] != old["uid"])
        # It works, too: what comes up now is its doing.
        scale(serving, "prefill", 2)
    assert len(found) > 10 * STREAMS
    assert failed(found, events=TOKENS) == []


def test_no_request_fails_while_one_of_two_prefill_pods_is_replaced(serving: Serving) -> None:
    scale(serving, "prefill", 2)
    before = ready(serving, "prefill")
    with serving.under_load(ROUTER, BODY, streams=STREAMS) as found:
        serving.kubectl("delete", "pod", min(before), "--wait=false")
        wait_until("another is ready", lambda: len(ready(serving, "prefill") - {min(before)}) == 2)
    assert failed(found, events=TOKENS) == []
    # No block was lost or read too late: that would change the words, and nothing else.
    assert len({answer.says for answer in found}) == 1


def test_the_service_recovers_when_its_only_prefill_pod_is_deleted(serving: Serving) -> None:
    scale(serving, "prefill", 1)
    wait_until("the router has heard", lambda: serving.ask(ROUTER, BODY).status == 200)
    [only] = ready(serving, "prefill")
    serving.kubectl("delete", "pod", only, "--wait=false")
    wait_until("the router has heard", lambda: serving.ask(ROUTER, BODY).status == 503)
    wait_until("the Service answers again", lambda: serving.ask(ROUTER, BODY).status == 200)
    assert only not in ready(serving, "prefill")


def test_a_crash_loop_is_told_with_role_exit_code_and_last_words(serving: Serving) -> None:
    """Its argument is one that vLLM refuses."""

    def told() -> str:
        found = serving.condition("crashes", "Ready")
        return found["message"] if found["reason"] == "CrashLoopBackOff" else ""

    message = wait_until("it is told", told)
    assert message.startswith("0 of 1 decode pods are ready")
    assert "container engine ended with exit code 2 (Error): " in message
    assert message.endswith("error: unrecognized arguments: --no-such-flag")
    assert serving.condition("crashes", "Ready")["status"] == "False"


def test_a_crash_loop_is_told_the_same_while_the_kubelet_tries_again(serving: Serving) -> None:
    def restarts() -> int:
        [pod] = serving.pods("crashes", "decode")
        return int(pod["status"]["containerStatuses"][0]["restartCount"])

    wait_until("it was started again", restarts)
    reasons = set[str]()

    def started_again() -> bool:
        reasons.add(serving.condition("crashes", "Ready")["reason"])
        return restarts() > before

    before = restarts()
    wait_until("it was started again, after a while", started_again, seconds=120)
    assert reasons == {"CrashLoopBackOff"}


def test_the_log_of_an_engine_that_does_not_start_is_reachable(serving: Serving) -> None:
    [pod] = serving.pods("crashes", "decode")
    assert "unrecognized arguments: --no-such-flag" in serving.logs(pod, "--previous")


def test_an_image_that_is_nowhere_is_told_with_role_and_the_words_of_the_registry(serving: Serving) -> None:
    def told() -> str:
        found = serving.condition("unknown", "PrefillReady")
        return found["message"] if found["reason"] == "ImagePullBackOff" else ""

    message = wait_until("it is told", told, seconds=120)
    assert message.startswith("0 of 1 prefill pods are ready")
    assert "the image of container engine cannot be pulled: " in message
    assert "no/such:image" in message
    assert serving.condition("unknown", "Ready")["status"] == "False"
    assert serving.condition("unknown", "Ready")["reason"] == "ImagePullBackOff"


def test_a_secret_that_is_missing_is_told(serving: Serving) -> None:
    def told() -> str:
        found = serving.condition("secretless", "Ready")
        return found["message"] if found["reason"] == "CreateContainerError" else ""

    assert 'secret "hf-token" not found' in wait_until("it is told", told)
