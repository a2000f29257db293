"""Which nodes a pod may run on."""

from __future__ import annotations

from typing import Any

import pytest

from disagg.topology.eligibility import PodShape, is_eligible, shape_of
from disagg.topology.nodes import Node, Taint, parse_node

LABELS = {"zone": "a", "disks": "4", "kubernetes.io/hostname": "n1"}


def shape(spec: dict[str, Any], labels: dict[str, str] | None = None) -> PodShape:
    return shape_of({"metadata": {"labels": labels or {}}, "spec": {"containers": [{"name": "c"}], **spec}})


def affine(*terms: dict[str, Any]) -> PodShape:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return shape({"affinity": {"nodeAffinity": required}})


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def named(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


def node(**fields: Any) -> Node:  # noqa: ANN401
    return Node(**{"name": "n1", "labels": LABELS, "allocatable": {}, **fields})


@pytest.mark.parametrize(
    ("selector", "eligible"),
    [({}, True), ({"zone": "a"}, True), ({"zone": "b"}, False), ({"zone": "a", "rack": "1"}, False)],
)
def test_a_node_selector_names_labels_that_must_all_be_there(
    selector: dict[str, str], *, eligible: bool
) -> None:
    assert is_eligible(node(), shape({"nodeSelector": selector})) is eligible


@pytest.mark.parametrize(
    ("term", "eligible"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "b"), False),
        (expression("rack", "In", "a"), False),
        (expression("zone", "NotIn", "a"), False),
        (expression("zone", "NotIn", "b"), True),
        (expression("rack", "NotIn", "b"), True),
        (expression("zone", "Exists"), True),
        (expression("rack", "Exists"), False),
        (expression("zone", "DoesNotExist"), False),
        (expression("rack", "DoesNotExist"), True),
        (expression("disks", "Gt", "3"), True),
        (expression("disks", "Gt", "4"), False),
        (expression("disks", "Lt", "5"), True),
        (expression("disks", "Lt", "4"), False),
        (expression("zone", "Gt", "1"), False),
        (expression("disks", "Gt"), False),
        (expression("rack", "Lt", "1"), False),
        (expression("zone", "Near", "a"), False),
        (named("In", "n1"), True),
        (named("In", "n2"), False),
        (named("NotIn", "n1"), False),
        (named("In", "n1") | expression("zone", "In", "b"), False),
        ({}, False),
        ({"matchExpressions": [], "matchFields": None}, False),
    ],
)
def test_a_term_of_node_affinity_holds_as_documented(term: dict[str, Any], *, eligible: bool) -> None:
    assert is_eligible(node(), affine(term)) is eligible


def test_one_term_of_several_is_enough_and_none_matches_nothing() -> None:
    assert is_eligible(node(), affine(expression("zone", "In", "b"), expression("zone", "In", "a")))
    assert is_eligible(node(), affine({}, expression("zone", "Exists")))
    assert not is_eligible(node(), affine())


GPU = Taint("nvidia.com/gpu", "present", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "eligible"),
    [
        ({"key": GPU.key, "operator": "Exists"}, True),
        ({"key": GPU.key, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": GPU.key, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": GPU.key, "operator": "Equal", "value": "present"}, True),
        ({"key": GPU.key, "value": "present"}, True),
        ({"key": GPU.key, "value": "other"}, False),
        ({"key": GPU.key}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": GPU.key, "operator": "Near", "value": "present"}, False),
    ],
)
def test_a_toleration_lifts_the_taints_it_names(toleration: dict[str, Any], *, eligible: bool) -> None:
    assert is_eligible(node(taints=(GPU,)), shape({"tolerations": [toleration]})) is eligible


def test_each_taint_must_be_tolerated() -> None:
    tainted = node(taints=(GPU, Taint("maintenance", "", "NoExecute")))
    assert not is_eligible(tainted, shape({"tolerations": [{"key": GPU.key, "operator": "Exists"}]}))
    assert is_eligible(tainted, shape({"tolerations": [{"operator": "Exists"}]}))


def test_a_cordoned_node_takes_only_what_tolerates_that() -> None:
    cordoned = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    assert not is_eligible(node(unschedulable=True), shape({}))
    assert is_eligible(node(unschedulable=True), shape({"tolerations": [cordoned]}))


def test_a_node_that_is_not_ready_takes_nothing() -> None:
    assert not is_eligible(node(ready=False), shape({"tolerations": [{"operator": "Exists"}]}))


@pytest.mark.parametrize(
    ("term", "apart"),
    [
        ({"labelSelector": {"matchLabels": {"app": "x"}}}, True),
        ({"labelSelector": {"matchLabels": {"app": "y"}}}, False),
        ({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}}, True),
        ({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, False),
        ({"labelSelector": {}}, True),
        ({}, False),
        ({"labelSelector": {}, "topologyKey": "topology.kubernetes.io/zone"}, False),
    ],
)
def test_a_pod_that_shuns_its_own_kind_is_alone_on_a_node(term: dict[str, Any], *, apart: bool) -> None:
    terms = [{"topologyKey": "kubernetes.io/hostname"} | term]
    required = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert shape({"affinity": required}, {"app": "x"}).one_per_node is apart


def test_equal_templates_have_equal_shapes() -> None:
    spec = {"nodeSelector": {"b": "1", "a": "2"}, "tolerations": [{"operator": "Exists"}]}
    assert shape(spec) == shape(dict(spec))
    assert hash(shape(spec)) == hash(shape(dict(spec)))


def test_a_node_is_read_as_far_as_it_matters() -> None:
    raw = {
        "metadata": {"name": "n1", "labels": LABELS, "annotations": {"a": "b"}},
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": GPU.key, "value": "present", "effect": "NoSchedule"},
                {"key": "soft", "effect": "PreferNoSchedule"},
            ],
        },
        "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert parse_node(raw) == node(allocatable={"cpu": 4000}, taints=(GPU,), unschedulable=True)
    assert parse_node({"metadata": {"name": "n2"}}) == Node("n2", {}, {}, ready=False)
