from __future__ import annotations

from typing import Any

import pytest
import yaml

from e2e.cluster import wait_until
from tests.operator.kube import Kube, manifest

pytestmark = pytest.mark.usefixtures("operator")

CHILDREN = "deployments,services,hpa,serviceaccounts,roles,rolebindings"
OURS = ("-l", "app.kubernetes.io/managed-by=disagg")


def test_the_smallest_resource_becomes_prefill_decode_and_router(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    assert kube.names(CHILDREN, *OURS) == {
        "deployment.apps/llama-prefill",
        "deployment.apps/llama-decode",
        "deployment.apps/llama-router",
        "service/llama-prefill",
        "service/llama-decode",
        "service/llama-router",
        "serviceaccount/llama-router",
        "role.rbac.authorization.k8s.io/llama-router",
        "rolebinding.rbac.authorization.k8s.io/llama-router",
    }


def test_the_longest_name_works(kube: Kube) -> None:
    name = "a" * 50
    kube.apply(manifest(name, prefill={"autoscaling": {"maxReplicas": 2}}))
    kube.ready(name)
    assert kube.replicas(f"{name}-decode") == 1


def test_ready_waits_for_every_pod(kube: Kube) -> None:
    slow = {"metadata": {"annotations": {"pod-ready.stage.kwok.x-k8s.io/delay": "6s"}}}
    kube.apply(manifest(decode={"replicas": 2, "podTemplate": slow}))
    waiting = kube.wait_for("llama", "PrefillReady")
    assert kube.condition("llama", "Ready")["status"] == "False", waiting
    assert kube.condition("llama", "DecodeReady")["message"] == "0 of 2 decode pods are ready"
    kube.ready()
    assert kube.get("deployment", "llama-decode")["status"]["readyReplicas"] == 2


def test_kubectl_get_shows_the_roles(kube: Kube) -> None:
    kube.apply(manifest(prefill={"replicas": 2}))
    kube.ready()
    header, row = kube.run("get", "dinf", "llama", "-o", "wide").splitlines()
    assert header.split() == [
        "NAME",
        "READY",
        "PREFILL",
        "DECODE",
        "ROUTER",
        "DOMAINS",
        "MODEL",
        "AGE",
        "REASON",
        "ENDPOINT",
    ]
    assert row.split()[:6] == ["llama", "True", "2/2", "1/1", "1/1", "hf://org/llama"]
    assert row.split()[-1] == f"http://llama-router.{kube.namespace}.svc"


def test_kubectl_wait_and_describe_tell_of_readiness(kube: Kube) -> None:
    kube.apply(manifest())
    kube.run("wait", "dinf/llama", "--for=condition=Ready", "--timeout=60s")
    wait_until(
        "the event", lambda: "all roles are rolled out and ready" in kube.run("describe", "dinf", "llama")
    )
    assert [line for line in kube.run("describe", "dinf", "llama").splitlines() if "Normal  Ready" in line]


def test_roles_without_replicas_are_ready_and_scaled_to_zero(kube: Kube) -> None:
    kube.apply(manifest(prefill={"replicas": 0}, decode={"replicas": 0}))
    kube.wait_for("llama", "Ready", reason="ScaledToZero")
    assert kube.names("pods", "-l", "disagg.dev/role in (prefill,decode)") == set()


def test_an_autoscaler_without_metrics_is_told_of_and_hinders_nothing(kube: Kube) -> None:
    kube.apply(manifest(prefill={"autoscaling": {"minReplicas": 2, "maxReplicas": 4}}))
    kube.ready()
    condition = kube.wait_for("llama", "AutoscalingReady", "False", "MetricsUnavailable")
    assert "llama-prefill cannot read disagg_queue_depth" in condition["message"]
    assert kube.replicas("llama-prefill") == 2


def test_a_role_that_cannot_start_is_not_ready(kube: Kube) -> None:
    kube.apply(manifest(decode={"resources": {"requests": {"cpu": "100000"}}}))
    kube.wait_for("llama", "PrefillReady")
    assert kube.condition("llama", "Ready")["status"] == "False"
    message = kube.condition("llama", "DecodeReady")["message"]
    assert message.startswith("0 of 1 decode pods are ready; ")


def test_a_template_that_the_api_server_refuses_changes_nothing(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    before = kube.get("deployment", "llama-prefill")["metadata"]["generation"]
    bad = {"spec": {"containers": [{"name": "engine", "imagePullPolicy": "Sometimes"}]}}
    kube.patch("llama", {"prefill": {"replicas": 3}, "decode": {"podTemplate": bad}})
    condition = kube.wait_for("llama", "Stalled", "True", "Rejected")
    assert "Deployment llama-decode is refused" in condition["message"]
    assert "imagePullPolicy" in condition["message"]
    assert kube.get("deployment", "llama-prefill")["metadata"]["generation"] == before
    kube.patch("llama", {"decode": {"podTemplate": None}})
    kube.ready()
    assert kube.replicas("llama-prefill") == 3


def test_a_typo_in_an_overlay_is_refused_by_name(kube: Kube) -> None:
    kube.apply(manifest(decode={"podTemplate": {"spec": {"nodeSelektor": {"a": "b"}}}}))
    assert "nodeSelektor" in kube.wait_for("llama", "Stalled", "True", "Rejected")["message"]
    assert kube.names(CHILDREN, *OURS) == set()


def test_values_that_the_api_server_rewrites_are_no_drift(kube: Kube) -> None:
    kube.apply(manifest(decode={"resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}}))
    kube.ready()
    version = kube.get("deployment", "llama-decode")["metadata"]["generation"]
    kube.patch("llama", {"prefill": {"replicas": 2}})
    kube.ready()
    assert kube.get("deployment", "llama-decode")["metadata"]["generation"] == version


def test_what_is_rendered_is_what_is_made(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    made = yaml.safe_load(kube.run("get", "deployment", "llama-decode", "-o", "yaml"))
    assert made["spec"]["template"]["spec"]["containers"][0]["command"] == ["vllm", "serve"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"accelerator": {"resource": "nvidia.com/gpu!", "perRank": 1}}, "gpu!", id="accelerator"
        ),
        pytest.param({"model": {"tokenSecret": {"name": "s", "key": "a b"}}}, "secretKeyRef.key", id="key"),
        pytest.param({"model": {"tokenSecret": {"name": "a..b"}}}, "secretKeyRef.name", id="secret"),
        pytest.param(
            {
                "prefill": {
                    "podTemplate": {
                        "spec": {"containers": [{"name": "engine", "resources": {"limits": {"cpu": "x"}}}]}
                    }
                }
            },
            "quantities must match",
            id="quantity",
        ),
    ],
)
def test_what_only_the_api_server_can_refuse_is_told_and_nothing_is_made(
    kube: Kube, spec: dict[str, Any], message: str
) -> None:
    kube.apply(manifest(**spec))
    assert message in kube.wait_for("llama", "Stalled", "True", "Rejected")["message"]
    assert kube.names(CHILDREN, *OURS) == set()


def test_a_quota_is_told_of(kube: Kube) -> None:
    hard = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    kube.apply(hard | {"spec": {"hard": {"count/deployments.apps": "0"}}})
    kube.apply(manifest())
    condition = kube.wait_for("llama", "Stalled", "True", "Rejected")
    assert "exceeded quota" in condition["message"]


def test_a_rollout_that_is_paused_by_hand_is_told_of(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    kube.run("rollout", "pause", "deployment/llama-decode")
    kube.patch("llama", {"decode": {"args": ["--enforce-eager"]}})
    condition = kube.wait_for("llama", "DecodeReady", "False", "DeploymentPaused")
    assert "kubectl rollout resume deployment/llama-decode" in condition["message"]
    kube.run("rollout", "resume", "deployment/llama-decode")
    kube.ready()
