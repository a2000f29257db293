"""A pod that does not come up: its resource says why, and stops saying it."""

import pytest

from e2e.cluster import wait_until
from tests.operator.kube import Kube, manifest

pytestmark = pytest.mark.usefixtures("operator")

NOWHERE = {"podTemplate": {"spec": {"nodeSelector": {"example.com/none": "true"}}}}


def test_a_pod_that_no_node_takes_is_told(kube: Kube) -> None:
    kube.apply(manifest(decode=NOWHERE))
    condition = kube.wait_for("llama", "Ready", "False", "Unschedulable")
    assert "decode pods are ready; " in condition["message"]
    assert "no node takes it: kubectl describe pod llama-decode-" in condition["message"]
    kube.apply(manifest())
    kube.ready()


def test_a_container_that_crashes_is_told_with_its_exit_code_and_last_words(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    ended = {"exitCode": 137, "reason": "OOMKilled", "message": "loading\nallocating 80 GiB\n"}
    set_status(kube, ended=ended)
    condition = kube.wait_for("llama", "RouterReady", "False", "CrashLoopBackOff")
    assert condition["message"].endswith(
        ": container router ended with exit code 137 (OOMKilled): allocating 80 GiB"
    )
    assert kube.condition("llama", "Ready")["message"].endswith(": allocating 80 GiB")
    wait_until(
        "it is an event",
        lambda: "allocating 80 GiB" in kube.run("get", "events", "--field-selector=reason=CrashLoopBackOff"),
    )


def set_status(kube: Kube, *, ended: dict[str, object]) -> None:
    """Write what a kubelet would say of the router's container while it waits to start it again."""
    pod = kube.run("get", "pods", "-l", "disagg.dev/role=router", "-o", "name").strip()
    container = {
        "name": "router",
        "image": "router",
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    not_ready = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
    kube.set_pod_status(pod, {"containerStatuses": [container], "conditions": not_ready})
