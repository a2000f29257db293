from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings

from disagg.api.resource import DisaggregatedInference
from disagg.reconcile import compare
from tests.unit import strategies
from tests.unit.resources import live, managed, objects, overlaid, resource, running, tree_of

WANTED = resource(prefill={"replicas": 2, "autoscaling": None})
DESIRED = objects(WANTED)["Deployment", "llama-prefill"]
LIVE = live(DESIRED)
ENGINE = 'k:{"name":"engine"}'

Change = Callable[[dict[str, Any]], object]


def changed(change: Change, *, base: dict[str, Any] = LIVE) -> dict[str, Any]:
    """`base` after `change`."""
    obj = deepcopy(base)
    change(obj)
    return obj


def ours(obj: dict[str, Any]) -> dict[str, Any]:
    """The tree of the operator's own fields."""
    return dict(obj["metadata"]["managedFields"][0]["fieldsV1"])


def engine(obj: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = obj["spec"]["template"]["spec"]["containers"][0]
    return container


def engine_tree(obj: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = ours(obj)["f:spec"]["f:template"]["f:spec"]["f:containers"][ENGINE]
    return tree


def template_of(obj: dict[str, Any], manager: str, operation: str = "Update") -> Change:
    """Give `manager` the fields of `obj`, of which only the template counts."""

    def change(target: dict[str, Any]) -> None:
        tree = tree_of({"spec": {"template": obj}})
        target["metadata"]["managedFields"].append(managed(tree, manager, operation))

    return change


RESTART = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}
UNDO = {"spec": {"containers": [{"name": "engine", "image": "old:1"}]}}


# in_sync


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda obj: obj, id="nothing"),
        pytest.param(lambda obj: obj.update(status={"replicas": 1}), id="a status"),
        pytest.param(
            lambda obj: obj["spec"].update(revisionHistoryLimit=10), id="a default of the API server"
        ),
        pytest.param(lambda obj: engine(obj).update(imagePullPolicy="Always"), id="a default of a container"),
        pytest.param(
            lambda obj: obj["spec"]["template"]["spec"]["containers"].append({"name": "injected"}),
            id="an injected container",
        ),
        pytest.param(lambda obj: obj["metadata"]["labels"].update(team="ml"), id="somebody's label"),
        pytest.param(template_of(RESTART, "kubectl-rollout"), id="a rollout restart"),
        pytest.param(
            template_of(UNDO, "argocd", "Apply"),
            id="somebody who wants the same as we do, or something else as well",
        ),
    ],
)
def test_in_sync_in_spite_of(change: Change) -> None:
    assert compare.in_sync(DESIRED, changed(change))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda obj: obj["spec"].update(replicas=3), id="a value differs"),
        pytest.param(lambda obj: obj["spec"].pop("replicas"), id="a value is gone"),
        pytest.param(lambda obj: engine(obj).update(image="other:1"), id="a value of an item differs"),
        pytest.param(lambda obj: engine(obj)["args"].append("-v"), id="a list has one more"),
        pytest.param(lambda obj: engine(obj)["args"].reverse(), id="a list has another order"),
        pytest.param(lambda obj: engine(obj)["env"].pop(), id="an item is gone"),
        pytest.param(lambda obj: obj["metadata"]["labels"].pop("disagg.dev/name"), id="a label is gone"),
        pytest.param(lambda obj: obj["metadata"]["annotations"].clear(), id="an annotation is gone"),
        pytest.param(lambda obj: obj["metadata"].update(ownerReferences=[]), id="the owner is gone"),
        pytest.param(lambda obj: ours(obj)["f:spec"].pop("f:replicas"), id="a field is not ours"),
        pytest.param(lambda obj: engine_tree(obj).pop("f:image"), id="a field of an item is not ours"),
        pytest.param(
            lambda obj: engine_tree(obj)["f:env"].pop('k:{"name":"PYTHONHASHSEED"}'), id="an item is not ours"
        ),
        pytest.param(lambda obj: obj["metadata"].update(managedFields=[]), id="nothing is ours"),
        pytest.param(lambda obj: ours(obj)["f:spec"].update({"f:paused": {}}), id="a field too many is ours"),
        pytest.param(
            lambda obj: engine_tree(obj).update({"f:tty": {}}), id="a field too many of an item is ours"
        ),
        pytest.param(template_of(UNDO, "kubectl"), id="a rollout was undone"),
        pytest.param(
            template_of(overlaid(RESTART, UNDO), "kubectl"), id="a rollout was undone, then restarted"
        ),
    ],
)
def test_not_in_sync_when(change: Change) -> None:
    assert not compare.in_sync(DESIRED, changed(change))


