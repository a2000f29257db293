"""What keeps prefill and decode from exchanging KV cache is told, and disturbs nothing that runs."""

from __future__ import annotations

import json

import pytest

from tests.operator.kube import Kube, manifest

pytestmark = pytest.mark.usefixtures("operator")

OTHER_RELEASE = "vllm/vllm-openai:v0.31.0"


def uids(kube: Kube) -> set[str]:
    found = json.loads(kube.run("get", "pods", "-l", "disagg.dev/name=llama", "-o", "json"))
    return {pod["metadata"]["uid"] for pod in found["items"]}


def test_the_labels_of_both_roles_agree(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    found = json.loads(kube.run("get", "pods", "-l", "disagg.dev/role in (prefill,decode)", "-o", "json"))
    labels = {pod["metadata"]["labels"]["disagg.dev/kv-compatibility"] for pod in found["items"]}
    assert len(labels) == 1
    condition = kube.wait_for("llama", "KVCompatible", "True", "OverTCP")
    assert "KV cache moves over TCP" in condition["message"]


def test_roles_that_could_not_exchange_kv_cache_get_no_pods(kube: Kube) -> None:
    kube.apply(manifest(prefill={"image": OTHER_RELEASE}))
    condition = kube.wait_for("llama", "Stalled", "True", "IncompatibleRoles")
    assert "they differ in vLLM (0.31.0 in prefill, 0.32.0 in decode)" in condition["message"]
    assert kube.names("deployments,services") == set()


def test_a_change_that_would_part_the_roles_disturbs_no_pod(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    before = uids(kube)
    kube.patch("llama", {"prefill": {"image": OTHER_RELEASE}})
    kube.wait_for("llama", "Stalled", "True", "IncompatibleRoles")
    assert uids(kube) == before
    kube.patch("llama", {"prefill": {"image": None}})
    kube.ready()
    assert uids(kube) == before


def test_what_an_overlay_breaks_is_applied_and_told(kube: Kube) -> None:
    variable = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "$patch": "delete"}
    overlay = {"podTemplate": {"spec": {"containers": [{"name": "engine", "env": [variable]}]}}}
    wanted = manifest()
    wanted["spec"]["prefill"] = overlay
    kube.apply(wanted)
    condition = kube.wait_for("llama", "KVCompatible", "False", "ContractBroken")
    assert condition["message"].startswith(
        "prefill.podTemplate.spec.containers[engine].env removes VLLM_NIXL_SIDE_CHANNEL_HOST: "
    )
    kube.ready()


def test_the_words_of_a_failed_preflight_check_are_in_the_condition(kube: Kube) -> None:
    kube.apply(manifest(kvTransfer={"transport": "tcp", "preflight": True}))
    kube.ready()
    name = kube.run("get", "pods", "-l", "disagg.dev/role=prefill", "-o", "name").strip()
    ended = {"exitCode": 1, "reason": "Error", "message": "model.uri: there is no /models/llama"}
    status = {
        "name": "preflight",
        "image": "vllm",
        "imageID": "",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    kube.set_pod_status(name, {"initContainerStatuses": [status]})
    condition = kube.wait_for("llama", "KVCompatible", "False", "PreflightFailed")
    assert condition["message"] == "prefill: model.uri: there is no /models/llama"
    passed = status | {"ready": True, "state": {"terminated": {"exitCode": 0}}, "lastState": {}}
    kube.set_pod_status(name, {"initContainerStatuses": [passed]})
    kube.wait_for("llama", "KVCompatible", "True")
