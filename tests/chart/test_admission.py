"""What the ValidatingAdmissionPolicies leave of the operator's rights to patch and to delete pods."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from disagg.api.names import DOMAIN_LABEL, LEVEL_LABELS, PLACEMENT, TOPOLOGY_MANAGER
from disagg.topology.levels import Level
from e2e.cluster import Cluster, CommandError, wait_until
from e2e.operator_process import SERVICE_ACCOUNT, install_chart
from tests.chart.cases import EVERYTHING
from tests.chart.helm import Helm, Object, Values

POLICY = "disagg-pod-labels"
DELETION = "disagg-pod-deletion"
LABELS = {"app": "web", "team": "ml"}
OUR_LABELS = {DOMAIN_LABEL: "rack-1", **{f"{LEVEL_LABELS}{level}": f"{level}-1" for level in Level}}
ONLY_OUR_LABELS = (
    "the operator may change no label of a pod but disagg.dev/domain and topology.disagg.dev/*: "
)


@dataclass(frozen=True)
class Pod:
    """A pod with labels and an annotation of others, and who changes it.

    Attributes:
        cluster: Where it is.
        namespace: Its namespace.
        kubeconfig: Credentials of the operator, or none for the administrator's.
    """

    cluster: Cluster
    namespace: str
    kubeconfig: str = ""

    def kubectl(self, *arguments: str, obj: Object | None = None) -> str:
        identity = [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        return self.cluster.kubectl(
            *identity,
            f"--namespace={self.namespace}",
            *arguments,
            input=None if obj is None else json.dumps(obj),
        )

    def patch(self, patch: Any, kind: str = "merge") -> None:  # noqa: ANN401 - a list or an object
        self.kubectl("patch", "pod", "web", f"--type={kind}", f"--patch={json.dumps(patch)}")

    def apply(self, metadata: Object, manager: str = TOPOLOGY_MANAGER) -> None:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"} | metadata}
        self.kubectl("apply", "--server-side", f"--field-manager={manager}", "-f", "-", obj=pod)

    def read(self) -> Object:
        """The pod without what others change: its status, and the labels that Kubernetes adds when it is bound."""
        pod: Object = json.loads(self.kubectl("get", "pod", "web", "--output=json"))
        labels = pod["metadata"]["labels"]
        pod["metadata"]["labels"] = {
            key: value for key, value in labels.items() if not key.startswith("topology.kubernetes.io/")
        }
        return {"metadata": pod["metadata"], "spec": pod["spec"]}


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> str:
    """Credentials of the operator, once the policy is in force."""
    install_chart(cluster)
    kubeconfig = str(cluster.kubeconfig_for_service_account(*SERVICE_ACCOUNT))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "policy-in-force", "namespace": "default"},
        "spec": {"containers": [{"name": "web", "image": "web"}], "schedulerName": "nobody"},
    }
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "--namespace=default", "--timeout=60s")
    cluster.kubectl("apply", "-f", "-", input=json.dumps(pod))

    change = ("label", "pod", "policy-in-force", "a=b", "--dry-run=server", "--namespace=default")

    def refuses() -> bool:
        try:
            cluster.kubectl(*change, f"--kubeconfig={kubeconfig}")
        except CommandError as error:
            if POLICY not in error.stderr:
                raise
            return True
        return False

    wait_until("the policy is in force", refuses, seconds=60)
    cluster.kubectl("delete", "pod", "policy-in-force", "--namespace=default", "--force", "--grace-period=0")
    return kubeconfig


@pytest.fixture
def admin(cluster: Cluster, namespace: str) -> Pod:
    """The pod in the hands of the administrator. No scheduler places it, so that nothing else changes it."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": LABELS, "annotations": {"note": "keep"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}], "schedulerName": "nobody"},
    }
    hands = Pod(cluster, namespace)
    hands.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    hands.kubectl("create", "-f", "-", obj=pod)
    return hands


@pytest.fixture
def robot(admin: Pod, kubeconfig: str) -> Pod:
    """The pod in the hands of the operator."""
    return Pod(admin.cluster, admin.namespace, kubeconfig)


