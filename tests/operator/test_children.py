from __future__ import annotations

import pytest
import yaml

from e2e.cluster import wait_until
from tests.operator.conftest import RunningOperator
from tests.operator.kube import Kube, manifest

pytestmark = pytest.mark.usefixtures("operator")

CHILDREN = "deployments,services,hpa,serviceaccounts,roles,rolebindings"
OURS = ("-l", "disagg.dev/name=llama")


@pytest.mark.parametrize(
    "child", ["deployment/llama-decode", "service/llama-router", "hpa/llama-prefill", "role/llama-router"]
)
def test_a_deleted_child_comes_back(kube: Kube, child: str) -> None:
    kube.apply(manifest(prefill={"autoscaling": {"maxReplicas": 2}}))
    kube.ready()
    kind, name = child.split("/")
    uid = kube.get(kind, name)["metadata"]["uid"]
    kube.run("delete", child)

    def is_back() -> bool:
        found = kube.find(kind, name)
        return found is not None and found["metadata"]["uid"] != uid

    wait_until(f"{child} to come back", is_back)


def test_drift_of_our_fields_is_taken_back_and_what_others_add_stays(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    foreign = '{"metadata": {"labels": {"team": "a"}}, "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 1}]}}'
    kube.run("patch", "service", "llama-router", "-p", foreign)

    def taken_back() -> bool:
        return bool(kube.get("service", "llama-router")["spec"]["ports"][0]["targetPort"] == 8080)

    wait_until("the port", taken_back)
    assert kube.get("service", "llama-router")["metadata"]["labels"]["team"] == "a"


def test_removing_a_block_removes_its_objects(kube: Kube) -> None:
    kube.apply(manifest(prefill={"autoscaling": {"maxReplicas": 2}}))
    kube.ready()
    kube.patch("llama", {"prefill": {"autoscaling": None}, "router": {"kind": "none"}})

    def left() -> set[str]:
        return kube.names(CHILDREN, *OURS)

    engines = {
        f"{kind}/llama-{role}" for kind in ("deployment.apps", "service") for role in ("prefill", "decode")
    }
    wait_until("router and autoscaler to go", lambda: left() == engines)
    kube.wait_for("llama", "RouterReady", reason="RouterDisabled")
    assert "endpoint" not in kube.get("dinf", "llama")["status"]


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(
            {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}, id="service"
        ),
        pytest.param({"apiVersion": "v1", "kind": "ServiceAccount"}, id="service account"),
    ],
)
def test_a_foreign_object_with_a_wanted_name_is_left_alone_and_named(
    kube: Kube, foreign: dict[str, object]
) -> None:
    kube.apply(foreign | {"metadata": {"name": "llama-router"}})
    kind = str(foreign["kind"])
    before = kube.get(kind, "llama-router")
    kube.apply(manifest())
    condition = kube.wait_for("llama", "Stalled", "True", "NameConflict")
    assert condition["message"].startswith(f"{kind} llama-router exists and is not this resource's")
    assert kube.get(kind, "llama-router") == before
    assert kube.names(CHILDREN, *OURS) == set()


def test_a_name_that_is_free_again_is_taken(kube: Kube) -> None:
    kube.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "llama-router"}})
    kube.apply(manifest())
    kube.wait_for("llama", "Stalled", "True", "NameConflict")
    kube.run("delete", "serviceaccount", "llama-router")
    kube.patch("llama", {"prefill": {"replicas": 2}})
    kube.ready()


def test_deleting_the_resource_deletes_its_children(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    kube.run("delete", "dinf", "llama", "--timeout=60s")
    wait_until("the children to go", lambda: not kube.names(f"{CHILDREN},pods", *OURS))


def test_a_resource_that_is_made_again_at_once_works_at_once(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    kube.run("delete", "dinf", "llama", "--wait=false")
    kube.apply(manifest(prefill={"replicas": 2}))
    kube.ready()
    uid = kube.get("dinf", "llama")["metadata"]["uid"]

    def owners() -> set[str]:
        listed = yaml.safe_load(kube.run("get", CHILDREN, *OURS, "-o", "yaml"))["items"]
        return {owner["uid"] for item in listed for owner in item["metadata"]["ownerReferences"]}

    wait_until("all children to belong to the new resource", lambda: owners() == {uid})
    kube.ready()


def test_orphans_are_adopted_without_a_restart(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    pods = kube.names("pods", *OURS)
    kube.run("delete", "dinf", "llama", "--cascade=orphan")
    kube.apply(manifest())
    kube.ready()
    uid = kube.get("dinf", "llama")["metadata"]["uid"]
    assert [
        owner["uid"] for owner in kube.get("deployment", "llama-decode")["metadata"]["ownerReferences"]
    ] == [uid]
    assert kube.names("pods", *OURS) == pods


def test_with_the_operator_stopped_serving_is_untouched(kube: Kube, operator: RunningOperator) -> None:
    kube.apply(manifest(decode={"replicas": 2}))
    kube.ready()
    pods = kube.names("pods", *OURS)
    operator.stop()
    assert kube.names("pods", *OURS) == pods
    victim = min(pods)
    kube.run("delete", victim)
    wait_until("a new pod", lambda: len(kube.names("pods", *OURS)) == len(pods))


def test_what_was_lost_while_the_operator_was_down_comes_back(kube: Kube, operator: RunningOperator) -> None:
    kube.apply(manifest())
    kube.ready()
    operator.kill()
    kube.run("delete", "service", "llama-decode")
    operator.restart()
    wait_until("the Service", lambda: kube.find("service", "llama-decode"))


def test_a_child_whose_labels_were_taken_off_gets_them_back(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    kube.run("label", "service", "llama-router", "disagg.dev/name-", "app.kubernetes.io/managed-by-")
    kube.patch("llama", {"prefill": {"replicas": 2}})
    kube.ready()
    assert kube.get("service", "llama-router")["metadata"]["labels"]["disagg.dev/name"] == "llama"


def test_the_parents_labels_stay_with_the_parent(kube: Kube) -> None:
    labelled = manifest()
    labelled["metadata"]["labels"] = {"app.kubernetes.io/instance": "argo-app"}
    kube.apply(labelled)
    kube.ready()
    assert "app.kubernetes.io/instance" not in kube.get("deployment", "llama-decode")["metadata"]["labels"]


def test_the_resource_carries_no_finalizer_and_no_annotation_of_ours(kube: Kube) -> None:
    created = kube.cluster.kubectl(
        "-n", kube.namespace, "create", "-f", "-", input=yaml.safe_dump(manifest())
    )
    assert "created" in created
    kube.ready()
    metadata = kube.get("dinf", "llama")["metadata"]
    assert "finalizers" not in metadata
    assert "annotations" not in metadata


def test_what_a_user_makes_with_our_labels_is_never_deleted(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    # kubectl gives the Service the labels of the Deployment.
    kube.run("expose", "deployment", "llama-prefill", "--name=debug", "--port=8000")
    kube.patch("llama", {"prefill": {"replicas": 2}})
    kube.ready()
    assert kube.find("service", "debug") is not None


def test_an_empty_label_disturbs_nobody(kube: Kube, operator: RunningOperator) -> None:
    kube.run("create", "service", "clusterip", "weird", "--tcp=80:80")
    kube.run("label", "service", "weird", "app.kubernetes.io/managed-by=disagg", "disagg.dev/name=")
    kube.run("label", "service", "weird", "more=1")
    kube.apply(manifest())
    kube.ready()
    assert operator.passes("error") == 0
