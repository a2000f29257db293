"""The inventory: whatever order events come in, it is what a fresh reading would be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.api.names import RoleName
from disagg.topology.amounts import Amounts, add, pod_requests
from disagg.topology.claims import Claim
from disagg.topology.groups import GroupKey
from disagg.topology.inventory import Inventory
from tests.unit.racks import GPU, GROUP, OTHER, RACK, inventory, node, pod, shape

NO_PODS = {RoleName.PREFILL: Counter[str](), RoleName.DECODE: Counter[str]()}


def used(found: Inventory, name: str, key: str = RACK) -> Amounts:
    return next(use.used for uses in found.domains(key).values() for use in uses if use.name == name)


def terminating(raw: dict[str, Any]) -> dict[str, Any]:
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return raw


def finished(raw: dict[str, Any]) -> dict[str, Any]:
    return raw | {"status": {"phase": "Succeeded"}}


def unschedulable(raw: dict[str, Any]) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return raw | {"status": {"phase": "Pending", "conditions": [condition]}}


def test_a_pod_counts_once_however_often_it_is_told() -> None:
    found = inventory(node("n1", gpu=8), *[pod("a", "n1", gpu=2)] * 3)
    assert used(found, "n1") == {GPU: 2000, "pods": 1000}


def test_a_pod_counts_on_a_node_that_becomes_known_later() -> None:
    assert used(inventory(pod("a", "n1", gpu=2), node("n1", gpu=8)), "n1")[GPU] == 2000


def test_a_pod_holds_its_resources_until_it_is_gone() -> None:
    found = inventory(node("n1", gpu=8), pod("a", "n1", gpu=2), terminating(pod("a", "n1", gpu=2)))
    assert used(found, "n1")[GPU] == 2000
    found.remove_pod(pod("a", "n1", gpu=2))
    assert used(found, "n1") == {}


def test_a_finished_pod_holds_nothing() -> None:
    assert used(inventory(node("n1"), pod("a", "n1", gpu=2), finished(pod("a", "n1", gpu=2))), "n1") == {}


def test_a_resized_pod_holds_its_new_size() -> None:
    found = inventory(node("n1"), pod("a", "n1", cpu=2), pod("a", "n1", cpu=3))
    assert used(found, "n1")["cpu"] == 3000


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
        {"status": {"allocatable": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]}},
        {"status": node("n1")["status"] | {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
        {"metadata": {"name": "n1", "labels": {RACK: "r2"}}},
    ],
)
def test_a_node_changes_with_what_decides_where_pods_go(change: dict[str, Any]) -> None:
    found = inventory(node("n1"))
    assert not found.put_node(node("n1"))
    assert found.put_node(node("n1") | change)
    assert not found.put_node(node("n1") | change)


def test_a_heartbeat_changes_nothing() -> None:
    raw = node("n1")
    found = inventory(raw)
    status = raw["status"] | {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "now"}]}
    assert not found.put_node(raw | {"status": status})


def test_eligible_nodes_follow_the_nodes() -> None:
    found = inventory(node("n1"), node("n2"))
    assert found.eligible(shape()) == {"n1", "n2"}
    found.put_node(node("n1") | {"spec": {"unschedulable": True}})
    found.put_node(node("n3"))
    assert found.eligible(shape()) == {"n2", "n3"}
    found.remove_node("n2")
    assert found.eligible(shape()) == {"n3"}


def test_domains_follow_the_labels_of_nodes() -> None:
    found = inventory(node("n2"), node("n1"), node("n3", None))
    assert {name: [use.name for use in uses] for name, uses in found.domains(RACK).items()} == {
        "r1": ["n1", "n2"]
    }
    found.put_node(node("n1", "r2"))
    assert set(found.domains(RACK)) == {"r1", "r2"}
    found.remove_node("n2")
    assert set(found.domains(RACK)) == {"r2"}


def test_a_pod_of_a_group_is_told_about_when_something_changes() -> None:
    found = inventory(node("n1"))
    steps = [
        pod("a", group=GROUP),
        unschedulable(pod("a", group=GROUP)),
        pod("a", "n1", group=GROUP),
        terminating(pod("a", "n1", group=GROUP)),
        finished(pod("a", "n1", group=GROUP)),
    ]
    for step in steps:
        assert found.put_pod(step) == GROUP
        assert found.put_pod(step) is None
    assert found.remove_pod("a") is None


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"disagg.dev/name": "chat"},
        {"disagg.dev/name": "chat", "disagg.dev/role": "router"},
        {"disagg.dev/name": "chat", "disagg.dev/role": "decode"},
        {"disagg.dev/name": "chat", "disagg.dev/role": "decode", "disagg.dev/group": "first"},
    ],
)
def test_other_pods_are_not_told_about(labels: dict[str, str]) -> None:
    raw = pod("a", "n1")
    raw["metadata"]["labels"] = labels
    found = Inventory()
    assert found.put_pod(raw) is None
    assert found.remove_pod("a") is None


def test_a_pod_that_loses_its_labels_leaves_its_group() -> None:
    found = inventory(pod("a", "n1", group=GROUP))
    assert found.put_pod(pod("a", "n1")) == GROUP
    assert found.groups_on("n1") == set()


def test_pods_of_a_group_are_counted_by_state() -> None:
    found = inventory(
        pod("a", "n1", group=GROUP),
        pod("b", "n1", group=GROUP),
        terminating(pod("c", "n2", group=GROUP)),
        pod("d", group=GROUP, role="prefill"),
        unschedulable(pod("e", group=GROUP, role="prefill")),
        terminating(pod("f", group=GROUP)),
        pod("g", "n1", group=OTHER),
    )
    pods = found.pods(GROUP)
    assert pods.bound == NO_PODS | {RoleName.DECODE: Counter(n1=2)}
    assert pods.terminating == NO_PODS | {RoleName.DECODE: Counter(n2=1)}
    assert pods.pending == {RoleName.PREFILL: 2, RoleName.DECODE: 0}
    assert pods.unschedulable == {RoleName.PREFILL: 1, RoleName.DECODE: 0}
    assert found.groups_on("n1") == {GROUP, OTHER}
    assert found.groups_on("elsewhere") == set()


def test_pods_of_a_group_are_placed_by_domain() -> None:
    zone = "topology.kubernetes.io/zone"
    copied = pod("d", "unknown", group=GROUP)
    copied["metadata"]["labels"][zone] = "z"
    found = inventory(
        node("n1", "r1", {zone: "z"}),
        node("n2", None),
        pod("a", "n1", group=GROUP),
        pod("b", "n2", group=GROUP),
        terminating(pod("c", "n1", group=GROUP)),
        pod("e", group=GROUP, role="prefill"),
        copied,
    )
    # A node that is gone had a rack that nobody knows.
    assert found.placed(GROUP, RACK) == {RoleName.DECODE: {"r1": 1, "": 1}, RoleName.PREFILL: {}}
    assert found.placed(GROUP, zone)[RoleName.DECODE] == {"z": 2, "": 1}


def test_a_fresh_list_drops_what_was_missed() -> None:
    found = inventory(
        node("n1"), node("n2"), pod("a", "n1", group=GROUP), pod("b", group=OTHER), pod("c", "n2", cpu=1)
    )
    assert found.retain_pods(["a"]) == {OTHER}
    assert used(found, "n2") == {}
    assert found.retain_nodes(["n2"]) == {GROUP}
    assert found.retain_nodes({"n2"}) == set()


def test_what_is_outstanding_of_a_claim_is_taken_for_others() -> None:
    found = inventory(node("n1", gpu=8), node("n2", gpu=8), node("n3", "r2", gpu=8))
    found.claim(OTHER, Claim(RACK, "r1", {RoleName.DECODE: (shape(gpu=4), 3)}))
    assert found.taken(OTHER) == {}
    assert found.taken(GROUP) == {"n1": {GPU: 8000, "pods": 2000}, "n2": {GPU: 4000, "pods": 1000}}
    found.put_pod(pod("a", "n2", group=OTHER, gpu=4))
    # The tightest node first.
    assert found.taken(GROUP) == {"n2": {GPU: 4000, "pods": 1000}, "n1": {GPU: 4000, "pods": 1000}}
    # One in another domain is no part of what was claimed.
    found.put_pod(pod("b", "n3", group=OTHER, gpu=4))
    assert len(found.taken(GROUP)) == 2
    # One that is being deleted holds its successor's place.
    found.put_pod(terminating(pod("b", "n1", group=OTHER, gpu=4)))
    found.put_pod(pod("c", "n1", group=OTHER, gpu=4))
    found.put_pod(pod("d", "n1", group=OTHER, gpu=4))
    assert found.taken(GROUP) == {}
    found.remove_pod("d")
    found.remove_pod("b")
    assert found.taken(GROUP) == {"n1": {GPU: 4000, "pods": 1000}}
    found.release(OTHER)
    assert found.taken(GROUP) == {}


def test_larger_claims_are_placed_first_and_what_fits_nowhere_takes_nothing() -> None:
    found = inventory(node("n1", gpu=4), node("n2", gpu=3))
    found.claim(
        OTHER, Claim(RACK, "r1", {RoleName.PREFILL: (shape(gpu=1), 2), RoleName.DECODE: (shape(gpu=4), 9)})
    )
    assert found.taken(GROUP) == {"n1": {GPU: 4000, "pods": 1000}, "n2": {GPU: 2000, "pods": 2000}}


def test_claims_of_different_keys_do_not_share_a_place() -> None:
    zone = "topology.kubernetes.io/zone"
    found = inventory(*(node(name, "r1", {zone: "z"}, gpu=4) for name in ("n1", "n2")))
    found.claim(OTHER, Claim(RACK, "r1", {RoleName.DECODE: (shape(gpu=4), 1)}))
    third = GroupKey("default", "third", 0)
    found.claim(third, Claim(zone, "z", {RoleName.DECODE: (shape(gpu=4), 1)}))
    for within in (None, (RACK, "r1"), (zone, "z")):
        taken = found.taken(GROUP, within)
        assert {name: amounts[GPU] for name, amounts in taken.items()} == {"n1": 4000, "n2": 4000}
    assert sum(amounts[GPU] for amounts in found.taken(GROUP, (RACK, "r2")).values()) == 4000


def test_a_pod_alone_on_its_node_claims_a_node_each() -> None:
    found = inventory(*(node(name, gpu=8) for name in ("n1", "n2", "n3")), pod("a", "n1", group=OTHER, gpu=1))
    found.claim(OTHER, Claim(RACK, "r1", {RoleName.DECODE: (shape(one_per_node=True, gpu=1), 3)}))
    assert {name: amounts[GPU] for name, amounts in found.taken(GROUP).items()} == {"n2": 1000, "n3": 1000}


UIDS = st.sampled_from("abcd")
NODES = st.sampled_from(["n1", "n2", "n3"])
PODS = st.builds(
    lambda uid, on, group, role, cpu, state: state(pod(uid, on, group=group, role=role, cpu=cpu)),
    UIDS,
    st.none() | NODES,
    st.sampled_from([None, GROUP, OTHER]),
    st.sampled_from(["prefill", "decode"]),
    st.integers(0, 3),
    st.sampled_from([lambda raw: raw, terminating, finished, unschedulable]),
)
EVENTS = st.lists(
    st.tuples(st.just("put_pod"), PODS)
    | st.tuples(st.just("remove_pod"), UIDS)
    | st.tuples(
        st.just("put_node"), st.builds(node, NODES, st.sampled_from(["r1", "r2", None]), cpu=st.just(8))
    )
    | st.tuples(st.just("remove_node"), NODES)
    | st.tuples(st.just("retain_pods"), st.sets(UIDS))
    | st.tuples(st.just("retain_nodes"), st.sets(NODES)),
    max_size=25,
)


def remember(event: str, value: Any, pods: dict[str, Any], nodes: dict[str, Any]) -> None:  # noqa: ANN401
    """The same event on plain objects."""
    match event:
        case "put_pod":
            pods[value["metadata"]["uid"]] = value
        case "put_node":
            nodes[value["metadata"]["name"]] = value
        case "remove_pod":
            pods.pop(value, None)
        case "remove_node":
            nodes.pop(value, None)
        case "retain_pods":
            for uid in pods.keys() - value:
                del pods[uid]
        case _:
            for name in nodes.keys() - value:
                del nodes[name]


@given(EVENTS)
def test_any_sequence_of_events_leaves_what_a_fresh_reading_finds(events: list[tuple[str, Any]]) -> None:
    found = Inventory()
    pods: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    claim = Claim(RACK, "r1", {RoleName.DECODE: (shape(cpu=2), 3)})
    found.claim(OTHER, claim)
    for event, value in events:
        getattr(found, event)(value)
        remember(event, value, pods, nodes)
        # Asked in between, so that what is cached must be kept right.
        found.taken(GROUP)
        found.eligible(shape())
    fresh = inventory(*nodes.values(), *pods.values())
    fresh.claim(OTHER, claim)
    for name in nodes:
        members = [use.name for uses in found.domains(RACK).values() for use in uses]
        assert (name in members) == (RACK in nodes[name]["metadata"]["labels"])
        if name in members:
            assert used(found, name) == used(fresh, name) == summed(pods, name)
        assert found.groups_on(name) == fresh.groups_on(name)
    for group in (GROUP, OTHER):
        assert found.pods(group) == fresh.pods(group)
        assert found.placed(group, RACK) == fresh.placed(group, RACK)
        assert found.held(group) == fresh.held(group)
        assert found.taken(group) == fresh.taken(group)
    assert found.eligible(shape()) == set(nodes)


def summed(pods: dict[str, Any], name: str) -> Amounts:
    total: Amounts = {}
    for raw in pods.values():
        if raw["spec"].get("nodeName") == name and raw["status"]["phase"] != "Succeeded":
            add(total, pod_requests(raw["spec"]).items())
    return total


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [{"kind": "ReplicaSet", "name": "chat-decode-0"}],
        [{"kind": "Job", "name": "chat-decode-0", "controller": True}],
        [{"kind": "ReplicaSet", "name": "copy-of-chat-decode-0", "controller": True}],
    ],
    ids=["nobody", "no controller", "a job", "another ReplicaSet"],
)
def test_a_pod_with_copied_labels_is_nobodys(owners: list[dict[str, object]]) -> None:
    copy = pod("a", "n1", group=GROUP)
    copy["metadata"]["ownerReferences"] = owners
    found = inventory(node("n1"), copy)
    assert not any(sum(nodes.values()) for nodes in found.pods(GROUP).bound.values())
