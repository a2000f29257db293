"""Node labels that come late, change, vanish, or were never there."""

from __future__ import annotations

from tests.placement.crowd import at_once
from tests.placement.scene import EVERY, PREFERRED, REQUIRED, Pods, Scene

GROUP = (Pods(2, 2), Pods(1, 4))


def _own_key(scene: Scene) -> str:
    """A key that no node of any scene carries."""
    return f"example.com/{scene.name}"


@at_once(*REQUIRED)
def test_a_group_waits_for_labels_that_come_late(scene: Scene) -> None:
    key = _own_key(scene)
    scene.racks(a=[4, 8], b=[8], c=[2, 2])
    scene.apply(*GROUP, topologyConstraint={"packDomain": key})
    assert f"no node carries the label {key}" in scene.says("NoTopologyLabels")
    assert scene.landed() == {}
    for rack in "abc":
        scene.label(scene.nodes(rack), **{key: rack})
    racks = scene.runs(2, 1)
    assert racks in ({"a"}, {"b"})
    assert scene.says("Packed").endswith(racks.pop())


@at_once(PREFERRED)
def test_a_group_runs_anywhere_until_labels_come(scene: Scene) -> None:
    key = _own_key(scene)
    scene.racks(a=[4, 8], b=[8], c=[2, 2])
    scene.apply(*GROUP, topologyConstraint={"packDomain": key})
    scene.runs(2, 1)
    scene.says("NoTopologyLabels")
    racks = scene.landed()
    for rack in "abc":
        scene.label(scene.nodes(rack), **{key: rack})
    scene.says("Packed" if len(racks) == 1 else "Split")
    assert scene.landed() == racks


@at_once(*EVERY)
def test_a_label_that_changes_splits_a_running_group_and_moves_nothing(scene: Scene) -> None:
    scene.racks(a=[4, 4], b=[2])
    scene.apply(*GROUP)
    scene.is_whole_in("a", 2, 1)
    names = {pod["metadata"]["name"] for pod in scene.pods()}
    busy = {pod["metadata"]["labels"]["disagg.dev/role"]: pod["spec"]["nodeName"] for pod in scene.pods()}
    scene.label([busy["decode"]], rack="z")
    message = scene.short(scene.says("Split"))
    assert "a (2 pods), z (1 pod)" in message
    assert {pod["metadata"]["name"] for pod in scene.pods()} == names
    scene.label([busy["decode"]], rack="a")
    scene.is_whole_in("a", 2, 1)
    assert {pod["metadata"]["name"] for pod in scene.pods()} == names


@at_once(*EVERY)
def test_a_label_that_vanishes_is_told_of_and_moves_nothing(scene: Scene) -> None:
    scene.racks(a=[4, 4], b=[2])
    scene.apply(*GROUP)
    scene.is_whole_in("a", 2, 1)
    names = {pod["metadata"]["name"] for pod in scene.pods()}
    node = next(pod["spec"]["nodeName"] for pod in scene.pods() if "-decode-" in pod["metadata"]["name"])
    scene.label([node], rack=None)
    assert "1 pod" in scene.says("NodesLackLabel")
    assert scene.group()["decode"] == {"": 1}
    assert {pod["metadata"]["name"] for pod in scene.pods()} == names


@at_once(PREFERRED)
def test_pods_on_nodes_without_the_label_are_told_of(scene: Scene) -> None:
    scene.rack("a", 4)
    scene.rack("n", 8, labels={"topology.kubernetes.io/rack": None})
    scene.wait_for_nodes()
    scene.apply(Pods(2, 4), Pods(1, 4))
    scene.runs(2, 1)
    assert "topology.kubernetes.io/rack" in scene.says("NodesLackLabel")


@at_once(*REQUIRED)
def test_a_required_group_keeps_off_nodes_without_the_label(scene: Scene) -> None:
    scene.rack("a", 4, 4)
    scene.rack("n", 8, 8, labels={"topology.kubernetes.io/rack": None})
    scene.wait_for_nodes()
    scene.apply(*GROUP)
    scene.is_whole_in("a", 2, 1)


@at_once(*EVERY)
def test_a_level_of_the_resource_overrides_that_of_the_operator(scene: Scene) -> None:
    key = "example.com/row"
    scene.rack("a", 4, labels={key: f"{scene.name}-r"})
    scene.rack("b", 4, labels={key: f"{scene.name}-r"})
    scene.rack("c", 4, labels={key: f"{scene.name}-s"})
    scene.wait_for_nodes()
    scene.apply(*GROUP, topologyConstraint={"levels": {"rack": key}})
    assert scene.runs(2, 1) == {"a", "b"}
    scene.says("Packed")
    assert scene.column() == ["r"]
    assert scene.group()["levelKey"] == key


@at_once(*EVERY)
def test_a_group_may_be_packed_into_a_host(scene: Scene) -> None:
    scene.racks(a=[6, 6], b=[8, 2])
    scene.apply(*GROUP, topologyConstraint={"packDomain": "host"})
    assert scene.runs(2, 1) == {"b"}
    scene.says("Packed")
    assert scene.column() == ["b-0"]


@at_once(*EVERY)
def test_a_group_may_be_packed_into_a_block_of_racks(scene: Scene) -> None:
    scene.rack("a", 4, block="x")
    scene.rack("b", 4, block="y")
    scene.rack("c", 4, block="y")
    scene.wait_for_nodes()
    scene.apply(*GROUP, topologyConstraint={"packDomain": "block"})
    assert scene.runs(2, 1) == {"b", "c"}
    scene.says("Packed")
    assert scene.column() == ["y"]
