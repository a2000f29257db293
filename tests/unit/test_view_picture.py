from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from disagg.api.names import RoleName
from disagg.topology.levels import PackLevel
from disagg.view.picture import Block, NodeState, NodeView, Picture, natural, picture, short_names
from disagg.view.snapshot import Owner, Snapshot
from tests.unit.racks import GPU, GROUP, OTHER, RACK, node, pod

BLOCK = "example.com/block"
PREFILL, DECODE = Owner(GROUP, RoleName.PREFILL), Owner(GROUP, RoleName.DECODE)


def snapshot(*objects: Mapping[str, Any]) -> Snapshot:
    found = Snapshot()
    for item in objects:
        (found.put_pod if "uid" in item["metadata"] else found.put_node)(item)
    return found


def drawn(*objects: Mapping[str, Any], level: str = "rack", all_nodes: bool = False) -> Picture:
    return picture(
        snapshot(*objects),
        resource=GPU,
        level=level,
        pack_level=PackLevel(RACK, BLOCK),
        others=(GPU, "amd.com/gpu"),
        all_nodes=all_nodes,
    )


def only_node(*objects: Mapping[str, Any]) -> NodeView:
    (found,) = (found for domain in drawn(*objects).domains for found in domain.nodes)
    return found


def test_pods_of_a_group_come_first_and_what_is_free_last() -> None:
    found = only_node(
        pod("a", "n1", gpu=1),
        pod("b", "n1", group=GROUP, role="decode", gpu=2),
        pod("c", "n1", gpu=2),
        pod("d", "n1", group=GROUP, role="prefill", gpu=1),
        node("n1", gpu=8),
    )
    assert found.blocks == (Block(PREFILL, 1), Block(DECODE, 2), Block(None, 2), Block(None, 1))
    assert (found.used, found.free, found.unused) == (6, 2, 2)


@pytest.mark.parametrize(
    ("spec", "status", "state"),
    [
        pytest.param({}, {}, NodeState.READY, id="ready"),
        pytest.param({"unschedulable": True}, {}, NodeState.CORDONED, id="cordoned"),
        pytest.param({}, {"conditions": []}, NodeState.NOT_READY, id="not ready"),
        pytest.param({"unschedulable": True}, {"conditions": []}, NodeState.NOT_READY, id="both"),
    ],
)
def test_what_is_unused_is_free_only_where_pods_may_go(
    spec: dict[str, Any], status: dict[str, Any], state: NodeState
) -> None:
    raw = node("n1", gpu=8)
    raw["spec"] |= spec
    raw["status"] |= status
    found = drawn(raw, pod("a", "n1", gpu=3))
    (domain,) = found.domains
    free = 5 if state is NodeState.READY else 0
    assert domain.nodes[0].state is state
    assert (domain.free, domain.out_of_reach, domain.used, domain.total) == (free, 5 - free, 3, 8)
    assert (found.free, found.out_of_reach) == (free, 5 - free)


def test_more_may_be_used_than_there_is() -> None:
    found = only_node(node("n1", gpu=2), pod("a", "n1", gpu=4))
    assert (found.used, found.total, found.free, found.unused) == (4, 2, 0, 0)


def test_pods_that_are_done_take_nothing() -> None:
    done = pod("a", "n1", gpu=3)
    done["status"]["phase"] = "Succeeded"
    assert only_node(node("n1", gpu=4), done).free == 4


def test_pods_without_such_a_resource_are_not_seen() -> None:
    assert only_node(node("n1", gpu=4), pod("a", "n1", cpu=1)).blocks == ()


def test_domains_are_sorted_as_people_count_and_nodes_without_a_label_come_last() -> None:
    found = drawn(
        node("n10", "r10", {BLOCK: "b1"}, gpu=8),
        node("n2", "r2", {BLOCK: "b1"}, gpu=8),
        node("n3", "r3", {BLOCK: "b0"}, gpu=8),
        node("n4", None, gpu=8),
        node("n11", "r2", {BLOCK: "b1"}, gpu=8),
    )
    assert [(name, [domain.name for domain in domains]) for name, domains in found.sections()] == [
        ("b0", ["r3"]),
        ("b1", ["r2", "r10"]),
        (None, [None]),
    ]
    assert [item.name for item in found.domains[1].nodes] == ["n2", "n11"]


