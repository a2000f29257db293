from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.build.strategic_merge import merge

Block = dict[str, Any]

ENGINE: Block = {"name": "engine", "image": "a"}
SIDECAR: Block = {"name": "sidecar", "image": "b"}


@pytest.mark.parametrize(
    ("base", "overlay", "merged"),
    [
        pytest.param({"a": 1}, {"b": 2}, {"a": 1, "b": 2}, id="a new field is added"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 2}, id="a value is replaced"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null removes a field"),
        pytest.param({}, {"a": None}, {}, id="null removes nothing where nothing is"),
        pytest.param({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}, id="null is no value of a new block"),
        pytest.param({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}, id="blocks merge"),
        pytest.param({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}, id="a block replaces a value"),
        pytest.param({"a": {"b": 1}}, {"a": {}}, {"a": {"b": 1}}, id="an empty block changes nothing"),
        pytest.param(
            {"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}, id="a list without a key is replaced"
        ),
        pytest.param(
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "b"}]},
            id="so is a list of blocks without a key",
        ),
        pytest.param(
            {"args": ["a"]}, {"args": []}, {"args": []}, id="an empty list empties one without a key"
        ),
        pytest.param(
            {"env": [{"name": "A"}]}, {"env": []}, {"env": [{"name": "A"}]}, id="but not one with a key"
        ),
        pytest.param(
            {"containers": [ENGINE, SIDECAR]},
            {"containers": [{"name": "engine", "tty": True}]},
            {"containers": [ENGINE | {"tty": True}, SIDECAR]},
            id="items of the same key merge where they are",
        ),
        pytest.param(
            {"containers": [ENGINE]},
            {"containers": [SIDECAR]},
            {"containers": [ENGINE, SIDECAR]},
            id="an item of a new key comes last",
        ),
        pytest.param(
            {},
            {"containers": [ENGINE | {"tty": None}]},
            {"containers": [ENGINE]},
            id="a new list has no nulls",
        ),
        pytest.param(
            {"containers": [ENGINE | {"env": [{"name": "A", "value": "1"}]}]},
            {"containers": [{"name": "engine", "env": [{"name": "B", "value": "2"}]}]},
            {"containers": [ENGINE | {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]},
            id="lists merge inside of lists",
        ),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": None, "valueFrom": {}}]},
            {"env": [{"name": "A", "valueFrom": {}}]},
            id="null removes a field of an item",
        ),
        pytest.param(
            {"containers": [ENGINE, SIDECAR]},
            {"containers": [{"name": "sidecar", "$patch": "delete"}]},
            {"containers": [ENGINE]},
            id="delete removes the item",
        ),
        pytest.param(
            {"containers": [ENGINE]},
            {"containers": [{"name": "absent", "$patch": "delete"}]},
            {"containers": [ENGINE]},
            id="delete of an absent item removes nothing",
        ),
        pytest.param(
            {"env": [{"name": "A"}, {"name": "B"}]},
            {"env": [{"name": "C"}, {"$patch": "replace"}]},
            {"env": [{"name": "C"}]},
            id="replace in a list replaces the list",
        ),
        pytest.param(
            {"nodeSelector": {"a": "1"}},
            {"nodeSelector": {"$patch": "replace", "b": "2"}},
            {"nodeSelector": {"b": "2"}},
            id="replace in a block replaces the block",
        ),
        pytest.param(
            {"nodeSelector": {"a": "1"}, "c": 1},
            {"nodeSelector": {"$patch": "delete"}},
            {"nodeSelector": {}, "c": 1},
            id="delete in a block empties the block",
        ),
        pytest.param(
            {"containers": [ENGINE]},
            {"containers": ["nonsense"]},
            {"containers": [ENGINE, "nonsense"]},
            id="what is no item is left for the API server to refuse",
        ),
    ],
)
def test_rules_of_kubectl(base: Block, overlay: Block, merged: Block) -> None:
    assert merge(base, overlay) == merged


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("containers", "name"),
        ("initContainers", "name"),
        ("ephemeralContainers", "name"),
        ("env", "name"),
        ("ports", "containerPort"),
        ("volumes", "name"),
        ("volumeMounts", "mountPath"),
        ("volumeDevices", "devicePath"),
        ("imagePullSecrets", "name"),
        ("hostAliases", "ip"),
        ("topologySpreadConstraints", "topologyKey"),
        ("resourceClaims", "name"),
    ],
)
def test_a_keyed_list_merges_by_its_key(field: str, key: str) -> None:
    base = {field: [{key: "a", "x": 1}, {key: "b"}]}
    assert merge(base, {field: [{key: "a", "y": 2}]}) == {field: [{key: "a", "x": 1, "y": 2}, {key: "b"}]}


# Blocks with all that is special: a keyed list, a plain one, blocks inside of blocks.
_VALUES = st.integers(0, 3) | st.sampled_from(["a", "b"])
_ITEMS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abc")}, optional={"x": _VALUES, "y": _VALUES}),
    max_size=3,
    unique_by=lambda item: item["name"],
)


def _blocks(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Block]:
    def grown(inner: st.SearchStrategy[Block]) -> st.SearchStrategy[Block]:
        fields = {"env": _ITEMS, "args": st.lists(_VALUES, max_size=2), "p": inner, "q": values, "r": values}
        return st.fixed_dictionaries({}, optional=fields)

    return st.recursive(st.just({}), grown, max_leaves=4)


BLOCKS = _blocks(_VALUES)
OVERLAYS = _blocks(_VALUES | st.none())


@given(base=BLOCKS)
def test_nothing_changes_nothing(base: Block) -> None:
    assert merge(base, {}) == base


@given(overlay=BLOCKS)
def test_laid_over_nothing_an_overlay_is_what_it_says(overlay: Block) -> None:
    assert merge({}, overlay) == overlay


@given(base=BLOCKS, overlay=OVERLAYS)
def test_an_overlay_twice_is_an_overlay_once(base: Block, overlay: Block) -> None:
    once = merge(base, overlay)
    assert merge(once, overlay) == once


@given(base=BLOCKS, overlay=OVERLAYS)
def test_neither_side_is_changed(base: Block, overlay: Block) -> None:
    before = deepcopy((base, overlay))
    merge(base, overlay)
    assert (base, overlay) == before


@given(base=BLOCKS, overlay=OVERLAYS)
def test_the_overlay_has_the_last_word(base: Block, overlay: Block) -> None:
    merged = merge(base, overlay)
    for field in ("q", "r"):
        if field in overlay:
            assert merged.get(field) == overlay[field]


@given(base=BLOCKS, overlay=OVERLAYS)
def test_what_an_overlay_does_not_name_stays(base: Block, overlay: Block) -> None:
    merged = merge(base, overlay)
    assert {key: merged.get(key) for key in base.keys() - overlay.keys()} == {
        key: base[key] for key in base.keys() - overlay.keys()
    }
