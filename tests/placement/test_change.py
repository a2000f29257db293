"""topologyConstraint changes while pods run: what moves, and that one role is always up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.placement.crowd import at_once
from tests.placement.scene import AFFINITY, EVERY, PREFERRED, REQUIRED, Pods, Scene


@contextmanager
def _never_both_down(scene: Scene) -> Iterator[None]:
    """Assert that at each moment a prefill pod or a decode pod was ready, and pods of both most of the time."""
    samples: list[tuple[int, int]] = []
    over = threading.Event()

    def sample() -> None:
        while not over.is_set():
            counts = [
                scene.deployment(role).get("status", {}).get("readyReplicas", 0)
                for role in ("prefill", "decode")
            ]
            samples.append((counts[0], counts[1]))
            time.sleep(0.3)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert samples
    assert (0, 0) not in samples


def _begin(scene: Scene, mode: str) -> None:
    scene.racks(a=[4, 4, 4], b=[4, 2])
    scene.apply(Pods(2, 2), Pods(2, 4), topologyConstraint={"mode": mode})
    assert scene.runs(2, 2) == {"a"}


@at_once(*REQUIRED)
def test_a_group_that_must_be_packed_from_now_on_stays_up(scene: Scene) -> None:
    _begin(scene, "Preferred")
    with _never_both_down(scene):
        scene.patch(topologyConstraint={"mode": "Required"})
        scene.wait("it is rolled out", lambda: scene.group().get("mechanism") == scene.way.mechanism)
        scene.says("Packed", seconds=300)
        scene.rolled_out()
    scene.is_whole_in("a", 2, 2)


@at_once(PREFERRED)
def test_a_group_that_need_not_be_packed_any_more_stays_up(scene: Scene) -> None:
    _begin(scene, "Required")
    with _never_both_down(scene):
        scene.patch(topologyConstraint={"mode": "Preferred"})
        scene.wait("it is rolled out", lambda: scene.group().get("mechanism") == "PodAffinity")
        scene.rolled_out()
    # A pod that finds the rack full because the one before it still ends runs elsewhere.
    racks = scene.runs(2, 2)
    scene.says("Packed" if len(racks) == 1 else "Split")


# Not by PodGroup: with the larger role alone the scheduler takes any rack that holds that, see docs/topology.md.
@at_once(PREFERRED, AFFINITY)
def test_a_group_that_is_packed_from_now_on_is_brought_together_one_role_after_the_other(
    scene: Scene,
) -> None:
    scene.racks(a=[4], b=[4], c=[4])
    scene.apply(Pods(2, 2), Pods(1, 4), topologyConstraint=None)
    assert len(scene.runs(2, 1)) >= 2
    scene.rack("d", 8)
    scene.wait_for_nodes()
    with _never_both_down(scene):
        scene.patch(topologyConstraint={"packDomain": "rack", "mode": scene.way.mode})
        scene.says("ConstraintChanged")
        scene.says("Packed", seconds=300)
        scene.rolled_out()
    scene.is_whole_in("d", 2, 1)


@at_once(PREFERRED, AFFINITY)
def test_a_wider_domain_moves_nothing_further_than_it_must(scene: Scene) -> None:
    _begin(scene, scene.way.mode)
    with _never_both_down(scene):
        scene.patch(topologyConstraint={"packDomain": "block"})
        scene.wait("the status tells of it", lambda: scene.column() == ["b"])
        scene.rolled_out()
        scene.says("Packed", seconds=300)
    scene.runs(2, 2)
    assert scene.group()["levelKey"] == "topology.kubernetes.io/block"


@at_once(*EVERY)
def test_a_group_that_is_added_or_removed_restarts_no_other(scene: Scene) -> None:
    scene.racks(a=[4, 4], b=[4, 4], c=[4, 4])
    scene.apply(Pods(2, 2), Pods(1, 4))
    scene.runs(2, 1)
    names = {pod["metadata"]["name"] for pod in scene.pods()}
    scene.patch(groups=3)
    scene.runs(6, 3)
    homes = [set(scene.landed(group=number)) for number in range(3)]
    assert sorted(map(tuple, homes)) == [("a",), ("b",), ("c",)]
    assert names < {pod["metadata"]["name"] for pod in scene.pods()}
    scene.patch(groups=1)
    scene.runs(2, 1)
    assert names == {pod["metadata"]["name"] for pod in scene.pods()}
