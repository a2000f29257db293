"""Where a group is packed, and that it stays there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.api.names import ENGINE_ROLES, PLACEMENT, TEMPLATE_INPUTS, RoleName
from disagg.api.resource import parse
from disagg.api.status import Reason
from disagg.api.topology_constraint import PackMode
from disagg.decide.decisions import GroupDecision, Mechanism, Placement
from disagg.topology.inventory import Inventory
from disagg.topology.levels import HOSTNAME
from tests.unit.racks import RACK, inventory, node, pod
from tests.unit.resources import raw, resource
from tests.unit.scene import DECODE, PAIR, PREFILL, REQUIRED, Scene, packed, pair, racks

PLACED = Placement(RACK, PackMode.PREFERRED, Mechanism.POD_AFFINITY, DECODE, "r1")
SCALED = {"autoscaling": {"minReplicas": 2, "maxReplicas": 6}}


def placed(scene: Scene, group: int = 0) -> Placement:
    placement = scene.decide().groups[group].placement
    assert placement is not None
    return placement


def domain(scene: Scene, group: int = 0) -> str | None:
    return placed(scene, group).domain


def decided(**spec: object) -> GroupDecision:
    """The decision about a new pair, of which r2 alone has room for all."""
    return Scene(pair(**spec), racks(r1=6, r2=9)).decide().groups[0]


# Where a new group goes


def test_without_a_constraint_nothing_is_placed() -> None:
    assert Scene(resource(), racks(r1=8)).decide().groups == {}


def test_a_group_goes_where_all_of_it_fits() -> None:
    assert decided().placement == replace(PLACED, domain="r2", asked=RACK)


def test_a_group_goes_where_it_can_grow() -> None:
    scene = Scene(pair(prefill={"replicas": None} | SCALED), racks(r1=9, r2=10))
    decision = scene.decide().groups[0]
    assert (decision.current, decision.fit is not None and decision.fit.fits_maximum) == ("r2", True)


def test_pods_of_others_are_seen() -> None:
    scene = Scene(pair(), racks(r1=9, r2=9))
    scene.inventory.put_pod(pod("a", "r1", gpu=2))
    assert domain(scene) == "r2"


def test_where_nothing_holds_the_group_it_goes_where_least_is_lacking() -> None:
    decision = Scene(pair(), racks(r1=6, r2=7)).decide().groups[0]
    assert decision.placement is not None
    assert (decision.placement.domain, decision.best and decision.best.domain) == ("r2", "r2")


def test_a_group_that_nothing_holds_does_not_follow_the_emptiest_rack() -> None:
    scene = Scene(pair(), racks(r1=6, r2=7))
    scene.step()
    scene.inventory.put_pod(pod("a", "r2", gpu=5))
    assert domain(scene) == "r2"


def test_without_any_node_for_its_pods_a_group_is_told_nothing() -> None:
    selective = {"podTemplate": {"spec": {"nodeSelector": {"pool": "a"}}}}
    decision = decided(prefill=selective, decode=selective)
    assert decision.placement is not None
    assert (decision.placement.domain, decision.fit, decision.best) == (None, None, None)


LARGE = {"parallelism": {"tensor": 4}, "resources": {"requests": {"memory": "1"}}}
"""Of a prefill pod that is a little larger than a decode pod."""


@pytest.mark.parametrize(
    ("prefill", "first"), [({}, DECODE), ({"parallelism": {"tensor": 4}}, DECODE), (LARGE, PREFILL)], ids=str
)
def test_the_role_with_the_larger_pods_goes_first(prefill: dict[str, Any], first: RoleName) -> None:
    assert placed(Scene(pair(prefill=prefill), racks(r1=64))).first is first


def test_devices_of_any_kind_make_a_pod_large() -> None:
    """The plan for nodes and the order of the roles must mean the same role."""
    prefill = {"resources": {"limits": {"example.com/nic": "8"}}}
    nodes = inventory(node("n1", "r1", **{"gpu": 8, "example.com/nic": 32}))
    assert placed(Scene(pair(prefill=prefill), nodes)).first is PREFILL


def test_nodes_are_preferred_by_their_hostname() -> None:
    """Some clouds call nodes otherwise than their hosts."""
    nodes = [node(f"n{index}", "r1", {HOSTNAME: f"host-{index}"}, gpu=8) for index in range(2)]
    # Decode pods of 3 must share a node, or prefill pods of 2 find no room.
    prefill = {"replicas": 5, "resources": {"limits": {"example.com/gpu": "2"}}}
    decode = {"replicas": 2, "parallelism": {"tensor": 3}}
    assert placed(Scene(pair(prefill=prefill, decode=decode), inventory(*nodes))).nodes == ("host-0",)


# It stays


def test_a_group_stays_where_it_runs() -> None:
    scene = packed(r1=8)
    scene.inventory.put_node(node("r2", "r2", gpu=64))
    assert placed(scene) == scene.told(PREFILL) == scene.told(DECODE)


def test_a_group_stays_with_what_it_was_told_while_its_pods_are_pending() -> None:
    scene = Scene(pair(), racks(r1=8))
    scene.step()
    scene.inventory.put_node(node("r2", "r2", gpu=64))
    assert domain(scene) == "r1"


def test_an_empty_group_leaves_a_domain_that_others_have_filled() -> None:
    scene = Scene(pair(), racks(r1=8, r2=9))
    scene.step()
    scene.inventory.put_pod(pod("a", "r1", gpu=1))
    assert domain(scene) == "r2"


def test_a_group_that_has_lost_its_rack_goes_to_another() -> None:
    scene = packed(r1=8, r2=9)
    for role, count in ((PREFILL, 4), (DECODE, 1)):
        for index in range(count):
            scene.inventory.remove_pod(f"{role}-0-{index}")
    scene.inventory.put_node(node("r1", "r1", gpu=8) | {"spec": {"unschedulable": True}})
    assert domain(scene) == "r2"


@st.composite
def clusters(draw: st.DrawFn) -> Inventory:
    """Racks that are partly full; r1 is one."""
    found = Inventory()
    for rack in ("r1", *draw(st.sets(st.sampled_from(("r2", "r3"))))):
        for number in range(draw(st.integers(1, 2))):
            found.put_node(node(f"{rack}-{number}", rack, gpu=draw(st.integers(0, 16))))
            found.put_pod(pod(f"{rack}-{number}-other", f"{rack}-{number}", gpu=draw(st.integers(0, 8))))
    return found


@given(clusters(), clusters(), st.integers(1, 4))
def test_while_pods_run_a_preferred_group_stays_whatever_becomes_of_the_cluster(
    before: Inventory, after: Inventory, running: int
) -> None:
    scene = Scene(pair(), before)
    told = scene.step().groups[0].placement
    scene.inventory = after
    scene.bind(PREFILL, "r1-0", running)
    scene.bind(DECODE, None)
    assert placed(scene) == told


@given(clusters(), st.sampled_from(["Preferred", "Required"]), st.booleans(), st.integers(1, 3))
def test_a_decision_outlives_what_it_brings_about(
    cluster: Inventory, mode: str, pod_groups: bool, groups: int
) -> None:
    """Claims that it makes, Deployments that it changes and pods that are bound as told change nothing of it."""
    wanted = pair(groups=groups, topologyConstraint={"mode": mode})
    scene = Scene(wanted, cluster, pod_groups=pod_groups)
    told = [group.placement for group in scene.step().groups.values()]
    assert [group.placement for group in scene.step().groups.values()] == told
    for number, placement in enumerate(told):
        assert placement is not None
        scene.bind(DECODE, f"{placement.domain}-0", group=number)
    assert [group.placement for group in scene.step().groups.values()] == told
    for number, placement in enumerate(told):
        assert placement is not None
        scene.bind(PREFILL, f"{placement.domain}-0", 4, group=number)
    assert [group.placement for group in scene.step().groups.values()] == told


# Several groups


def test_groups_go_to_racks_of_their_own() -> None:
    scene = Scene(pair(groups=3), racks(r1=8, r2=8, r3=8))
    for _ in range(3):
        decisions = scene.step().groups
        assert [group.current for group in decisions.values()] == ["r1", "r2", "r3"]


def test_further_groups_change_nothing_of_those_before() -> None:
    scene = packed(r1=8, r2=8)
    told = scene.told(DECODE)
    scene.wanted = pair(groups=2)
    assert [group.current for group in scene.step().groups.values()] == ["r1", "r2"]
    assert scene.told(DECODE) == told


def test_groups_that_are_gone_leave_the_others_alone() -> None:
    scene = Scene(pair(groups=2), racks(r1=8, r2=8))
    scene.step()
    scene.run("r1")
    told = scene.told(DECODE)
    scene.wanted = pair()
    assert scene.step().groups.keys() == {0}
    assert scene.told(DECODE) == told


# Changes


def test_another_mode_keeps_the_domain() -> None:
    scene = packed(r1=8, r2=64)
    scene.wanted = pair(**REQUIRED)
    assert (domain(scene), placed(scene).mode) == ("r1", PackMode.REQUIRED)


def test_another_level_is_chosen_for_where_most_pods_run() -> None:
    scene = packed(r1=8)
    for name, row in (("r1", "row-1"), ("r2", "row-2")):
        scene.inventory.put_node(node(name, name, {"example.com/row": row}, gpu=8))
    scene.wanted = pair(topologyConstraint={"packDomain": "example.com/row"})
    assert (placed(scene).key, domain(scene)) == ("example.com/row", "row-1")


def test_a_domain_of_another_key_is_no_domain() -> None:
    scene = Scene(pair(), racks(r1=6))
    scene.step()
    scene.inventory.put_node(node("r1", "r1", {"example.com/row": "row-1"}, gpu=6))
    scene.wanted = pair(topologyConstraint={"packDomain": "example.com/row"})
    assert domain(scene) == "row-1"


def changed(*roles: RoleName) -> dict[str, Any]:
    return {str(role): {"args": ["--changed"]} for role in roles}


def test_a_group_whose_pods_are_all_made_anew_goes_where_it_fits() -> None:
    scene = packed(r1=8)
    scene.inventory.put_pod(pod("a", "r1", gpu=1))
    scene.inventory.put_node(node("r2", "r2", gpu=8))
    scene.wanted = pair(**changed(*ENGINE_ROLES))
    assert domain(scene) == "r2"


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_a_group_stays_if_one_role_is_made_anew(role: RoleName) -> None:
    scene = packed(r1=8)
    scene.inventory.put_pod(pod("a", "r1", gpu=1))
    scene.inventory.put_node(node("r2", "r2", gpu=8))
    scene.wanted = pair(**changed(role))
    assert domain(scene) == "r1"


@pytest.mark.parametrize(("before", "after"), [({}, LARGE), (LARGE, {"args": ["--changed"]})], ids=str)
def test_a_group_that_moves_with_other_sizes_goes_all_the_way(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The roles change places, and what the first one is told counts from its first step."""
    scene = Scene(pair(prefill=before), inventory(node("r1", "r1", gpu=20, memory=4)))
    scene.step()
    scene.run("r1")
    scene.inventory.put_pod(pod("a", "r1", gpu=12, memory=1))
    scene.inventory.put_node(node("r2", "r2", gpu=64, memory=64))
    scene.wanted = pair(prefill=after, decode={"args": ["--changed"], "replicas": 3})
    told = scene.step().groups[0].placement
    assert told is not None
    assert (told.first is DECODE, told.domain) == (before is LARGE, "r2")
    follower = PREFILL if before is LARGE else DECODE
    assert scene.told(follower) != told
    assert placed(scene) == told


