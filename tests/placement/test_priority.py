"""Pods that push others out."""

from __future__ import annotations

from tests.placement.crowd import at_once
from tests.placement.scene import EVERY, Pods, Scene


@at_once(*EVERY)
def test_a_group_that_lost_a_pod_to_a_more_important_one_gets_it_back(scene: Scene) -> None:
    scene.racks(a=[8, 8])
    scene.apply(Pods(2, 4), Pods(1, 8))
    scene.is_whole_in("a", 2, 1)
    scene.foreign_pod(f"{scene.name}-vip", 8, priority="placement-high")
    message = scene.short(scene.says("InsufficientDomainCapacity"))
    assert "a has" in message
    scene.delete_pod(f"{scene.name}-vip")
    scene.is_whole_in("a", 2, 1)


@at_once(*EVERY)
def test_a_group_that_is_more_important_than_others_gets_a_rack(scene: Scene) -> None:
    for rack in "ab":
        scene.rack(rack, 0, 0, priority="placement-low")
    scene.wait_for_nodes()
    scene.apply(Pods(1, 8), Pods(1, 8), pod={"priorityClassName": "placement-high"})
    racks = scene.runs(1, 1)
    if scene.way.mode == "Required":
        assert len(racks) == 1
    scene.says("Packed" if len(racks) == 1 else "Split")
    # A PodGroup has a priority of its own, which cannot follow that of the pods.
    assert scene.group()["mechanism"] == "PodAffinity"