def test_the_present_protocol_of_a_port_may_be_left_out() -> None:
    desired = deepcopy(DESIRED)
    for port in engine(desired)["ports"]:
        del port["protocol"]
    found = live(desired)
    for port in engine(found)["ports"]:
        port["protocol"] = "TCP"
    assert compare.in_sync(desired, found)


@given(wanted=strategies.resources())
@settings(max_examples=30)
def test_each_object_is_in_sync_once_it_is_applied(wanted: DisaggregatedInference) -> None:
    for obj in objects(wanted).values():
        assert compare.in_sync(obj, live(obj))


# Undone rollouts


@pytest.mark.parametrize(
    ("change", "undone"),
    [
        pytest.param(lambda obj: obj, False, id="nothing"),
        pytest.param(template_of(RESTART, "kubectl-rollout"), False, id="restart"),
        pytest.param(template_of(UNDO, "kubectl"), True, id="undo"),
        pytest.param(template_of(overlaid(RESTART, UNDO), "kubectl"), True, id="undo and restart"),
        pytest.param(template_of(UNDO, "kubectl-set"), False, id="set image"),
        pytest.param(template_of(UNDO, "kubectl", "Apply"), False, id="an apply"),
    ],
)
def test_an_undone_rollout_is_known_by_who_wrote_the_template(change: Change, undone: bool) -> None:
    assert compare.is_undone(changed(change)) is undone


def undone() -> dict[str, Any]:
    """A Deployment after `kubectl rollout undo` and the apply that followed: what the undo added is still there."""

    def undo(obj: dict[str, Any]) -> None:
        engine(obj)["tty"] = True
        obj["spec"]["template"]["spec"]["containers"].append({"name": "old", "image": "old:1"})
        obj["metadata"]["managedFields"].append(
            managed(
                tree_of(
                    {"spec": {"template": {"spec": {"containers": [{"name": "injected", "image": "i:1"}]}}}}
                ),
                "injector",
                "Update",
            )
        )
        obj["spec"]["template"]["spec"]["containers"].append({"name": "injected", "image": "i:1"})
        old = {"spec": {"containers": [{"name": "engine", "tty": True}, {"name": "old", "image": "old:1"}]}}
        template_of(old, "kubectl")(obj)

    return changed(undo)


def patched() -> dict[str, Any]:
    """What is put in place of parts of that Deployment, by path."""
    return {step["path"]: step["value"] for step in compare.take_back(undone())}


def test_what_an_undone_rollout_has_added_is_taken_back() -> None:
    (main, injected) = patched()["/spec/template"]["spec"]["containers"]
    assert main == engine(DESIRED)
    assert injected == {"name": "injected", "image": "i:1"}


def test_who_has_undone_a_rollout_owns_nothing_any_more() -> None:
    assert [entry["manager"] for entry in patched()["/metadata/managedFields"]] == ["disagg", "injector"]


def test_nothing_is_taken_back_from_an_object_that_has_changed_meanwhile() -> None:
    assert compare.take_back(undone())[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}


def test_taking_back_changes_nothing_by_itself() -> None:
    before = undone()
    obj = deepcopy(before)
    compare.take_back(obj)
    assert obj == before


