"""A group that runs gets more pods, or fewer, from whoever scales its Deployments."""

from __future__ import annotations

from collections.abc import Iterator

from tests.placement.crowd import at_once, unattended
from tests.placement.scene import AFFINITY, EVERY, POD_GROUP, PREFERRED, Pods, Scene

SMALL = Pods(None, 2)
LARGE = Pods(None, 4)
STEERED = (PREFERRED, AFFINITY)
"""Of PodGroups the scheduler chooses the rack by the pods that are there: they are for groups that nobody else scales."""


def _begin(scene: Scene) -> None:
    scene.rack("a", 8, 4, block="x")
    scene.rack("b", 4, block="y")
    scene.rack("c", 4, block="x")
    scene.wait_for_nodes()
    scene.apply(SMALL, LARGE, slow_end=True)
    scene.is_whole_in("a", 1, 1)


@at_once(*STEERED)
def test_a_group_grows_in_its_rack(scene: Scene) -> None:
    _begin(scene)
    scene.scale("prefill", 4)
    assert scene.runs(4, 1) == {"a"}
    scene.tells(prefill={"a": 4}, headroom={"prefill": 0, "decode": 0})
    scene.says("Packed")


@unattended(*STEERED)
def test_a_group_grows_in_its_rack_without_the_operator(scene: Scene) -> Iterator[None]:
    _begin(scene)
    yield
    scene.scale("prefill", 4)
    assert scene.runs(4, 1) == {"a"}
    yield
    scene.tells(prefill={"a": 4})
    scene.says("Packed")


@at_once(PREFERRED)
def test_what_the_rack_has_no_room_for_goes_to_the_same_block(scene: Scene) -> None:
    _begin(scene)
    scene.scale("prefill", 5)
    assert scene.runs(5, 1) == {"a", "c"}
    assert scene.landed()["c"] == {"prefill": 1}
    message = scene.short(scene.says("Split"))
    assert "a (5 pods), c (1 pod)" in message
    scene.tells(prefill={"a": 4, "c": 1})


@unattended(PREFERRED)
def test_what_the_rack_has_no_room_for_goes_to_the_same_block_without_the_operator(
    scene: Scene,
) -> Iterator[None]:
    _begin(scene)
    yield
    scene.scale("prefill", 5)
    assert scene.runs(5, 1) == {"a", "c"}
    assert scene.landed()["c"] == {"prefill": 1}
    yield
    scene.says("Split")


@at_once(AFFINITY)
def test_what_the_rack_has_no_room_for_waits_and_is_told_of(scene: Scene) -> None:
    _begin(scene)
    scene.scale("prefill", 6)
    message = scene.short(scene.says("InsufficientDomainCapacity"))
    assert "without room: a has" in message
    scene.tells(pending={"prefill": 2, "decode": 0}, headroom={"prefill": 0, "decode": 0})
    assert scene.landed() == {"a": {"prefill": 4, "decode": 1}}
    scene.empty(f"{scene.name}-a-1")
    assert scene.runs(6, 1) == {"a"}
    scene.says("Packed")


@unattended(AFFINITY)
def test_what_waits_gets_the_room_that_comes_free_without_the_operator(scene: Scene) -> Iterator[None]:
    _begin(scene)
    yield
    scene.scale("prefill", 6)
    scene.wait("two pods wait", lambda: scene.waiting() == 2)
    scene.empty(f"{scene.name}-a-1")
    assert scene.runs(6, 1) == {"a"}
    yield
    scene.says("Packed")


@at_once(*STEERED, slow=True)
def test_a_group_shrinks_sleeps_and_wakes_in_one_rack(scene: Scene) -> None:
    _begin(scene)
    scene.scale("prefill", 4)
    scene.runs(4, 1)
    scene.scale("prefill", 1)
    scene.runs(1, 1)
    scene.scale("prefill", 0)
    scene.scale("decode", 0)
    scene.runs(0, 0)
    scene.says("ScaledToZero")
    scene.scale("decode", 1)
    scene.scale("prefill", 2)
    scene.is_whole_in("a", 2, 1)


@unattended(*STEERED)
def test_a_group_shrinks_and_grows_again_without_the_operator(scene: Scene) -> Iterator[None]:
    _begin(scene)
    scene.scale("prefill", 4)
    scene.runs(4, 1)
    yield
    scene.scale("prefill", 1)
    scene.runs(1, 1)
    scene.scale("prefill", 3)
    assert scene.runs(3, 1) == {"a"}
    yield
    scene.says("Packed")


@at_once(*STEERED, slow=True)
def test_pods_that_end_slowly_keep_others_out_of_their_rack(scene: Scene) -> None:
    _begin(scene)
    scene.scale("prefill", 4)
    scene.runs(4, 1)
    scene.scale("prefill", 2)
    scene.wait("two pods end", lambda: scene.ending() == 2)
    # While they end their GPUs are taken: another resource that needs a rack with 6 finds none.
    scene.apply(Pods(1, 2), Pods(1, 4), suffix="-other")
    said = scene.condition(suffix="-other") or {}
    assert said.get("reason") != "Packed"
    scene.runs(2, 1)
    assert scene.landed() == {"a": {"prefill": 2, "decode": 1}}


@at_once(POD_GROUP)
def test_a_group_that_others_scale_is_no_pod_group(scene: Scene) -> None:
    scene.racks(a=[8])
    scene.apply(SMALL, LARGE)
    scene.is_whole_in("a", 1, 1, mechanism="PodAffinity")


@at_once(*EVERY)
def test_a_group_that_its_resource_enlarges_stays_in_its_rack(scene: Scene) -> None:
    scene.racks(a=[8], b=[4, 1])
    scene.apply(Pods(1, 2), Pods(1, 4))
    scene.is_whole_in("a", 1, 1)
    scene.empty(f"{scene.name}-b-1")
    scene.patch(prefill={"replicas": 2})
    assert scene.runs(2, 1) == {"a"}
    scene.says("Packed")
