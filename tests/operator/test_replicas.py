from __future__ import annotations

import json
import time

import pytest

from e2e.cluster import wait_until
from tests.operator.kube import Kube, manifest

pytestmark = pytest.mark.usefixtures("operator")

AUTOSCALING = {"minReplicas": 1, "maxReplicas": 10}


def managers_of_replicas(kube: Kube, deployment: str) -> set[str]:
    text = kube.run("get", "deployment", deployment, "-o", "json", "--show-managed-fields")
    fields = json.loads(text)["metadata"]["managedFields"]
    return {entry["manager"] for entry in fields if "f:replicas" in entry["fieldsV1"].get("f:spec", {})}


def test_turning_autoscaling_on_starts_from_a_count_that_no_autoscaler_has_written(kube: Kube) -> None:
    kube.apply(manifest(decode={"replicas": 8}))
    kube.ready()
    kube.patch("llama", {"decode": {"autoscaling": AUTOSCALING}})
    kube.ready()
    wait_until("the autoscaler", lambda: kube.find("hpa", "llama-decode"))
    assert kube.replicas("llama-decode") == 8
    assert managers_of_replicas(kube, "llama-decode") == {"disagg-seed"}


def test_no_edit_moves_the_count_of_an_autoscaled_role(kube: Kube) -> None:
    kube.apply(manifest(decode={"replicas": 8}))
    kube.ready()
    kube.patch("llama", {"decode": {"autoscaling": AUTOSCALING}})
    kube.ready()
    for edit in (
        {"decode": {"image": "mirror.example.com/vllm-openai:v0.32.0"}},
        {"decode": {"replicas": 2}},
        {"decode": {"autoscaling": {"maxReplicas": 9}}},
        {"prefill": {"replicas": 2}},
    ):
        kube.patch("llama", edit)
        kube.ready()
        assert kube.replicas("llama-decode") == 8, edit


def test_a_count_by_hand_of_an_autoscaled_role_is_the_autoscalers_business(kube: Kube) -> None:
    kube.apply(manifest(decode={"autoscaling": AUTOSCALING}))
    kube.ready()
    kube.run("scale", "deployment/llama-decode", "--replicas=5")
    kube.patch("llama", {"prefill": {"replicas": 2}})
    kube.ready()
    assert kube.replicas("llama-decode") == 5


def test_turning_autoscaling_off_keeps_the_count(kube: Kube) -> None:
    kube.apply(manifest(decode={"autoscaling": AUTOSCALING}))
    kube.ready()
    kube.run("scale", "deployment/llama-decode", "--replicas=6")
    kube.patch("llama", {"decode": {"autoscaling": None}})
    wait_until("the autoscaler to go", lambda: kube.find("hpa", "llama-decode") is None)
    kube.ready()
    assert kube.replicas("llama-decode") == 6


def test_after_autoscaling_replicas_says_how_many(kube: Kube) -> None:
    kube.apply(manifest(decode={"autoscaling": AUTOSCALING}))
    kube.ready()
    kube.run("scale", "deployment/llama-decode", "--replicas=6")
    kube.patch("llama", {"decode": {"autoscaling": None, "replicas": 3}})
    wait_until("three replicas", lambda: kube.replicas("llama-decode") == 3)


def test_taking_replicas_out_of_the_resource_keeps_the_count(kube: Kube) -> None:
    kube.apply(manifest(decode={"replicas": 4}))
    kube.ready()
    kube.patch("llama", {"decode": {"replicas": None}})
    kube.ready()
    assert kube.replicas("llama-decode") == 4


def test_kubectl_scale_stays_where_the_resource_leaves_the_count_open(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    kube.run("scale", "deployment/llama-decode", "--replicas=3")
    kube.patch("llama", {"prefill": {"replicas": 2}})
    kube.ready()
    assert kube.replicas("llama-decode") == 3


def test_kubectl_scale_is_taken_back_where_the_resource_sets_the_count(kube: Kube) -> None:
    kube.apply(manifest(decode={"replicas": 2}))
    kube.ready()
    kube.run("scale", "deployment/llama-decode", "--replicas=5")
    wait_until("the count to be taken back", lambda: kube.replicas("llama-decode") == 2)


def test_replicas_0_is_kept(kube: Kube) -> None:
    kube.apply(manifest(decode={"replicas": 0}))
    kube.ready()
    assert kube.replicas("llama-decode") == 0


def test_a_scaled_up_role_stays_ready(kube: Kube) -> None:
    kube.apply(manifest(decode={"autoscaling": AUTOSCALING}))
    since = kube.ready()["lastTransitionTime"]
    time.sleep(1.1)  # The time of a transition has a resolution of a second.
    kube.run("scale", "deployment/llama-decode", "--replicas=4")
    wait_until("four pods", lambda: kube.get("dinf", "llama")["status"]["roles"]["decode"]["ready"] == "4/4")
    assert kube.condition("llama", "Ready")["lastTransitionTime"] == since


def test_an_autoscaler_of_somebody_elses_is_named_and_not_fought(kube: Kube) -> None:
    kube.apply(manifest(decode={"replicas": 1}))
    kube.ready()
    kube.run("autoscale", "deployment", "llama-decode", "--name=mine", "--min=3", "--max=4", "--cpu=50%")
    condition = kube.wait_for("llama", "Stalled", "True", "ReplicasContended")
    assert "HorizontalPodAutoscaler mine sets the replicas of Deployment llama-decode" in condition["message"]
    assert kube.replicas("llama-decode") == 3
    kube.patch("llama", {"decode": {"replicas": None}})
    kube.ready()
    assert kube.replicas("llama-decode") == 3


def test_an_autoscaler_of_somebody_elses_works_where_the_resource_leaves_the_count_open(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    kube.run("autoscale", "deployment", "llama-decode", "--name=mine", "--min=3", "--max=4", "--cpu=50%")
    wait_until("three pods", lambda: kube.get("dinf", "llama")["status"]["roles"]["decode"]["ready"] == "3/3")
    assert kube.condition("llama", "Ready")["status"] == "True"