def test_a_group_that_is_made_anew_is_planned_anew() -> None:
    scene = packed(r1=64)
    scene.inventory.put_node(node("r1", "r1", gpu=64, memory=64))
    scene.wanted = pair(prefill=LARGE, **changed(DECODE))
    assert (placed(scene).domain, placed(scene).first) == ("r1", PREFILL)


# Moves


@pytest.mark.parametrize("mode", ["Preferred", "Required"])
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("here", [9, 8])
@pytest.mark.parametrize("there", [9, 8])
def test_a_group_moves_if_it_must_be_packed_and_can_live_elsewhere_only(
    mode: str, *, waits: bool, here: int, there: int
) -> None:
    constraint = {"topologyConstraint": {"mode": mode}}
    scene = packed(pair(**constraint), r1=here, r2=there)
    scene.wanted = pair(**constraint, prefill={"replicas": 5})
    if waits:
        scene.bind(PREFILL, None, of="new")
    moves = mode == "Required" and waits and here == 8 and there == 9
    assert domain(scene) == ("r2" if moves else "r1")


def test_an_autoscaled_group_moves_for_its_minimum_only() -> None:
    spec = REQUIRED | {"prefill": {"replicas": None, "autoscaling": {"minReplicas": 4, "maxReplicas": 8}}}
    scene = packed(pair(**spec), r1=8, r2=64)
    scene.deployment(PREFILL)["spec"]["replicas"] = 5
    scene.bind(PREFILL, None, of="new")
    assert domain(scene) == "r1"