def test_operator_labels_a_pod_that_has_other_labels(robot: Pod) -> None:
    robot.apply({"labels": OUR_LABELS})
    assert robot.read()["metadata"]["labels"] == LABELS | OUR_LABELS


def test_operator_changes_and_removes_its_labels(robot: Pod) -> None:
    robot.apply({"labels": OUR_LABELS})
    robot.apply({"labels": {DOMAIN_LABEL: "rack-2"}})
    assert robot.read()["metadata"]["labels"] == LABELS | {DOMAIN_LABEL: "rack-2"}


def test_operator_labels_by_any_kind_of_patch(robot: Pod) -> None:
    robot.patch({"metadata": {"labels": {DOMAIN_LABEL: "a"}}})
    robot.patch({"metadata": {"labels": {f"{LEVEL_LABELS}rack": "a"}}}, "strategic")
    robot.patch([{"op": "replace", "path": "/metadata/labels/disagg.dev~1domain", "value": "b"}], "json")
    expected = LABELS | {DOMAIN_LABEL: "b", f"{LEVEL_LABELS}rack": "a"}
    assert robot.read()["metadata"]["labels"] == expected


def test_operator_labels_a_pod_that_has_no_labels(robot: Pod, admin: Pod) -> None:
    admin.patch({"metadata": {"labels": None, "annotations": None}})
    robot.apply({"labels": OUR_LABELS})
    robot.patch({"metadata": {"labels": dict.fromkeys(OUR_LABELS)}})
    assert "labels" not in json.loads(robot.kubectl("get", "pod", "web", "--output=json"))["metadata"]


def test_operator_makes_no_pod_by_labelling_one_that_is_gone(robot: Pod, admin: Pod) -> None:
    uid = robot.read()["metadata"]["uid"]
    admin.kubectl("delete", "pod", "web", "--force", "--grace-period=0")
    with pytest.raises(CommandError, match="uid mismatch"):
        robot.apply({"uid": uid, "labels": OUR_LABELS})


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        # Kubernetes itself allows each of these changes.
        ({"metadata": {"labels": {"other": "x"}}}, f"{ONLY_OUR_LABELS}other"),
        ({"metadata": {"labels": {"team": "x"}}}, f"{ONLY_OUR_LABELS}team"),
        ({"metadata": {"labels": {"team": None}}}, f"{ONLY_OUR_LABELS}team"),
        # In whatever order.
        ({"metadata": {"labels": None}}, ONLY_OUR_LABELS),
        ({"metadata": {"labels": {DOMAIN_LABEL: "a", "app": "x"}}}, f"{ONLY_OUR_LABELS}app"),
        ({"metadata": {"labels": {"disagg.dev/role": "x"}}}, f"{ONLY_OUR_LABELS}disagg.dev/role"),
        ({"metadata": {"labels": {"disagg.dev/domains": "x"}}}, f"{ONLY_OUR_LABELS}disagg.dev/domains"),
        ({"metadata": {"annotations": {"a": "b"}}}, "may not change the annotations"),
        ({"metadata": {"annotations": {"note": None}}}, "may not change the annotations"),
        ({"metadata": {"finalizers": ["example.com/a"]}}, "may not change the finalizers"),
        ({"metadata": {"generateName": "a"}}, "may not change the generateName"),
        ({"metadata": {"ownerReferences": [OWNER]}}, "may not change the ownerReferences"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "may not change the spec"),
        ({"spec": {"containers": [{"name": "web", "image": "evil"}]}}, "may not change the spec"),
        ({"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}, "may not change the spec"),
    ],
    ids=json.dumps,
)
def test_operator_changes_nothing_else_of_a_pod(robot: Pod, patch: Object, message: str) -> None:
    before = robot.read()
    with pytest.raises(CommandError) as refusal:
        robot.patch(patch, "strategic")
    assert (
        f"(Forbidden): pods \"web\" is forbidden: ValidatingAdmissionPolicy '{POLICY}'"
        in refusal.value.stderr
    )
    assert message in refusal.value.stderr
    assert robot.read() == before


