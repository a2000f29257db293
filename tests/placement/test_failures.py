"""Nodes and racks that fail, are drained, and come back."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.placement.crowd import at_once, unattended
from tests.placement.scene import EVERY, Pods, Scene

SHORT = {
    "tolerations": [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 3,
        }
        for key in ("unreachable", "not-ready")
    ]
}


ROOMY = {"a": [8, 8, 8, 8], "b": [8, 8, 8, 8], "c": [4, 4]}
"""Racks that hold a group and the one that replaces it. On fuller ones a rollout sends pods elsewhere for a while."""


def _home(scene: Scene) -> str:
    (rack,) = scene.landed()
    return rack


def _node_of_decode(scene: Scene) -> str:
    return next(
        str(pod["spec"]["nodeName"])
        for pod in scene.pods()
        if pod["metadata"]["labels"]["disagg.dev/role"] == "decode"
    )


def _fits_in_a(scene: Scene) -> None:
    scene.racks(a=[4, 4, 4, 4], b=[8])
    scene.apply(Pods(2, 4), Pods(1, 4), slow_end=True, pod=SHORT)
    scene.is_whole_in("a", 2, 1)


@at_once(*EVERY)
def test_pods_of_a_node_that_is_gone_come_back_in_the_same_rack(scene: Scene) -> None:
    _fits_in_a(scene)
    scene.lose([_node_of_decode(scene)])
    scene.is_whole_in("a", 2, 1)


@at_once(*EVERY)
def test_pods_of_a_node_that_is_silent_come_back_in_the_same_rack(scene: Scene) -> None:
    _fits_in_a(scene)
    node = _node_of_decode(scene)
    scene.break_down(node)
    scene.wait(
        "a decode pod runs elsewhere",
        lambda: scene.landed() == {"a": {"prefill": 2, "decode": 1}} and _node_of_running(scene) != node,
    )
    scene.says("Packed")


def _node_of_running(scene: Scene) -> str:
    return next(
        (
            str(pod["spec"].get("nodeName"))
            for pod in scene.pods()
            if pod["metadata"]["labels"]["disagg.dev/role"] == "decode"
            and "deletionTimestamp" not in pod["metadata"]
        ),
        "",
    )


@at_once(*EVERY, slow=True)
def test_a_drained_node_s_pods_move_within_the_rack(scene: Scene) -> None:
    _fits_in_a(scene)
    node = _node_of_decode(scene)
    scene.drain([node])
    scene.is_whole_in("a", 2, 1)
    names = {pod["metadata"]["name"] for pod in scene.pods()}
    scene.cordon([node], cordoned=False)
    time.sleep(10)
    scene.is_whole_in("a", 2, 1)
    assert {pod["metadata"]["name"] for pod in scene.pods()} == names


@unattended(*EVERY)
def test_a_drained_node_s_pods_move_within_the_rack_without_the_operator(scene: Scene) -> Iterator[None]:
    _fits_in_a(scene)
    yield
    scene.drain([_node_of_decode(scene)])
    assert scene.runs(2, 1) == {"a"}
    yield
    scene.is_whole_in("a", 2, 1)


@at_once(*EVERY, slow=True)
def test_a_drained_rack_s_group_moves_to_another_one_and_stays(scene: Scene) -> None:
    scene.racks(**ROOMY)
    scene.apply(Pods(2, 4), Pods(1, 8), slow_end=True)
    assert len(scene.runs(2, 1)) == 1
    home = _home(scene)
    other = "b" if home == "a" else "a"
    scene.drain(scene.nodes(home))
    scene.comes_together_in(other, 2, 1)
    scene.cordon(scene.nodes(home), cordoned=False)
    scene.says("Packed")
    scene.is_whole_in(other, 2, 1)


@unattended(*EVERY)
def test_a_drained_rack_s_group_moves_without_the_operator(scene: Scene) -> Iterator[None]:
    scene.racks(a=[8, 8, 8], b=[8, 8, 8])
    scene.apply(Pods(2, 4), Pods(1, 8), slow_end=True)
    assert len(scene.runs(2, 1)) == 1
    home = _home(scene)
    yield
    scene.drain(scene.nodes(home))
    # Nothing that ends tells the scheduler of pods that waited for it: it tries them again after five minutes.
    racks = scene.runs(2, 1, seconds=420)
    assert len(racks) == 1
    assert racks != {home}
    yield
    scene.is_whole_in(racks.pop(), 2, 1)


@at_once(*EVERY)
def test_the_group_of_a_rack_that_is_gone_comes_back_in_another_one(scene: Scene) -> None:
    scene.racks(**ROOMY)
    scene.apply(Pods(2, 4), Pods(1, 8))
    assert len(scene.runs(2, 1)) == 1
    home = _home(scene)
    scene.lose(scene.nodes(home))
    scene.comes_together_in("b" if home == "a" else "a", 2, 1)


@at_once(*EVERY)
def test_a_group_that_must_move_to_a_rack_that_fits_exactly_is_not_stuck(scene: Scene) -> None:
    scene.racks(a=[8, 8], b=[8, 8])
    scene.apply(Pods(2, 4), Pods(1, 8))
    assert len(scene.runs(2, 1)) == 1
    home = _home(scene)
    scene.lose(scene.nodes(home))
    scene.is_whole_in("b" if home == "a" else "a", 2, 1)


@at_once(*EVERY)
def test_a_group_whose_rack_got_too_small_is_not_stuck(scene: Scene) -> None:
    scene.racks(a=[8, 8], b=[8, 8])
    scene.apply(Pods(2, 4), Pods(1, 8))
    assert len(scene.runs(2, 1)) == 1
    home = _home(scene)
    other = "b" if home == "a" else "a"
    scene.lose([_node_of_decode(scene)])
    # Required: both roles go where both fit. Preferred: what finds no room runs elsewhere.
    wanted = {other} if scene.way.mode == "Required" else {home, other}
    scene.wait("they run where they have room", lambda: scene.runs(2, 1, seconds=300) == wanted, seconds=300)
    scene.says("Packed" if len(wanted) == 1 else "Split")