def moving() -> Scene:
    """The pair, required to be in one rack, has outgrown r1 and is told to go to r2."""
    scene = packed(pair(**REQUIRED), r1=8, r2=9)
    scene.wanted = pair(**REQUIRED, prefill={"replicas": 5})
    scene.bind(PREFILL, None, of="new")
    assert scene.step().groups[0].current == "r1"
    assert (scene.told(DECODE), scene.told(PREFILL)) == (
        placed(scene),
        packed(pair(**REQUIRED), r1=8).told(PREFILL),
    )
    return scene


def test_a_group_that_moves_keeps_its_aim() -> None:
    scene = moving()
    scene.inventory.put_node(node("r3", "r3", gpu=9))
    scene.inventory.put_node(node("r2", "r2", gpu=12))
    assert domain(scene) == "r2"


def test_a_group_that_moves_keeps_its_aim_to_the_last_pod() -> None:
    scene = moving()
    scene.inventory.remove_pod("decode-0-0")
    scene.bind(DECODE, "r2", of="moved")
    scene.roll_out(DECODE)
    told = scene.step().groups[0].placement
    assert scene.told(PREFILL) == told
    scene.inventory.put_node(node("r3", "r3", gpu=64))
    assert placed(scene) == told


def test_a_group_whose_aim_is_lost_takes_another() -> None:
    scene = moving()
    scene.inventory.put_pod(pod("a", "r2", gpu=1))
    scene.inventory.put_node(node("r3", "r3", gpu=9))
    assert domain(scene) == "r3"


