from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.decide import ownership
from tests.unit.resources import managed, tree_of

CONTAINERS: dict[str, Any] = {
    "f:containers": {
        'k:{"name":"engine"}': {
            ".": {},
            "f:name": {},
            "f:args": {},
            "f:ports": {'k:{"containerPort":8000,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
        },
    },
    "f:finalizers": {".": {}, 'v:"a"': {}},
}
"""Fields of somebody who has applied POD."""
POD: dict[str, Any] = {
    "containers": [{"name": "engine", "args": ["-v"], "ports": [{"containerPort": 8000}]}],
    "finalizers": ["a"],
}

Path = tuple[str, ...]
ENGINE: Path = ("f:containers", 'k:{"name":"engine"}')
PORT: Path = (*ENGINE, "f:ports", 'k:{"containerPort":8000,"protocol":"TCP"}')


def obj(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"managedFields": list(entries)}}


# Managers


def test_the_applied_fields_are_those_of_the_manager_by_apply() -> None:
    other = managed({"f:a": {}}, "other")
    updated = managed({"f:b": {}}, "disagg", "Update")
    status = managed({"f:c": {}}, "disagg") | {"subresource": "status"}
    applied = managed({"f:d": {}}, "disagg")
    assert ownership.applied_fields(obj(other, updated, status, applied), "disagg") == {"f:d": {}}


@pytest.mark.parametrize("live", [{"metadata": {}}, obj(), obj(managed({"f:a": {}}, "other"))], ids=str)
def test_who_has_applied_nothing_owns_nothing(live: dict[str, Any]) -> None:
    assert ownership.applied_fields(live, "disagg") == {}


def test_the_written_fields_are_those_of_a_manager_by_update() -> None:
    applied = managed({"f:a": {}}, "kubectl")
    scaled = managed({"f:b": {}}, "kubectl", "Update") | {"subresource": "scale"}
    written = managed({"f:c": {}}, "kubectl", "Update")
    live = obj(applied, scaled, written)
    assert ownership.written_fields(live, by="kubectl") == {"f:c": {}}
    assert ownership.written_fields(live, by="kubectl") == {"f:c": {}}
    assert ownership.written_fields(live, by="argocd") == {}


def test_other_managers_are_all_but_one_and_the_writers_of_subresources() -> None:
    live = obj(
        managed({"f:a": {}}, "disagg"),
        managed({"f:b": {}}, "kubectl", "Update"),
        managed({"f:c": {}}, "argocd"),
        managed({"f:d": {}}, "kube-controller-manager", "Update") | {"subresource": "status"},
    )
    assert ownership.other_managers(live, "disagg") == [{"f:b": {}}, {"f:c": {}}]


# Trees


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ((), {"f:a": {"f:b": {"f:c": {}}}}),
        (("a",), {"f:b": {"f:c": {}}}),
        (("a", "b"), {"f:c": {}}),
        (("x", "y"), {}),
    ],
)
def test_a_subtree_is_what_is_below_a_path(path: Path, below: dict[str, Any]) -> None:
    assert ownership.subtree({"f:a": {"f:b": {"f:c": {}}}}, *path) == below