# is_ours


def owned_by(**owner: object) -> dict[str, Any]:
    reference = resource().owner_reference | owner
    return {"metadata": {"ownerReferences": [reference]}}


LABELS = {"app.kubernetes.io/managed-by": "disagg", "disagg.dev/name": "llama"}


@pytest.mark.parametrize(
    ("obj", "is_ours"),
    [
        pytest.param(owned_by(), True, id="owned"),
        pytest.param(owned_by(uid="earlier"), True, id="owned by the resource that had its name before"),
        pytest.param(owned_by(uid="other", name="other"), False, id="owned by another resource"),
        pytest.param(owned_by(uid="other", kind="ReplicaSet"), False, id="owned by another kind"),
        pytest.param(
            {"metadata": owned_by(uid="other", name="other")["metadata"] | {"labels": LABELS}},
            False,
            id="owned by another resource, whatever its labels",
        ),
        pytest.param(owned_by(controller=False), False, id="owned, but not controlled"),
        pytest.param({"metadata": {"labels": LABELS}}, True, id="labelled, without an owner"),
        pytest.param(
            {"metadata": {"labels": LABELS | {"disagg.dev/name": "other"}}}, False, id="labelled as another's"
        ),
        pytest.param({"metadata": {"labels": {"disagg.dev/name": "llama"}}}, False, id="half labelled"),
        pytest.param({"metadata": {}}, False, id="bare"),
    ],
)
def test_an_object_is_ours_by_its_owner_or_else_its_labels(obj: dict[str, Any], is_ours: bool) -> None:
    assert compare.is_ours(obj, resource()) is is_ours


def test_labels_alone_do_not_make_a_resource_the_owner() -> None:
    labelled = {"metadata": {"labels": LABELS}}
    assert compare.is_ours(labelled, resource())
    assert not compare.is_owned(labelled, resource())


# fingerprint


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda obj: obj.update(status={"readyReplicas": 5}), id="status"),
        pytest.param(lambda obj: obj["metadata"].update(resourceVersion="8"), id="resourceVersion"),
        pytest.param(lambda obj: obj["metadata"].update(generation=9), id="generation"),
        pytest.param(lambda obj: obj.pop("kind"), id="kind, which lists leave out"),
        pytest.param(
            lambda obj: obj["metadata"]["managedFields"][0].update(time="2026-01-01T00:00:00Z"),
            id="time of a write",
        ),
        pytest.param(
            lambda obj: obj["metadata"]["managedFields"].append(
                managed({"f:status": {}}, "controller", "Update") | {"subresource": "status"}
            ),
            id="owner of a status",
        ),
    ],
)
def test_a_fingerprint_ignores(change: Change) -> None:
    assert compare.fingerprint(changed(change)) == compare.fingerprint(LIVE)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda obj: obj["spec"].update(replicas=3), id="spec"),
        pytest.param(lambda obj: obj["metadata"]["labels"].clear(), id="labels"),
        pytest.param(lambda obj: obj["metadata"]["annotations"].clear(), id="annotations"),
        pytest.param(lambda obj: obj["metadata"]["ownerReferences"].clear(), id="owners"),
        pytest.param(lambda obj: ours(obj)["f:spec"].pop("f:replicas"), id="fields of a manager"),
        pytest.param(
            lambda obj: obj["metadata"]["managedFields"].append(managed({}, "argocd")), id="a new manager"
        ),
        pytest.param(
            lambda obj: obj["metadata"]["managedFields"][0].update(operation="Update"), id="operation"
        ),
    ],
)
def test_a_fingerprint_tells(change: Change) -> None:
    assert compare.fingerprint(changed(change)) != compare.fingerprint(LIVE)


def test_a_fingerprint_does_not_depend_on_the_order_of_fields() -> None:
    reordered = dict(reversed(running().items()))
    assert compare.fingerprint(reordered) == compare.fingerprint(running())
