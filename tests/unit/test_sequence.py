"""Which role waits for the other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.api.names import PLACEMENT, RoleName, Workload
from disagg.decide.sequence import PATIENCE, held
from disagg.topology.inventory import Inventory
from tests.unit.racks import node
from tests.unit.resources import resource
from tests.unit.scene import DECODE, NOW, PREFILL, REQUIRED, Scene, packed, pair, racks

LEADER, FOLLOWER = DECODE, PREFILL
ROLES = (LEADER, FOLLOWER)


def waiting(scene: Scene, after: timedelta = timedelta()) -> set[RoleName]:
    """The roles of the first group that wait."""
    pods = scene.environment.pods_of(scene.wanted, 0)
    return {
        workload.role for workload in held(0, scene.decide().groups[0], scene.observed, pods, NOW + after)
    }


def new(replicas: int = 2, **spec: object) -> Scene:
    """A pair of which nothing is there yet but the Deployment of the larger pods."""
    scene = Scene(pair(decode={"replicas": replicas}, **spec), racks(r1=16, r2=64))
    scene.step()
    return scene


# A new group


def test_the_larger_pods_come_first() -> None:
    assert waiting(Scene(pair(), racks(r1=8))) == {FOLLOWER}
    assert waiting(new()) == {FOLLOWER}


@pytest.mark.parametrize(
    ("pods", "waits"),
    [
        pytest.param([], True, id="none is known"),
        pytest.param(["r1"], True, id="one is not known"),
        pytest.param(["r1", "r1"], False, id="all have nodes"),
        pytest.param(["r1", None], False, id="for one there is no node"),
        pytest.param([None, None], False, id="there is no node"),
    ],
)
def test_the_others_come_when_the_scheduler_has_answered(pods: list[str | None], *, waits: bool) -> None:
    scene = new()
    for index, name in enumerate(pods):
        scene.bind(LEADER, name, of=str(index))
    assert waiting(scene) == ({FOLLOWER} if waits else set())


def test_a_role_that_is_to_have_no_pods_keeps_nobody_waiting() -> None:
    assert waiting(new(replicas=0)) == set()


@pytest.mark.parametrize(("after", "waits"), [(PATIENCE, True), (PATIENCE + timedelta(seconds=1), False)])
def test_patience_ends(after: timedelta, *, waits: bool) -> None:
    assert waiting(new(), after) == ({FOLLOWER} if waits else set())


def test_patience_begins_anew_with_each_progress() -> None:
    scene = new()
    later = (NOW + PATIENCE).isoformat()
    scene.deployment(LEADER)["status"] = {"conditions": [{"type": "Progressing", "lastUpdateTime": later}]}
    assert waiting(scene, 2 * PATIENCE) == {FOLLOWER}
    assert waiting(scene, 3 * PATIENCE) == set()


def test_where_pods_are_not_known_nobody_waits() -> None:
    scene = new()
    assert held(0, scene.decide().groups[0], scene.observed, None, NOW) == set()


def test_without_a_placement_nobody_waits() -> None:
    other = {"podTemplate": {"spec": {"schedulerName": "other"}}}
    assert waiting(Scene(pair(prefill=other), racks(r1=8))) == set()


def test_the_routers_wait_for_nobody() -> None:
    decisions = Scene(pair(groups=2), racks(r1=8, r2=8)).decide()
    assert decisions.held == {Workload(FOLLOWER, 0), Workload(FOLLOWER, 1)}
    assert decisions.workloads.keys() & decisions.held == set()


# A group that runs


def test_a_group_that_runs_waits_for_nothing() -> None:
    scene = packed(r1=16)
    assert waiting(scene) == set()
    scene.wanted = pair(prefill={"replicas": 6}, decode={"replicas": 2})
    assert scene.step().held == set()
    assert waiting(scene) == set()


def test_a_change_of_pods_alone_rolls_out_at_once() -> None:
    scene = packed(r1=8)
    scene.wanted = pair(prefill={"args": ["--changed"]}, decode={"args": ["--changed"]})
    assert scene.step().held == set()


def test_a_group_that_is_no_longer_packed_rolls_out_at_once() -> None:
    scene = packed(r1=8)
    scene.wanted = resource()
    decisions = scene.step()
    assert not decisions.groups
    assert not decisions.held
    assert (scene.told(PREFILL), scene.told(DECODE)) == (None, None)


# A group that moves

STATUS: dict[str, int] = {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        pytest.param({}, False, id="rolled out"),
        pytest.param({"observedGeneration": 1}, True, id="not seen"),
        pytest.param({"updatedReplicas": 0}, True, id="an old pod"),
        pytest.param({"readyReplicas": 0}, True, id="not ready"),
        pytest.param({"replicas": 2}, True, id="an old pod beside the new one"),
    ],
)
def test_the_second_role_moves_when_the_first_has_come(status: dict[str, int], *, waits: bool) -> None:
    scene = packed(r1=8)
    scene.wanted = pair(**REQUIRED)
    before = scene.told(FOLLOWER)
    scene.step()
    scene.deployment(LEADER)["status"] = STATUS | status
    # However long it takes: with both roles on their way nothing would serve.
    assert waiting(scene, timedelta(days=1)) == ({FOLLOWER} if waits else set())
    assert (scene.told(FOLLOWER) == before) is True


def test_a_role_without_pods_has_nothing_to_lose() -> None:
    scene = packed(r1=8)
    for index in range(4):
        scene.inventory.remove_pod(f"prefill-0-{index}")
    scene.wanted = pair(**REQUIRED)
    scene.step()
    assert waiting(scene) == set()


CHANGES: list[dict[str, Any]] = [
    {},
    REQUIRED,
    {"topologyConstraint": {"packDomain": "example.com/row"}},
    {"decode": {"args": ["--changed"]}, "prefill": {"args": ["--changed"], "parallelism": {"tensor": 4}}},
]


@given(
    st.sampled_from(CHANGES), st.lists(st.sampled_from(["step", "leader", "follower", "break"]), max_size=8)
)
def test_a_group_that_moves_never_has_both_roles_on_their_way(
    change: dict[str, Any], events: list[str]
) -> None:
    scene = packed(r1=64)
    scene.inventory.put_node(node("r1", "r1", {"example.com/row": "row-1"}, gpu=64))
    scene.wanted = pair(**change)
    order = [LEADER, FOLLOWER]
    for event in [*events, "step", "leader", "step", "follower", "step"]:
        match event:
            case "step":
                before = {
                    role: scene.deployment(role)["metadata"]["annotations"].get(PLACEMENT) for role in order
                }
                unfinished = [role for role in order if not is_rolled_out(scene, role)]
                decisions = scene.step()
                assert len(decisions.held) <= 1
                begun = [
                    role
                    for role in order
                    if scene.deployment(role)["metadata"]["annotations"].get(PLACEMENT) != before[role]
                ]
                assert len(begun) <= 1
                assert not begun or not set(unfinished) - set(begun)
            case "leader" | "follower":
                scene.roll_out(order[event == "follower"])
            case _:
                scene.bind(FOLLOWER, None, of="broken")
    assert scene.told(LEADER) == scene.told(FOLLOWER) == scene.decide().groups[0].placement


def is_rolled_out(scene: Scene, role: RoleName) -> bool:
    deployment = scene.deployment(role)
    return bool(
        deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
        and deployment["status"]["updatedReplicas"] == deployment["spec"]["replicas"]
    )


def test_groups_move_each_for_itself() -> None:
    scene = Scene(pair(groups=2), racks(r1=8, r2=8))
    scene.step()
    scene.run("r1")
    assert scene.decide().held == {Workload(FOLLOWER, 1)}


def test_a_role_that_nothing_is_known_of_is_not_kept_back_for_ever() -> None:
    """Without node rights: a group is placed by affinity, and in the same order."""
    scene = Scene(pair(), Inventory(knows_nodes=False))
    scene.step()
    assert waiting(scene) == {FOLLOWER}
    scene.bind(LEADER, "somewhere")
    assert waiting(scene) == set()