def test_a_group_that_never_came_where_it_was_told_moves_there() -> None:
    """A steer is soft. Told the same again, its new pods would follow the old ones."""
    scene = packed(pair(**REQUIRED), r1=8)
    told = placed(scene)
    scene.inventory.put_node(node("r2", "r2", gpu=8))
    scene.bind(PREFILL, "r2", 3)
    scene.bind(DECODE, "r2")
    scene.inventory.put_pod(pod("a", "r2", gpu=1))
    scene.inventory.remove_pod("prefill-0-3")
    scene.bind(PREFILL, None, of="new")
    scene.step()
    assert (domain(scene), placed(scene).moves) == ("r1", 1)
    assert placed(scene).identity != told.identity
    # Once it is told, it is told.
    assert scene.step().groups[0].placement == placed(scene)


def test_a_rollout_beside_the_domain_that_was_told_is_no_move() -> None:
    scene = packed(pair(**REQUIRED), r1=8)
    scene.inventory.put_node(node("r2", "r2", gpu=8))
    scene.bind(PREFILL, "r2", 3)
    scene.bind(DECODE, "r2")
    scene.inventory.remove_pod("prefill-0-3")
    scene.bind(PREFILL, None, of="new")
    scene.inventory.put_pod(pod("a", "r1", gpu=8))
    scene.deployment(PREFILL)["status"]["updatedReplicas"] = 1
    assert placed(scene) == scene.told(PREFILL)


# Mechanisms


@pytest.mark.parametrize(
    ("mode", "offered", "mechanism"),
    [
        ("Preferred", True, Mechanism.POD_AFFINITY),
        ("Preferred", False, Mechanism.POD_AFFINITY),
        ("Required", True, Mechanism.POD_GROUP),
        ("Required", False, Mechanism.POD_AFFINITY),
    ],
)
def test_a_pod_group_is_used_where_pods_may_wait(mode: str, *, offered: bool, mechanism: Mechanism) -> None:
    scene = Scene(pair(topologyConstraint={"mode": mode}), racks(r1=8), pod_groups=offered)
    assert placed(scene).mechanism is mechanism


