from __future__ import annotations

from typing import Any

import pytest

from disagg.api.resource import parse
from disagg.build.rbac import pod_discovery
from disagg.reconcile.kinds import CHILD_KINDS
from tests.chart.helm import Helm, Object, Values

Rights = dict[tuple[str, str], list[str]]
"""Verbs by group and resource."""

READ = ["get", "list", "watch"]
MANAGE = [*READ, "create", "patch", "delete"]
RBAC_GROUP = "rbac.authorization.k8s.io"

OPERATOR_RIGHTS: Rights = {
    ("disagg.dev", "disaggregatedinferences"): READ,
    ("disagg.dev", "disaggregatedinferences/status"): ["patch"],
    ("apps", "deployments"): MANAGE,
    ("", "services"): MANAGE,
    ("", "serviceaccounts"): MANAGE,
    ("autoscaling", "horizontalpodautoscalers"): MANAGE,
    (RBAC_GROUP, "roles"): MANAGE,
    (RBAC_GROUP, "rolebindings"): MANAGE,
    ("", "pods"): READ,
    ("scheduling.k8s.io", "podgroups"): MANAGE,
    ("", "events"): ["create"],
}
CLUSTER_RIGHTS: Rights = OPERATOR_RIGHTS | {
    ("", "nodes"): READ,
    ("", "pods"): [*READ, "patch", "delete"],
}

NAMESPACED: Values = {"rbac": {"scope": "namespaced"}, "watchNamespaces": ["staging", "production"]}


def rights(role: Object) -> Rights:
    """What a role grants. No verb may be granted twice."""
    table: Rights = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                verbs = table.setdefault((group, resource), [])
                assert not set(verbs) & set(rule["verbs"])
                verbs += rule["verbs"]
    return table


def named(objects: list[Object], name: str) -> Object:
    (obj,) = (obj for obj in objects if obj["metadata"]["name"] == name)
    return obj


def test_cluster_scope_grants_exactly_this_everywhere(helm: Helm) -> None:
    rendering = helm.template()
    assert rights(named(rendering.all("ClusterRole"), "disagg")) == CLUSTER_RIGHTS
    assert rendering.all("Role") == []


def test_cluster_scope_binds_only_the_operators_role(helm: Helm) -> None:
    rendering = helm.template()
    binding = rendering.one("ClusterRoleBinding")
    assert binding["roleRef"] == {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "disagg"}
    assert rendering.all("RoleBinding") == []


def test_namespaced_scope_grants_exactly_this_in_each_watched_namespace(helm: Helm) -> None:
    roles = helm.template(NAMESPACED).all("Role")
    assert {role["metadata"]["namespace"]: rights(role) for role in roles} == {
        "production": OPERATOR_RIGHTS,
        "staging": OPERATOR_RIGHTS,
    }


def test_operator_may_manage_whatever_it_makes(helm: Helm) -> None:
    held = rights(named(helm.template().all("ClusterRole"), "disagg"))
    made = {(kind.group, kind.plural): MANAGE for kind in CHILD_KINDS.values()}
    assert made.items() <= held.items()


@pytest.mark.parametrize("mode", ["off", False])
def test_operator_that_makes_no_pod_groups_has_no_rights_on_them(helm: Helm, mode: str | bool) -> None:
    values = {"placement": {"podGroup": mode}}
    without = {key: verbs for key, verbs in OPERATOR_RIGHTS.items() if key[1] != "podgroups"}
    assert rights(helm.template({"rbac": {"scope": "namespaced"}} | values).one("Role")) == without
    assert "podgroups" not in helm.template(values).text


def test_namespaced_scope_binds_the_service_account_in_each_watched_namespace(helm: Helm) -> None:
    bindings = helm.template(NAMESPACED).all("RoleBinding")
    assert [binding["metadata"]["namespace"] for binding in bindings] == ["production", "staging"]
    for binding in bindings:
        assert binding["roleRef"] == {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "disagg"}
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "disagg", "namespace": "inference"}]


def test_namespaced_scope_without_a_list_is_the_releases_namespace(helm: Helm) -> None:
    role = helm.template({"rbac": {"scope": "namespaced"}}).one("Role")
    assert role["metadata"]["namespace"] == "inference"


def test_namespaced_scope_has_no_cluster_wide_rights(helm: Helm) -> None:
    rendering = helm.template(NAMESPACED | {"operator": {"leaderElection": True}})
    assert rendering.all("ClusterRole") == rendering.all("ClusterRoleBinding") == []


def test_leader_election_grants_one_lease_in_the_operators_namespace(helm: Helm) -> None:
    rendering = helm.template({"operator": {"leaderElection": True}})
    role = rendering.one("Role")
    assert role["metadata"]["namespace"] == "inference"
    assert role["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["disagg-operator"],
            "verbs": ["get", "update"],
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    ]
    assert rendering.one("RoleBinding")["roleRef"]["name"] == role["metadata"]["name"]


def test_no_rights_on_leases_without_leader_election(helm: Helm) -> None:
    assert "leases" not in helm.template().text


def test_rbac_can_be_left_to_others(helm: Helm) -> None:
    rendering = helm.template({"rbac": {"create": False}, "operator": {"leaderElection": True}})
    assert not [obj for obj in rendering.objects if obj["apiVersion"].startswith(RBAC_GROUP)]


@pytest.mark.parametrize(
    ("role", "verbs"),
    [
        ("view", READ),
        ("edit", [*READ, "create", "update", "patch", "delete", "deletecollection"]),
        ("admin", ["*"]),
    ],
)
def test_built_in_role_gains_rights_on_the_resource(helm: Helm, role: str, verbs: list[str]) -> None:
    found = named(helm.template().all("ClusterRole"), f"disagg-{role}")
    assert found["metadata"]["labels"][f"{RBAC_GROUP}/aggregate-to-{role}"] == "true"
    assert rights(found) == {
        ("disagg.dev", "disaggregatedinferences"): verbs,
        ("disagg.dev", "disaggregatedinferences/status"): ["get"],
    }


def test_rights_of_users_can_be_left_out(helm: Helm) -> None:
    role = helm.template({"rbac": {"aggregateClusterRoles": False}}).one("ClusterRole")
    assert role["metadata"]["name"] == "disagg"


def test_operator_holds_every_right_that_it_grants_to_routers(helm: Helm) -> None:
    resource: dict[str, Any] = {
        "apiVersion": "disagg.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {"name": "llama", "namespace": "inference", "uid": "1", "generation": 1},
        "spec": {"model": {"uri": "hf://a/b"}, "engine": {"image": "vllm"}},
    }
    (granted,) = (rights(obj) for obj in pod_discovery(parse(resource)) if obj["kind"] == "Role")
    held = rights(named(helm.template().all("ClusterRole"), "disagg"))
    for right, verbs in granted.items():
        assert set(verbs) <= set(held[right])
