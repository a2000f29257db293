"""The shared cluster behaves as Kubernetes with GPU nodes does."""

import json
import ssl
from datetime import UTC, datetime
from http.client import HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from e2e.cluster import Cluster, CommandError
from e2e.cluster.racks import RACK_LABEL

DAY_LONG = "24h"


def deployment(
    name: str,
    replicas: int,
    *,
    gpus: int = 0,
    annotations: dict[str, str] | None = None,
    group: str | None = None,
) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    probe = {"httpGet": {"path": "/health", "port": 8000}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
                "spec": {
                    "containers": [
                        {"name": "main", "image": "model", "resources": resources, "readinessProbe": probe}
                    ],
                    **({"schedulingGroup": {"podGroupName": group}} if group else {}),
                },
            },
        },
    }


class Here:
    """The shared cluster, seen from one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        return self._cluster.kubectl(f"--namespace={self._namespace}", *arguments, input=input)

    def apply(self, *manifests: dict[str, Any]) -> None:
        document = {"apiVersion": "v1", "kind": "List", "items": manifests}
        self.kubectl("apply", "-f", "-", input=json.dumps(document))

    def wait(self, condition: str, target: str) -> None:
        self.kubectl("wait", f"--for=condition={condition}", target, "--timeout=60s")

    def pods(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return items


@pytest.fixture
def here(cluster: Cluster, namespace: str) -> Here:
    return Here(cluster, namespace)


def test_the_fixture_marks_its_tests(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("cluster")
    assert cluster.kubectl("get", "--raw", "/readyz") == "ok"


def test_a_failing_command_carries_its_error(cluster: Cluster) -> None:
    with pytest.raises(CommandError, match="`kubectl get pod none` ended with status 1") as caught:
        cluster.kubectl("get", "pod", "none")
    assert "NotFound" in caught.value.stderr
    assert caught.value.command == ("kubectl", "get", "pod", "none")


@pytest.mark.parametrize(("headers", "status"), [({}, 403), ({"Authorization": "Bearer guess"}, 401)])
def test_strangers_are_refused(cluster: Cluster, headers: dict[str, str], status: int) -> None:
    address = urlsplit(cluster.server)
    context = ssl.create_default_context(cafile=cluster.layout.certificate("ca"))
    connection = HTTPSConnection(address.hostname or "", address.port, context=context)
    try:
        connection.request("GET", "/api/v1/nodes", headers=headers)
        assert connection.getresponse().status == status
    finally:
        connection.close()


def test_a_service_account_may_do_what_its_roles_say(cluster: Cluster, namespace: str, here: Here) -> None:
    here.kubectl("create", "serviceaccount", "robot")
    credentials = f"--kubeconfig={cluster.kubeconfig_for_service_account(namespace, 'robot')}"
    with pytest.raises(CommandError, match="forbidden"):
        cluster.kubectl("get", "pods", credentials)

    here.kubectl(
        "create", "rolebinding", "robot", "--clusterrole=view", f"--serviceaccount={namespace}:robot"
    )
    assert cluster.kubectl("get", "pods", credentials) == ""
    with pytest.raises(CommandError, match="forbidden"):
        cluster.kubectl("get", "nodes", credentials)


def test_aggregated_apis_can_authenticate_the_front_proxy(cluster: Cluster) -> None:
    name = "extension-apiserver-authentication"
    found = json.loads(cluster.kubectl("get", "configmap", name, "-n", "kube-system", "-o", "json"))["data"]
    assert json.loads(found["requestheader-allowed-names"]) == ["front-proxy-client"]
    assert found["requestheader-client-ca-file"] == cluster.layout.certificate("front-proxy-ca").read_text()
    assert found["client-ca-file"] == cluster.layout.certificate("ca").read_text()


def test_gpu_pods_land_on_racks_and_become_ready(cluster: Cluster, here: Here) -> None:
    here.apply(deployment("model", 3, gpus=4))
    here.wait("Available", "deployment/model")
    racks = {
        node["metadata"]["name"]: node["metadata"]["labels"][RACK_LABEL]
        for node in json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    }
    pods = here.pods()
    assert len(pods) == 3
    for pod in pods:
        status = pod["status"]
        assert racks[pod["spec"]["nodeName"]].startswith("rack-")
        assert {condition["type"]: condition["status"] for condition in status["conditions"]}[
            "Ready"
        ] == "True"
        assert status["podIP"].startswith("10.244.")
        assert [container["ready"] for container in status["containerStatuses"]] == [True]

    here.kubectl("delete", "pod", pods[0]["metadata"]["name"], "--timeout=30s")


def test_a_pod_can_load_and_drain_at_its_own_pace(here: Here) -> None:
    slow = {f"pod-{stage}.stage.kwok.x-k8s.io/delay": DAY_LONG for stage in ("ready", "delete")}
    here.apply(deployment("slow", 1, annotations=slow))
    here.kubectl("wait", "--for=condition=PodScheduled", "pod", "-l", "app=slow", "--timeout=60s")
    here.apply(deployment("usual", 1))
    here.wait("Available", "deployment/usual")
    here.kubectl("delete", "deployment", "usual", "--cascade=foreground", "--timeout=30s")

    here.kubectl("delete", "pod", "-l", "app=slow", "--wait=false")
    (loading, draining) = sorted(here.pods(), key=lambda pod: "deletionTimestamp" in pod["metadata"])
    assert loading["status"]["phase"] == draining["status"]["phase"] == "Pending"
    # Else the namespace would stay for a day.
    here.kubectl("delete", "deployment", "slow")
    here.kubectl("delete", "pod", "-l", "app=slow", "--force", "--grace-period=0", "--timeout=30s")


def test_a_pod_group_stays_in_one_rack(here: Here) -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "pack"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 4}},
            "schedulingConstraints": {"topology": [{"key": RACK_LABEL}]},
        },
    }
    here.apply(group, deployment("pack", 4, gpus=5, group="pack"))
    here.wait("Available", "deployment/pack")
    nodes = {pod["spec"]["nodeName"] for pod in here.pods()}
    assert len(nodes) == 4
    assert len({node.rpartition("-")[0] for node in nodes}) == 1


def test_the_autoscaler_runs(here: Here) -> None:
    here.kubectl("create", "deployment", "model", "--image=model")
    here.kubectl("autoscale", "deployment", "model", "--max=3", "--cpu=50%")
    here.wait("ScalingActive=false", "hpa/model")
    found = json.loads(here.kubectl("get", "hpa", "model", "-o", "json"))["status"]["conditions"]
    reasons = {condition["type"]: condition["reason"] for condition in found}
    assert reasons["AbleToScale"] == "SucceededGetScale"


def test_writes_can_be_counted(cluster: Cluster, here: Here) -> None:
    began = datetime.now(UTC)
    here.kubectl("create", "configmap", "counted")
    events = list(cluster.audit().events(username="admin", verb="create", since=began))
    assert [(event.resource, event.name, event.code, event.is_write) for event in events] == [
        ("configmaps", "counted", 201, True)
    ]
    assert events[0].user_agent.startswith("kubectl/v")


def test_helm_speaks_to_the_cluster(cluster: Cluster, namespace: str) -> None:
    assert json.loads(cluster.helm("list", "--namespace", namespace, "--output", "json")) == []
    with pytest.raises(CommandError, match="release: not found"):
        cluster.helm("status", "none", "--namespace", namespace)