@pytest.mark.parametrize("offered", [True, False])
def test_a_cluster_that_begins_or_ends_to_offer_pod_groups_restarts_nothing(*, offered: bool) -> None:
    scene = packed(pair(**REQUIRED), pod_groups=offered, r1=8)
    scene.pod_groups = not offered
    assert placed(scene) == scene.told(PREFILL)


@pytest.mark.parametrize(
    ("prefill", "decode", "minimum", "count"),
    [
        pytest.param(4, 1, None, 5, id="all pods"),
        pytest.param(0, 1, None, 1, id="one role alone"),
        pytest.param(0, 0, None, 1, id="none"),
        pytest.param(3, 1, 2, 4, id="as many as the autoscaler has asked for"),
        pytest.param(1, 1, 2, 3, id="as many as the autoscaler is about to ask for"),
        pytest.param(0, 1, 2, 1, id="a role that was scaled to 0 is left out"),
        pytest.param(0, 0, 2, 2, id="a group that sleeps is woken with its minimum"),
    ],
)
def test_a_gang_is_what_the_group_is_meant_to_have(
    prefill: int, decode: int, minimum: int | None, count: int
) -> None:
    spec: dict[str, Any] = {"prefill": {"replicas": prefill}, "decode": {"replicas": decode}}
    if minimum is not None:
        spec["prefill"] = {"replicas": None, "autoscaling": {"minReplicas": minimum, "maxReplicas": 8}}
    scene = Scene(pair(**REQUIRED, **spec), racks(r1=16), pod_groups=True)
    scene.step()
    scene.bind(DECODE, None, decode)
    scene.step()
    scene.deployment(PREFILL)["spec"]["replicas"] = prefill
    assert scene.decide().groups[0].min_count == count


@pytest.mark.parametrize("on", ["r1", "a node that is not known"])
def test_a_gang_is_over_once_a_pod_is_bound(on: str) -> None:
    scene = Scene(pair(**REQUIRED), racks(r1=8), pod_groups=True)
    scene.step()
    scene.bind(DECODE, on)
    assert scene.decide().groups[0].min_count == 1


def test_a_gang_is_over_where_the_level_has_lost_its_key() -> None:
    scene = packed(pair(**REQUIRED), pod_groups=True, r1=8)
    scene.wanted = pair(topologyConstraint={"packDomain": "rack", "mode": "Required"})
    assert scene.decide().groups[0].min_count == 1


# What is not known


def obstacle(decision: GroupDecision) -> Reason | None:
    return decision.obstacle[0] if decision.obstacle else None


def test_a_level_without_a_key_is_named() -> None:
    decision = decided(topologyConstraint={"packDomain": "block"})
    message = (
        "no node label is known for level block: set topologyConstraint.levels.block,"
        " or topology.levels.block of the chart"
    )
    assert decision.obstacle == (Reason.LEVEL_UNKNOWN, message)
    assert decision.placement is None


def test_a_level_that_has_lost_its_key_changes_nothing() -> None:
    scene = Scene(pair(topologyConstraint={"packDomain": "rack"}), racks(r1=8), levels={"rack": RACK})
    scene.step()
    scene.run("r1")
    scene.levels = {}
    assert placed(scene) == scene.told(PREFILL)


def test_a_resource_may_have_levels_of_its_own() -> None:
    constraint = {"packDomain": "rack", "levels": {"rack": RACK}}
    scene = Scene(pair(topologyConstraint=constraint), racks(r1=8), levels={"rack": "example.com/other"})
    assert (placed(scene).key, domain(scene)) == (RACK, "r1")


def test_the_wider_level_is_where_pods_go_that_find_no_room() -> None:
    nodes = inventory(node("n1", "r1", {"example.com/row": "row-1"}, gpu=8), node("n2", "r1", gpu=8))
    levels = {"rack": RACK, "zone": "example.com/row"}
    found = placed(Scene(pair(topologyConstraint={"packDomain": "rack"}), nodes, levels=levels))
    assert (found.wider_key, found.wider_domain) == ("example.com/row", "row-1")


def test_a_label_that_no_node_has_is_named() -> None:
    decision = decided(topologyConstraint={"packDomain": "example.com/row"})
    assert decision.obstacle == (
        Reason.NO_TOPOLOGY_LABELS,
        "no node carries the label example.com/row (example.com/row)",
    )
    assert decision.placement is not None
    assert (decision.placement.key, decision.placement.domain) == ("example.com/row", None)