def test_leaves_are_fields_without_items_themselves() -> None:
    assert set(ownership.leaves(CONTAINERS)) == {
        (*ENGINE, "f:name"),
        (*ENGINE, "f:args"),
        (*PORT, "f:containerPort"),
        ("f:finalizers", 'v:"a"'),
    }


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ((), True),
        (("f:containers",), True),
        (("f:volumes",), False),
        (ENGINE, True),
        ((*ENGINE, "f:args"), True),
        ((*ENGINE, "f:image"), False),
        (("f:containers", 'k:{"name":"sidecar"}'), False),
        ((*PORT, "f:containerPort"), True),
        ((*ENGINE, "f:ports", 'k:{"containerPort":8000,"protocol":"UDP"}'), False),
        ((*ENGINE, "f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'), False),
        ((*ENGINE, "f:args", "f:x"), False),
        (("f:finalizers", 'v:"a"'), True),
        (("f:finalizers", 'v:"b"'), False),
    ],
)
def test_a_value_has_a_path(path: Path, found: bool) -> None:
    assert ownership.has(POD, path) is found


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({}, id="nothing"),
        pytest.param(POD, id="all"),
        pytest.param({"finalizers": ["a"]}, id="a part"),
        pytest.param({"containers": [{"name": "engine", "args": ["another", "value"]}]}, id="another value"),
        pytest.param(
            {"containers": [{"name": "engine", "ports": [{"containerPort": 8000}]}]},
            id="the default protocol",
        ),
    ],
)
def test_a_tree_covers(value: dict[str, Any]) -> None:
    assert ownership.covers(CONTAINERS, value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"volumes": []}, id="another field"),
        pytest.param({"containers": [{"name": "sidecar"}]}, id="another item"),
        pytest.param({"containers": [{"name": "engine", "image": "a"}]}, id="another field of an item"),
        pytest.param(
            {"containers": [{"name": "engine", "ports": [{"containerPort": 80}]}]}, id="another port"
        ),
        pytest.param(
            {"containers": [{"name": "engine", "ports": [{"containerPort": 8000, "protocol": "UDP"}]}]},
            id="another protocol",
        ),
        pytest.param({"finalizers": ["a", "b"]}, id="another item of a set"),
    ],
)
def test_a_tree_does_not_cover(value: dict[str, Any]) -> None:
    assert not ownership.covers(CONTAINERS, value)


def test_what_is_extracted_is_what_its_owner_would_apply() -> None:
    live = {
        "containers": [
            {"name": "injected", "image": "b"},
            {
                "name": "engine",
                "args": ["-v"],
                "tty": False,
                "ports": [{"containerPort": 80}, {"containerPort": 8000, "protocol": "TCP"}],
            },
        ],
        "finalizers": ["b", "a"],
        "restartPolicy": "Always",
    }
    assert ownership.extract(CONTAINERS, live) == POD


def test_what_is_extracted_keeps_the_order_of_the_object() -> None:
    live = {"containers": [{"name": "z"}, {"name": "a"}], "finalizers": ["z", "a"]}
    tree = {
        "f:containers": {'k:{"name":"a"}': {"f:name": {}}, 'k:{"name":"z"}': {"f:name": {}}},
        "f:finalizers": {'v:"a"': {}, 'v:"z"': {}},
    }
    assert ownership.extract(tree, live) == live


def test_what_is_not_there_any_more_is_not_extracted() -> None:
    assert ownership.extract(CONTAINERS, {"containers": []}) == {"containers": []}


# For any value

_NAMES = st.sampled_from("abcdef")
_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3)


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    items = st.lists(
        st.fixed_dictionaries({"name": _NAMES}, optional={"x": inner, "y": _SCALARS}),
        min_size=1,
        max_size=3,
        unique_by=lambda item: item["name"],
    )
    ports = st.lists(
        st.fixed_dictionaries(
            {"containerPort": st.integers(1, 9)}, optional={"protocol": st.sampled_from(["TCP"])}
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda item: item["containerPort"],
    )
    fields = {
        "containers": items,
        "ports": ports,
        "args": st.lists(_SCALARS, max_size=2),
        "p": inner,
        "q": _SCALARS,
    }
    return st.fixed_dictionaries({}, optional=fields)


VALUES: st.SearchStrategy[dict[str, Any]] = st.recursive(st.just({}), _grown, max_leaves=6)


@given(value=VALUES)
def test_who_applies_a_value_owns_all_of_it(value: dict[str, Any]) -> None:
    assert ownership.covers(tree_of(value), value)


@given(value=VALUES)
def test_a_value_has_each_leaf_of_its_tree(value: dict[str, Any]) -> None:
    assert all(ownership.has(value, path) for path in ownership.leaves(tree_of(value)))


@given(value=VALUES)
def test_the_owner_of_a_whole_value_applies_it_again(value: dict[str, Any]) -> None:
    assert ownership.extract(tree_of(value), value) == value


@given(value=VALUES.filter(bool))
def test_a_value_with_one_field_more_is_not_covered(value: dict[str, Any]) -> None:
    assert not ownership.covers(tree_of(value), value | {"more": 1})
