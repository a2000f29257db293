"""What is said of where groups are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.api.names import ENGINE_ROLES
from disagg.api.status import MAX_DOMAINS, ConditionType, Fits, PodsByRole, Reason, Status
from disagg.assess.assess import Findings, assess
from disagg.assess.packing import UNCONSTRAINED, WAITING, Packing, assess_packing
from disagg.topology.inventory import Inventory
from disagg.topology.levels import HOSTNAME
from tests.unit.racks import RACK, inventory, node, pod
from tests.unit.resources import resource
from tests.unit.scene import DECODE, NOW, PREFILL, REQUIRED, Scene, packed, pair, racks


def judged(scene: Scene) -> Packing:
    return assess_packing(scene.wanted, scene.observed, scene.decide().groups, scene.environment)


def told(scene: Scene) -> tuple[str, Reason, str]:
    found = judged(scene)
    return found.status, found.reason, found.message


def remember(scene: Scene, later: timedelta = timedelta()) -> Status:
    """Judge the resource, and keep that as its status."""
    status = assess(scene.wanted, scene.observed, None, NOW + later, Findings(judged(scene)))
    scene.wanted = scene.wanted.model_copy(update={"status": status})
    return status


# One group


def test_without_a_constraint_pods_run_anywhere() -> None:
    assert judged(Scene(resource(), racks(r1=8))) == UNCONSTRAINED


def test_a_group_in_one_domain_is_packed() -> None:
    assert told(packed(r1=8, r2=8)) == ("True", Reason.PACKED, "all pods run in r1")


def test_a_new_group_is_being_placed() -> None:
    scene = Scene(pair(), racks(r1=8))
    expected = ("Unknown", Reason.PLACEMENT_PENDING, "pods are being placed in r1")
    assert told(scene) == expected
    scene.step()
    scene.bind(DECODE, "r1")
    assert told(scene) == expected


def test_a_group_that_nothing_holds_is_told_of_the_best_domain() -> None:
    assert told(Scene(pair(), racks(r1=6, r2=7))) == (
        "False",
        Reason.INSUFFICIENT_DOMAIN_CAPACITY,
        "no domain holds the group: r2 has 7 of 7 example.com/gpu free; largest free block 7 on node r2",
    )


def test_a_group_without_any_node_is_told_so_at_once() -> None:
    cordoned = node("r1", gpu=8) | {"spec": {"unschedulable": True}}
    assert told(Scene(pair(), inventory(cordoned))) == (
        "False",
        Reason.INSUFFICIENT_DOMAIN_CAPACITY,
        (
            "no node that is ready takes prefill or decode pods: look at their node selector, affinity and tolerations,"
            " and at cordoned nodes"
        ),
    )


@pytest.mark.parametrize(("pending", "said"), [(1, "1 pod without room"), (3, "3 pods without room")])
def test_pods_that_find_no_room_are_counted(pending: int, said: str) -> None:
    scene = packed(r1=8)
    scene.bind(PREFILL, None, pending, of="new")
    room = "r1 has room for 0 more prefill pods or 0 more decode pods"
    assert told(scene) == ("False", Reason.INSUFFICIENT_DOMAIN_CAPACITY, f"{said}: {room}")


def split(*nodes: str) -> Scene:
    scene = packed(r1=64)
    for number, name in enumerate(nodes):
        scene.inventory.put_node(node(name, name, gpu=8))
        scene.bind(PREFILL, name, of=f"split-{number}")
    return scene


def test_a_group_in_several_domains_is_split() -> None:
    assert told(split("r2")) == (
        "False",
        Reason.SPLIT,
        "runs in 2 domains: r1 (5 pods), r2 (1 pod); when r1 has room, a restart brings the group together",
    )


def test_a_group_that_is_all_over_the_place_is_told_in_a_few_words() -> None:
    message = told(split(*(f"r{number}" for number in range(2, 7))))[2]
    assert message.startswith("runs in 6 domains: r1 (5 pods), r2 (1 pod), r3 (1 pod), and 3 more; ")


def test_pods_on_nodes_without_the_label_may_be_anywhere() -> None:
    scene = packed(r1=64)
    scene.inventory.put_node(node("bare", None, gpu=8))
    scene.bind(PREFILL, "bare", of="lost")
    expected = f"1 pod on nodes without the label {RACK}, which may be anywhere"
    assert told(scene) == ("False", Reason.NODES_LACK_LABEL, expected)


def test_a_group_without_pods_sleeps() -> None:
    scene = Scene(pair(prefill={"replicas": 0}, decode={"replicas": 0}), racks(r1=8))
    assert told(scene) == ("True", Reason.SCALED_TO_ZERO, "the group has no pods")


def test_an_autoscaled_group_that_was_put_to_sleep_sleeps() -> None:
    autoscaling = {"replicas": None, "autoscaling": {"maxReplicas": 4}}
    scene = packed(pair(prefill=autoscaling, decode=autoscaling), r1=16)
    for role, count in ((PREFILL, 4), (DECODE, 1)):
        scene.deployment(role)["spec"]["replicas"] = 0
        for index in range(count):
            scene.inventory.remove_pod(f"{role}-0-{index}")
    assert judged(scene).reason is Reason.SCALED_TO_ZERO


@pytest.mark.parametrize(
    ("scene", "status", "reason"),
    [
        (Scene(pair(topologyConstraint={"packDomain": "block"}), racks(r1=8)), "False", Reason.LEVEL_UNKNOWN),
        (Scene(pair(), inventory(node("n1", None))), "False", Reason.NO_TOPOLOGY_LABELS),
        (Scene(pair(), Inventory(knows_nodes=False)), "Unknown", Reason.NODE_ACCESS_DENIED),
        (
            Scene(pair(prefill={"podTemplate": {"spec": {"schedulerName": "kai"}}}), racks(r1=8)),
            "Unknown",
            Reason.OTHER_SCHEDULER,
        ),
    ],
    ids=["level", "labels", "nodes", "scheduler"],
)
def test_what_keeps_the_operator_from_knowing_is_named(scene: Scene, status: str, reason: Reason) -> None:
    found = judged(scene)
    assert (found.status, found.reason) == (status, reason)
    assert found.message == (scene.decide().groups[0].obstacle or ("", ""))[1]


# Moves


def test_a_group_that_moves_is_no_split_group_until_it_has_come() -> None:
    scene = packed(r1=8, r2=64)
    scene.wanted = pair(**REQUIRED)
    both = "pods of prefill and decode are replaced, one role after the other, to be packed in r1"
    assert told(scene) == ("False", Reason.CONSTRAINT_CHANGED, both)
    scene.step()
    assert told(scene)[2] == both
    scene.roll_out(DECODE)
    assert told(scene)[2].startswith("pods of prefill are replaced")
    scene.step()
    # The last pods are still on their way.
    scene.bind(PREFILL, "r2", of="late")
    assert told(scene)[1] is Reason.CONSTRAINT_CHANGED
    scene.roll_out(PREFILL)
    scene.inventory.remove_pod("prefill-0-late0")
    assert told(scene) == ("True", Reason.PACKED, "all pods run in r1")


def test_a_rollout_in_place_is_no_move() -> None:
    scene = packed(r1=8)
    scene.wanted = pair(prefill={"args": ["--changed"]})
    scene.step()
    assert judged(scene).reason is Reason.PACKED


# From one moment to the next


def test_a_packed_group_stays_packed_while_it_grows() -> None:
    """Else each pod of an autoscaler would be an event."""
    scene = packed(r1=16)
    status = remember(scene)
    scene.wanted = pair(prefill={"replicas": 6}).model_copy(update={"status": status})
    assert judged(scene).reason is Reason.PACKED
    scene.inventory.put_pod(pod("new", group=scene.key(), role="prefill", gpu=1))
    assert judged(scene).reason is Reason.PACKED


def test_a_packed_group_that_has_lost_its_pods_is_placed_again() -> None:
    scene = packed(r1=8)
    remember(scene)
    for uid in ("decode-0-0", *(f"prefill-0-{index}" for index in range(4))):
        scene.inventory.remove_pod(uid)
    assert judged(scene).reason is Reason.PLACEMENT_PENDING


def test_a_group_that_was_split_is_not_packed_before_all_its_pods_are() -> None:
    scene = split("r2")
    remember(scene)
    scene.inventory.remove_pod("prefill-0-split-00")
    scene.inventory.remove_pod("decode-0-0")
    assert judged(scene).reason is Reason.PLACEMENT_PENDING


def message(status: Status) -> str:
    condition = status.condition(ConditionType.PACKED)
    assert condition is not None
    return condition.message


def test_the_message_is_that_of_the_last_change() -> None:
    """Amounts move with every pod of others, and each would be a write."""
    scene = packed(r1=8)
    scene.bind(PREFILL, None, of="new")
    before = remember(scene)
    scene.inventory.put_pod(pod("other", "r1", gpu=3))
    scene.bind(PREFILL, None, of="newer")
    after = remember(scene, timedelta(hours=1))
    assert message(after) == message(before) != judged(scene).message
    # Nothing to write but what the status shows of pods.
    assert after.conditions == before.conditions


def test_another_domain_is_another_message() -> None:
    scene = Scene(pair(), racks(r1=8, r2=9))
    assert message(remember(scene)) == "pods are being placed in r1"
    scene.inventory.put_pod(pod("other", "r1", gpu=3))
    assert message(remember(scene)) == "pods are being placed in r2"


# Several groups


@pytest.mark.parametrize(
    ("runs", "status", "reason", "text"),
    [
        pytest.param(
            ["r1", "r2"],
            "True",
            Reason.PACKED,
            "group 0: all pods run in r1; group 1: all pods run in r2",
            id="all",
        ),
        pytest.param(
            ["r1"], "Unknown", Reason.PLACEMENT_PENDING, "group 1: pods are being placed in r2", id="one"
        ),
        pytest.param(
            [],
            "Unknown",
            Reason.PLACEMENT_PENDING,
            "group 0: pods are being placed in r1; group 1: pods are being placed in r2",
            id="none",
        ),
    ],
)
def test_groups_are_as_good_as_the_worst_of_them(
    runs: list[str], status: str, reason: Reason, text: str
) -> None:
    scene = Scene(pair(groups=2), racks(r1=8, r2=8))
    scene.step()
    for number, name in enumerate(runs):
        scene.run(name, group=number)
    assert told(scene) == (status, reason, text)


def test_a_group_without_room_is_worse_than_one_that_is_split() -> None:
    scene = Scene(pair(groups=2), racks(r1=8, r2=1))
    scene.step()
    scene.run("r1")
    scene.bind(PREFILL, "r2", of="split")
    scene.bind(PREFILL, None, group=1)
    found = judged(scene)
    assert found.reason is Reason.INSUFFICIENT_DOMAIN_CAPACITY
    assert found.message.startswith("group 1: 1 pod without room: ")


def test_many_groups_are_told_in_a_few_words() -> None:
    found = judged(Scene(pair(groups=100), Inventory(knows_nodes=False)))
    assert found.message.count("group ") == 3 + found.message.count("pods of the group ")
    assert found.message.endswith("; and 97 more")


@pytest.mark.parametrize(
    ("groups", "shown"), [(1, "r1"), (3, "r1,r2,r3"), (4, "r1,r2,r3,+1"), (5, "r1,r2,r3,+2")]
)
def test_domains_fit_in_a_column(groups: int, shown: str) -> None:
    nodes = inventory(*(node(f"r{number}", f"r{number}", gpu=8) for number in range(1, groups + 1)))
    assert judged(Scene(pair(groups=groups), nodes)).domains == shown


def test_without_a_domain_no_domain_is_shown() -> None:
    assert judged(Scene(pair(), Inventory(knows_nodes=False))).domains is None


# The groups of the status


def test_a_group_is_shown_with_its_pods_and_its_room() -> None:
    scene = packed(r1=16, r2=8)
    scene.bind(PREFILL, "r2", of="split")
    scene.bind(PREFILL, None, 2, of="new")
    (group,) = judged(scene).groups or []
    assert group.model_dump() == {
        "group": 0,
        "domain": "r1",
        "level_key": RACK,
        "mechanism": "PodAffinity",
        "prefill": {"r1": 4, "r2": 1},
        "decode": {"r1": 1},
        "pending": PodsByRole(prefill=2, decode=0).model_dump(),
        "fits": Fits(now=True, at_maximum=True).model_dump(),
        "headroom": PodsByRole(prefill=8, decode=2).model_dump(),
    }


@pytest.mark.parametrize(
    ("autoscaling", "free", "headroom"),
    [
        pytest.param(None, 64, 8, id="without autoscaling up to a fixed number"),
        pytest.param(None, 11, 3, id="without autoscaling"),
        pytest.param({"minReplicas": 4, "maxReplicas": 6}, 64, 2, id="up to the maximum"),
        pytest.param({"minReplicas": 4, "maxReplicas": 30}, 64, 26, id="beyond the fixed number"),
        pytest.param({"minReplicas": 4, "maxReplicas": 4}, 64, 0, id="at the maximum"),
        pytest.param({"minReplicas": 4, "maxReplicas": 30}, 8, 0, id="a full domain"),
    ],
)
def test_headroom_ends_where_it_is_of_no_use(
    autoscaling: dict[str, Any] | None, free: int, headroom: int
) -> None:
    prefill = {"replicas": None, "autoscaling": autoscaling} if autoscaling else {}
    (group,) = judged(packed(pair(prefill=prefill), r1=free)).groups or []
    assert group.headroom is not None
    assert group.headroom.prefill == headroom


def test_a_role_above_its_maximum_has_no_headroom() -> None:
    scene = packed(pair(prefill={"replicas": None, "autoscaling": {"maxReplicas": 4}}), r1=64)
    scene.deployment(PREFILL)["spec"]["replicas"] = 9
    (group,) = judged(scene).groups or []
    assert group.headroom is not None
    assert group.headroom.prefill == 0


def test_a_status_holds_the_largest_of_very_many_domains() -> None:
    constraint = {"packDomain": "host"}
    scene = Scene(pair(topologyConstraint=constraint), inventory(), levels={"host": HOSTNAME})
    for number in range(MAX_DOMAINS + 1):
        name = f"n{number:04}"
        scene.inventory.put_node(node(name, None, {HOSTNAME: name}, gpu=8))
        scene.bind(PREFILL, name, 2 if number == MAX_DOMAINS else 1, of=name)
    (group,) = judged(scene).groups or []
    assert group.prefill is not None
    assert (len(group.prefill), next(iter(group.prefill.items()))) == (MAX_DOMAINS, (f"n{MAX_DOMAINS}", 2))


def test_what_nobody_knows_is_not_shown() -> None:
    (group,) = judged(Scene(pair(), Inventory(knows_nodes=False))).groups or []
    assert group.model_dump(exclude_none=True) == {"group": 0, "level_key": RACK, "mechanism": "PodAffinity"}


@given(
    st.lists(
        st.tuples(st.sampled_from([*ENGINE_ROLES]), st.sampled_from(["r1", "r2", "bare", "gone", None])),
        max_size=6,
    ),
    st.integers(0, 16),
    st.sampled_from(["Preferred", "Required"]),
    st.integers(1, 2),
)
def test_whatever_happens_there_is_a_status(
    pods: list[tuple[Any, str | None]], free: int, mode: str, groups: int
) -> None:
    scene = Scene(pair(groups=groups, topologyConstraint={"mode": mode}), racks(r1=free, r2=8))
    scene.inventory.put_node(node("bare", None, gpu=8))
    scene.step()
    for index, (role, name) in enumerate(pods):
        scene.bind(role, name, of=str(index))
    scene.step()
    found = judged(scene)
    assert (found.status == "True") is (found.reason in (Reason.PACKED, Reason.SCALED_TO_ZERO))
    assert "None" not in found.message
    if found.reason is Reason.PACKED:
        for number in range(groups):
            places = scene.inventory.placed(scene.key(number), RACK).values()
            assert len({name for by_domain in places for name in by_domain}) == 1
    # What waits is looked at again, unless it is about to run: its node will be news.
    if any(sum(scene.inventory.pods(scene.key(number)).unschedulable.values()) for number in range(groups)):
        assert found.reason in (*WAITING, Reason.SPLIT, Reason.NODES_LACK_LABEL, Reason.PACKED)
    remember(scene)