def test_nodes_without_accelerators_are_left_out_unless_asked_for() -> None:
    objects = node("n1", gpu=8), node("n2", cpu=8), node("n3", "r2", cpu=8)
    assert [domain.name for domain in drawn(*objects).domains] == ["r1"]
    assert drawn(*objects).left_out == 2
    assert [len(domain.nodes) for domain in drawn(*objects, all_nodes=True).domains] == [2, 1]
    assert drawn(*objects, all_nodes=True).left_out == 0


def test_a_node_that_has_lost_all_accelerators_under_its_pods_is_shown() -> None:
    assert only_node(node("n1", cpu=8), pod("a", "n1", gpu=1)).used == 1


def test_a_group_has_its_domains_and_what_waits() -> None:
    found = drawn(
        node("n1", "r1", gpu=8),
        node("n2", "r2", gpu=8),
        pod("a", "n1", group=OTHER, role="prefill", gpu=2),
        pod("b", "n2", group=OTHER, role="decode", gpu=4),
        pod("c", None, group=GROUP, role="decode", gpu=4),
        pod("d", "n2", gpu=1),
    )
    waiting, split = found.groups
    assert (waiting.key, waiting.number, waiting.used, dict(waiting.pending)) == (
        GROUP,
        0,
        {},
        {RoleName.PREFILL: 0, RoleName.DECODE: 1},
    )
    assert (split.key, split.number, split.domains) == (OTHER, 1, {"r1": 2, "r2": 4})
    assert split.used == {RoleName.PREFILL: 2, RoleName.DECODE: 4}
    assert found.foreign == 1
    assert found.numbers == {GROUP: 0, OTHER: 1}


def test_a_group_without_accelerators_is_none_of_the_picture() -> None:
    assert drawn(node("n1", gpu=8), pod("a", "n1", group=GROUP, cpu=1)).groups == ()


def test_the_largest_room_is_that_of_one_node() -> None:
    (domain,) = drawn(node("n1", gpu=8), node("n2", gpu=8), pod("a", "n1", gpu=5)).domains
    assert (domain.free, domain.largest_free) == (11, 8)


def test_what_is_drawn_and_what_else_there_is() -> None:
    found = drawn(node("n1", gpu=8), level=RACK)
    assert (found.level, found.key, found.others) == ("domain", RACK, ("amd.com/gpu",))


@pytest.mark.parametrize(
    ("names", "short", "pattern"),
    [
        pytest.param([], [], "*", id="none"),
        pytest.param(["n1", "n2"], ["n1", "n2"], "*", id="short"),
        pytest.param(["a-very-long-name-of-a-node"], ["a-very-long-name-of-a-node"], "*", id="one"),
        pytest.param(
            ["gke-prod-pool-12ab-x1yz", "gke-prod-pool-77cd-z9ab"],
            ["12ab-x1yz", "77cd-z9ab"],
            "gke-prod-pool-*",
            id="beginning",
        ),
        pytest.param(
            ["ip-10-0-1-17.eu-west-1.compute.internal", "ip-10-0-2-18.eu-west-1.compute.internal"],
            ["1-17", "2-18"],
            "ip-10-0-*.eu-west-1.compute.internal",
            id="beginning and end",
        ),
        pytest.param(
            ["long-enough-to-shorten-1", "long-enough-to-shorten-1-1"],
            ["long-enough-to-shorten-1", "long-enough-to-shorten-1-1"],
            "*",
            id="nothing would be left",
        ),
    ],
)
def test_long_names_lose_what_all_share(names: list[str], short: list[str], pattern: str) -> None:
    found = short_names(names)
    assert [found.short[name] for name in names] == short
    assert found.pattern == pattern


def test_numbers_in_names_are_compared_as_numbers() -> None:
    names = ["rack-10", "rack-2", "9", "rack", "a1b20", "a1b3"]
    assert sorted(names, key=natural) == ["9", "a1b3", "a1b20", "rack", "rack-2", "rack-10"]