def test_operator_applies_nothing_but_its_labels(robot: Pod) -> None:
    with pytest.raises(CommandError, match="may not change the annotations"):
        robot.apply({"labels": OUR_LABELS, "annotations": {"a": "b"}})
    with pytest.raises(CommandError, match=r"topology\.disagg\.dev/\*: other"):
        robot.apply({"labels": OUR_LABELS | {"other": "x"}})


def test_others_change_pods_as_before(robot: Pod, admin: Pod) -> None:
    robot.apply({"labels": OUR_LABELS})
    admin.patch(
        {
            "metadata": {"labels": {DOMAIN_LABEL: None, "team": "x"}, "annotations": {"a": "b"}},
            "spec": {"containers": [{"name": "web", "image": "web:2"}]},
        },
        "strategic",
    )
    pod = admin.read()
    assert pod["metadata"]["labels"]["team"] == "x"
    assert pod["spec"]["containers"][0]["image"] == "web:2"


def test_operator_labels_a_pod_after_others_have_changed_it(robot: Pod, admin: Pod) -> None:
    admin.patch({"metadata": {"annotations": {"a": "b"}, "finalizers": ["example.com/a"]}})
    robot.apply({"labels": OUR_LABELS})
    admin.patch({"metadata": {"finalizers": None}})
    assert robot.read()["metadata"]["labels"] == LABELS | OUR_LABELS


def test_operator_deletes_pods_of_packed_groups_only(robot: Pod, admin: Pod) -> None:
    with pytest.raises(CommandError, match="may delete no pod but those of packed groups") as refusal:
        robot.kubectl("delete", "pod", "web", "--wait=false")
    assert DELETION in refusal.value.stderr
    admin.patch({"metadata": {"labels": {PLACEMENT: "1a2b3c4d"}}})
    robot.kubectl("delete", "pod", "web", "--wait=false")


@pytest.mark.parametrize("policy", [POLICY, DELETION])
def test_api_server_finds_nothing_wrong_in_the_types_of_the_policy(
    cluster: Cluster, kubeconfig: str, policy: str
) -> None:
    def status() -> Object:
        answer = cluster.kubectl("get", "validatingadmissionpolicy", policy, "--output=json")
        return dict(json.loads(answer).get("status", {}))

    assert kubeconfig
    wait_until("the policy is checked", lambda: "observedGeneration" in status(), seconds=60)
    assert not status()["typeChecking"].get("expressionWarnings")


@pytest.mark.parametrize(
    ("values", "username"),
    [
        ({}, "inference:disagg"),
        (EVERYTHING, "operators:robot"),
        ({"serviceAccount": {"create": False, "name": "robot"}}, "inference:robot"),
        ({"serviceAccount": {"create": False}}, "inference:default"),
    ],
    ids=["defaults", "everything", "foreign", "default of the namespace"],
)
def test_policy_is_for_the_account_that_the_pods_run_as(helm: Helm, values: Values, username: str) -> None:
    policies = helm.template(values).all("ValidatingAdmissionPolicy")
    assert len(policies) == 2
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"] == f"request.userInfo.username == 'system:serviceaccount:{username}'"


def test_binding_enforces_the_policy(helm: Helm) -> None:
    rendering = helm.template({"fullnameOverride": "d" * 63})
    policies = [policy["metadata"]["name"] for policy in rendering.all("ValidatingAdmissionPolicy")]
    assert [binding["spec"] for binding in rendering.all("ValidatingAdmissionPolicyBinding")] == [
        {"policyName": policy, "validationActions": ["Deny"]} for policy in policies
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"admissionPolicy": {"enabled": False}},
        {"rbac": {"create": False}},
        {"rbac": {"scope": "namespaced"}},
    ],
    ids=["not wanted", "rights by others", "namespaced"],
)
def test_no_policy(helm: Helm, values: Values) -> None:
    assert "ValidatingAdmissionPolicy" not in helm.template(values).text