def test_without_nodes_pods_attract_each_other() -> None:
    scene = Scene(pair(), Inventory(knows_nodes=False))
    assert placed(scene) == replace(PLACED, domain=None, asked=RACK)
    assert obstacle(scene.decide().groups[0]) is Reason.NODE_ACCESS_DENIED


@pytest.mark.parametrize(
    "blind", [Inventory(knows_nodes=False), inventory(node("n1", None))], ids=["denied", "bare"]
)
def test_a_domain_that_was_chosen_outlives_the_sight_of_it(blind: Inventory) -> None:
    scene = packed(r1=8)
    scene.inventory = blind
    assert placed(scene) == scene.told(PREFILL)


def test_labels_that_appear_late_restart_nothing() -> None:
    scene = Scene(pair(), inventory(node("n1", None, gpu=8)))
    scene.step()
    scene.run("n1")
    told = scene.told(PREFILL)
    scene.inventory.put_node(node("n1", "r1", gpu=8))
    assert (placed(scene), scene.decide().groups[0].current) == (told, "r1")


@pytest.mark.parametrize(
    "overlay",
    [
        {"spec": {"schedulerName": "kai-scheduler"}},
        {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}},
    ],
    ids=["another scheduler", "Kueue"],
)
@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_what_others_place_is_left_to_them(role: RoleName, overlay: dict[str, Any]) -> None:
    decision = decided(**{str(role): {"podTemplate": overlay}})
    assert (decision.placement, obstacle(decision), decision.claim) == (None, Reason.OTHER_SCHEDULER, None)


def test_the_default_scheduler_may_be_named() -> None:
    decision = decided(prefill={"podTemplate": {"spec": {"schedulerName": "default-scheduler"}}})
    assert decision.placement is not None


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": "none"},
        {"affinity": {"nodeAffinity": ["a"]}},
        {"nodeSelector": ["a"]},
        {"tolerations": ["a"]},
        {"containers": ["a"]},
        {"containers": [{"name": "engine", "resources": {"limits": {"cpu": "much"}}}]},
    ],
    ids=str,
)
def test_a_template_that_the_api_server_will_refuse_is_left_to_it(spec: dict[str, Any]) -> None:
    decision = decided(prefill={"podTemplate": {"spec": spec}})
    assert (decision.placement, obstacle(decision)) == (None, Reason.PLACEMENT_PENDING)


# Claims


def test_a_group_claims_what_is_still_to_come() -> None:
    scene = Scene(pair(), racks(r1=9, r2=64))
    scene.step()
    other = parse(raw("other", **PAIR))
    assert domain(Scene(other, scene.inventory)) == "r2"


def test_a_role_that_sleeps_claims_nothing() -> None:
    scene = Scene(pair(prefill={"replicas": None} | SCALED), racks(r1=16))
    scene.step()
    scene.bind(DECODE, "r1")
    scene.step()
    scene.deployment(PREFILL)["spec"]["replicas"] = 0
    decision = scene.decide().groups[0]
    assert decision.demand == {PREFILL: 0, DECODE: 1}
    assert decision.claim is not None
    assert decision.claim.roles[PREFILL][1] == 0


# What the Deployments keep

PLACEMENTS = st.builds(
    Placement,
    key=st.just(RACK),
    mode=st.sampled_from(PackMode),
    mechanism=st.sampled_from(Mechanism),
    first=st.sampled_from(ENGINE_ROLES),
    domain=st.none() | st.sampled_from(["r1", "r2"]),
    wider_key=st.none() | st.just("example.com/row"),
    wider_domain=st.none() | st.just("row-1"),
    nodes=st.just(()) | st.just(("n1", "n2")),
    moves=st.integers(0, 2),
)


@given(PLACEMENTS)
def test_a_placement_reads_back(placement: Placement) -> None:
    assert Placement.from_json(placement.to_json()) == placement


@given(PLACEMENTS, PLACEMENTS)
def test_pods_are_told_apart_by_domain_and_move_alone(one: Placement, other: Placement) -> None:
    same = (one.domain, one.moves) == (other.domain, other.moves)
    assert (one.identity == other.identity) == same


