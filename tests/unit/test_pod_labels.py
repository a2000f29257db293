"""What running pods are told of where they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.api.names import DOMAIN_LABEL
from disagg.reconcile.pod_labels import OwnPods, wanted_labels
from tests.unit.racks import GROUP, OTHER, RACK, pod


def own(*raws: dict[str, Any]) -> OwnPods:
    found = OwnPods()
    for raw in raws:
        found.put(raw)
    return found


def labelled(raw: dict[str, Any], **labels: str) -> dict[str, Any]:
    raw["metadata"]["labels"] |= {
        name.replace("__", "/").replace("_", "."): value for name, value in labels.items()
    }
    return raw


def terminating(raw: dict[str, Any]) -> dict[str, Any]:
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return raw


A = pod("a", "n1", group=GROUP)


def test_a_running_pod_is_known_with_the_labels_that_tell_where_it_is() -> None:
    raw = labelled(
        pod("a", "n1", group=GROUP), disagg_dev__domain="r1", topology_disagg_dev__rack="r1", team="ml"
    )
    told = (("disagg.dev/domain", "r1"), ("topology.disagg.dev/rack", "r1"))
    (found,) = own(raw).of(GROUP)
    assert (found.name, found.uid, found.node, found.labels) == ("a", "a", "n1", told)


def test_of_a_running_pod_it_is_known_what_it_was_made_from() -> None:
    raw = pod("a", "n1", group=GROUP)
    raw["metadata"]["labels"] |= {"disagg.dev/placement": "1a2b", "pod-template-hash": "3c4d"}
    raw["metadata"]["resourceVersion"] = "7"
    (found,) = own(raw).of(GROUP)
    assert (found.placement, found.template, found.version) == ("1a2b", "3c4d", "7")


NEW = {"started": False, "ready": False, "restartCount": 0}
UP = {"started": True, "ready": False, "restartCount": 0}


@pytest.mark.parametrize(
    ("containers", "loading"),
    [
        pytest.param([], True, id="nothing has begun"),
        pytest.param([NEW], True, id="the engine loads"),
        pytest.param([UP], False, id="the engine has come up"),
        pytest.param([NEW, UP], True, id="the engine loads beside another container"),
        pytest.param([UP, UP | {"ready": True}], False, id="all have come up"),
        pytest.param([{"ready": True, "restartCount": 0}], False, id="ready, by who knows no startup probe"),
        pytest.param([NEW | {"restartCount": 1}], False, id="the engine was up before, or never will be"),
        pytest.param([NEW, UP | {"restartCount": 1}], False, id="something else has restarted"),
    ],
)
def test_a_pod_loads_until_all_its_containers_have_come_up_once(
    containers: list[dict[str, Any]], *, loading: bool
) -> None:
    raw = pod("a", "n1", group=GROUP)
    raw["status"]["containerStatuses"] = containers
    (found,) = own(raw).of(GROUP)
    assert found.loading is loading


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(pod("a", None, group=GROUP), id="pending"),
        pytest.param(terminating(pod("a", "n1", group=GROUP)), id="ending"),
        pytest.param(pod("a", "n1"), id="of others"),
        pytest.param(pod("a", "n1", group=GROUP, role="router"), id="a router"),
    ],
)
def test_pods_that_need_no_labels_are_forgotten(raw: dict[str, Any]) -> None:
    assert own(raw).of(GROUP) == []
    assert own(A, raw).of(GROUP) == []


def test_a_pod_that_is_gone_is_forgotten() -> None:
    found = own(A)
    found.remove("a")
    found.remove("a")
    assert found == OwnPods()


def test_a_pod_that_is_relabelled_changes_its_group() -> None:
    found = own(A, pod("a", "n1", group=OTHER))
    assert (found.of(GROUP), [item.uid for item in found.of(OTHER)]) == ([], ["a"])


def test_pods_come_by_name() -> None:
    assert [item.name for item in own(pod("b", "n1", group=GROUP), A).of(GROUP)] == ["a", "b"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from([None, "n1"]),
            st.sampled_from([None, GROUP, OTHER]),
            st.booleans(),
        )
    )
)
def test_only_the_last_state_of_a_pod_counts(events: list[tuple[str, str | None, Any, bool]]) -> None:
    raws = [
        terminating(pod(uid, name, group=group)) if ending else pod(uid, name, group=group)
        for uid, name, group, ending in events
    ]
    last = {raw["metadata"]["uid"]: raw for raw in raws}
    found, expected = own(*raws), own(*last.values())
    assert [found.of(group) for group in (GROUP, OTHER)] == [expected.of(group) for group in (GROUP, OTHER)]


LEVELS = {"host": "kubernetes.io/hostname", "rack": RACK, "zone": "a/zone"}


@pytest.mark.parametrize(
    ("node", "labels"),
    [
        pytest.param({}, {}, id="a bare node"),
        pytest.param({RACK: "r1"}, {DOMAIN_LABEL: "r1", "topology.disagg.dev/rack": "r1"}, id="the level"),
        pytest.param({"a/zone": "z"}, {"topology.disagg.dev/zone": "z"}, id="another level"),
        pytest.param({"unknown": "x"}, {}, id="no level"),
    ],
)
def test_a_pod_is_told_the_levels_of_its_node(node: dict[str, str], labels: dict[str, str]) -> None:
    assert wanted_labels(node, RACK, LEVELS) == labels


def test_the_domain_may_be_of_no_level() -> None:
    assert wanted_labels({"a/cell": "c"}, "a/cell", LEVELS) == {DOMAIN_LABEL: "c"}
