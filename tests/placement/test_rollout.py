"""Pods are replaced in a rack that is full, while those before them end for a minute and hold their GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.placement.crowd import at_once, unattended
from tests.placement.scene import EVERY, Pods, Scene

NO_SURGE = {"maxSurge": 0, "maxUnavailable": 1}


def _begin(scene: Scene) -> None:
    """Pods of one size: those of one role leave holes that fit the other's."""
    scene.racks(a=[8, 8], b=[8, 4])
    scene.apply(Pods(2, 4), Pods(2, 4), slow_end=True, rollout=NO_SURGE)
    scene.is_whole_in("a", 2, 2)


def _is_told_truly(scene: Scene) -> None:
    """Required: in the one rack. Preferred: a pod that finds it full runs elsewhere rather than wait."""
    scene.rolled_out()
    racks = scene.runs(2, 2, seconds=420)
    if scene.way.mode == "Required":
        assert racks == {"a"}
    scene.says("Packed" if len(racks) == 1 else "Split")
    landed = scene.landed()

    def agrees() -> bool:
        group = scene.group()
        return all(
            group.get(role) == {rack: roles[role] for rack, roles in landed.items() if roles[role]}
            for role in ("prefill", "decode")
        )

    scene.wait("the status tells where they landed", agrees)


@at_once(*EVERY, slow=True)
def test_a_restart_in_a_full_rack_ends(scene: Scene) -> None:
    _begin(scene)
    scene.restart()
    scene.rolled_out()
    _is_told_truly(scene)


@unattended(*EVERY)
def test_a_restart_in_a_full_rack_ends_without_the_operator(scene: Scene) -> Iterator[None]:
    _begin(scene)
    yield
    scene.restart()
    scene.rolled_out()
    if scene.way.mode == "Required":
        assert scene.runs(2, 2) == {"a"}
    yield
    _is_told_truly(scene)


@at_once(*EVERY, slow=True)
def test_a_new_image_in_a_full_rack_ends(scene: Scene) -> None:
    _begin(scene)
    before = scene.deployment("prefill")["metadata"]["generation"]
    scene.patch(engine={"image": "vllm/vllm-openai:v0.33.0"})
    scene.wait(
        "it begins", lambda: scene.deployment("prefill")["metadata"]["generation"] > before, seconds=300
    )
    scene.rolled_out()
    _is_told_truly(scene)


@unattended(*EVERY)
def test_a_rollout_that_the_operator_has_begun_ends_without_it(scene: Scene) -> Iterator[None]:
    _begin(scene)
    scene.patch(decode={"image": "mirror.example.com/vllm-openai:v0.32.0"})
    scene.wait("it begins", lambda: scene.ending() > 0)
    yield
    scene.rolled_out("decode")
    if scene.way.mode == "Required":
        assert set(scene.landed()) == {"a"}
    yield
    _is_told_truly(scene)


def _begin_mixed(scene: Scene) -> None:
    scene.racks(a=[8, 4], b=[8, 2])
    scene.apply(Pods(2, 2), Pods(2, 4), slow_end=True, rollout={"maxSurge": 0, "maxUnavailable": 2})
    scene.is_whole_in("a", 2, 2)


@at_once(*EVERY, slow=True)
def test_roles_of_different_size_are_restarted_one_after_the_other(scene: Scene) -> None:
    _begin_mixed(scene)
    for role in ("decode", "prefill"):
        scene.restart(role)
        scene.rolled_out()
    _is_told_truly(scene)


@unattended(*EVERY)
def test_a_role_is_restarted_beside_another_of_different_size_without_the_operator(
    scene: Scene,
) -> Iterator[None]:
    _begin_mixed(scene)
    yield
    scene.restart("decode")
    scene.rolled_out()
    if scene.way.mode == "Required":
        assert scene.runs(2, 2) == {"a"}
    yield
    _is_told_truly(scene)


@at_once(*EVERY, slow=True)
def test_roles_of_different_size_that_are_restarted_at_once_come_together_again(scene: Scene) -> None:
    _begin_mixed(scene)
    scene.restart()
    # Small pods may take the room of large ones, which wait or run elsewhere: the operator sees to it.
    scene.wait("it is rolled out", lambda: scene.ending() > 0)
    _is_told_truly(scene)


@unattended(*EVERY)
def test_roles_of_different_size_that_were_restarted_at_once_are_not_stuck_when_it_is_back(
    scene: Scene,
) -> Iterator[None]:
    _begin_mixed(scene)
    yield
    scene.restart()
    scene.wait("it is rolled out", lambda: scene.ending() > 0)
    scene.wait("the pods before are gone", lambda: not scene.ending(), seconds=300)
    yield
    _is_told_truly(scene)