BROKEN = [
    "",
    "null",
    "[]",
    "{}",
    "{",
    "[" * 10_000,
    *(
        json.dumps(json.loads(PLACED.to_json()) | change)
        for change in (
            {"key": 1},
            {"mode": "perhaps"},
            {"mechanism": None},
            {"first": "router", "domain": []},
            {"domain": 5},
            {"domain": "a b"},
            {"domain": "a" * 64},
            {"nodes": "n1"},
            {"nodes": [1]},
            {"moves": "1"},
        )
    ),
]


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:80])
def test_a_placement_that_somebody_has_broken_is_none(text: str) -> None:
    assert Placement.from_json(text) is None


@pytest.mark.parametrize("text", [None, *BROKEN], ids=lambda text: str(text)[:80])
def test_a_group_whose_placements_are_broken_is_placed_where_it_runs(text: str | None) -> None:
    scene = packed(r1=8, r2=64)
    told = scene.told(PREFILL)
    for role in ENGINE_ROLES:
        annotations = scene.deployment(role)["metadata"]["annotations"]
        annotations |= {PLACEMENT: text} if text is not None else {}
        if text is None:
            del annotations[PLACEMENT]
    assert placed(scene) == told


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_a_placement_that_is_broken_on_one_role_is_read_from_the_other(role: RoleName) -> None:
    scene = packed(r1=8, r2=64)
    scene.deployment(role)["metadata"]["annotations"][PLACEMENT] = "?"
    assert placed(scene) == packed(r1=8).told(PREFILL)


def test_without_recorded_inputs_a_group_stays() -> None:
    scene = packed(r1=8, r2=64)
    for role in ENGINE_ROLES:
        del scene.deployment(role)["metadata"]["annotations"][TEMPLATE_INPUTS]
    assert placed(scene) == packed(r1=8).told(PREFILL)


# What others may do


def test_what_serves_elsewhere_holds_no_room_at_home() -> None:
    """It is not moved, so others may have the room."""
    scene = packed(r1=8)
    scene.inventory.put_node(node("r2", "r2", gpu=8))
    scene.deployment(PREFILL)["spec"]["replicas"] = 6
    scene.wanted = pair(prefill={"replicas": 6})
    scene.bind(PREFILL, "r2", 2, of="beyond")
    claim = scene.step().groups[0].claim
    assert claim is not None
    assert {role: count for role, (_, count) in claim.roles.items()} == {PREFILL: 4, DECODE: 1}


def test_another_level_map_of_the_operator_restarts_nothing() -> None:
    wanted = pair(topologyConstraint={"packDomain": "rack"})
    scene = Scene(wanted, racks(r1=8), levels={"rack": RACK})
    scene.step()
    scene.run("r1")
    before = scene.told(PREFILL)
    scene.levels = {"rack": "example.com/row"}
    assert scene.step().groups[0].placement == before
    scene.levels = {}
    assert scene.step().groups[0].placement == before


def test_groups_of_one_resource_are_apart_where_there_is_room() -> None:
    scene = Scene(pair(groups=3), racks(r1=64, r2=64, r3=64))
    found = {group.current for group in scene.step().groups.values()}
    assert found == {"r1", "r2", "r3"}


def test_groups_share_a_domain_rather_than_wait() -> None:
    scene = Scene(pair(groups=2), racks(r1=64, r2=4))
    assert {group.current for group in scene.step().groups.values()} == {"r1"}


def test_the_role_that_has_become_the_larger_one_goes_first() -> None:
    scene = packed(pair(prefill={"replicas": 4, "parallelism": {"tensor": 1}}), r1=64)
    scene.wanted = pair(prefill={"replicas": 4, "parallelism": {"tensor": 8}})
    placement = scene.step().groups[0].placement
    assert placement is not None
    assert placement.first is PREFILL


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"a": {"b": "c"}}},
        {"tolerations": [{"key": "a", "value": {"b": "c"}}]},
        {"containers": [{"name": "engine", "resources": {"requests": {"cpu": "1e9999999"}}}]},
        {"containers": [{"name": "engine", "resources": {"requests": {"cpu": "1e400000"}}}]},
    ],
    ids=str,
)
def test_an_overlay_that_makes_no_pod_is_left_to_the_api_server(spec: dict[str, Any]) -> None:
    scene = Scene(pair(decode={"podTemplate": {"spec": spec}}), racks(r1=8))
    assert scene.decide().groups[0].placement is None
