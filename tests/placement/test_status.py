"""What is told of a group, how often, and what the operator leaves alone."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.placement.crowd import at_once, unattended
from tests.placement.rest import Object
from tests.placement.scene import AFFINITY, EVERY, PREFERRED, Pods, Scene

GROUP = (Pods(2, 2), Pods(1, 4))


def _events(scene: Scene) -> list[tuple[str, str]]:
    """Reasons of the events about packing, with their messages."""
    found = scene.rest.items(f"/api/v1/namespaces/{scene.namespace}/events")
    return [
        (event["reason"], event["message"])
        for event in found
        if event["involvedObject"]["name"] == scene.name
        and event["reason"] in ("Packed", "Split", "InsufficientDomainCapacity", "PlacementPending")
    ]


def _written(scene: Scene) -> list[Object]:
    """What the operator writes: the status, and what pods are made of."""
    resource = scene.resource()
    version = {"version": resource["metadata"]["resourceVersion"]}
    templates = [scene.deployment(role)["spec"]["template"] for role in ("prefill", "decode")]
    return [resource["status"] | version, *templates]


def _settled(scene: Scene) -> list[Object]:
    """What is written when all is done: Packed is not the last thing that is told of a new resource."""
    scene.wait("it is ready", lambda: scene.condition("Ready").get("status") == "True")
    found = [_written(scene)]

    def is_still() -> bool:
        time.sleep(4)
        found.append(_written(scene))
        return found[-1] == found[-2]

    scene.wait("nothing is written any more", is_still)
    return found[-1]


@at_once(*EVERY)
def test_running_pods_are_labelled_with_their_domain(scene: Scene) -> None:
    scene.racks(a=[4, 4])
    scene.apply(*GROUP)
    scene.runs(2, 1)
    rack = f"{scene.name}-a"

    def labelled() -> bool:
        found = [pod["metadata"]["labels"] for pod in scene.pods()]
        return all(
            labels.get("disagg.dev/domain") == rack
            and labels.get("topology.disagg.dev/rack") == rack
            and labels.get("topology.disagg.dev/block") == f"{scene.name}-b"
            for labels in found
        )

    scene.wait("the pods are labelled", labelled)


@at_once(PREFERRED, AFFINITY)
def test_a_change_is_one_event(scene: Scene) -> None:
    scene.racks(a=[4, 4])
    scene.apply(Pods(None, 2), Pods(1, 4))
    scene.says("Packed")
    scene.scale("prefill", 4)
    scene.says("InsufficientDomainCapacity")
    scene.scale("prefill", 2)
    scene.runs(2, 1)
    scene.says("Packed")
    reasons = [reason for reason, _ in _events(scene)]
    assert reasons.count("InsufficientDomainCapacity") == 1, _events(scene)
    assert reasons.count("Packed") == 2, _events(scene)


@at_once(*EVERY)
def test_pods_of_others_that_come_and_go_write_nothing(scene: Scene) -> None:
    scene.racks(a=[8, 8])
    scene.apply(Pods(1, 2), Pods(1, 2), prefill={"autoscaling": {"minReplicas": 1, "maxReplicas": 2}})
    scene.runs(1, 1)
    scene.says("Packed")
    scene.wait(
        "the autoscaler is judged",
        lambda: scene.condition("AutoscalingReady").get("reason") == "MetricsUnavailable",
    )
    before = _settled(scene)
    for number in range(3):
        scene.fill(f"{scene.name}-a-{number % 2}", 1, name=f"{scene.name}-visitor-{number}")
    time.sleep(12)
    for number in range(3):
        scene.delete_pod(f"{scene.name}-visitor-{number}")
    time.sleep(5)
    assert _written(scene) == before


@at_once(*EVERY)
def test_a_better_rack_later_moves_nothing(scene: Scene) -> None:
    scene.racks(a=[4, 4])
    scene.apply(*GROUP)
    scene.is_whole_in("a", 2, 1)
    before = _settled(scene)
    scene.rack("b", 8, 8, 8)
    scene.wait_for_nodes()
    time.sleep(10)
    assert _written(scene) == before


@unattended(*EVERY)
def test_an_operator_that_comes_back_changes_nothing(scene: Scene) -> Iterator[None]:
    # Two racks are alike: nothing but what was decided before speaks for one.
    scene.racks(a=[4, 4], b=[4, 4])
    scene.apply(*GROUP)
    scene.runs(2, 1)
    scene.says("Packed")
    before, landed = _settled(scene), scene.landed()
    yield
    yield
    # Its resync is two seconds.
    time.sleep(30)
    assert _written(scene) == before
    assert scene.landed() == landed


@at_once(PREFERRED)
def test_another_scheduler_s_pods_are_left_to_it(scene: Scene) -> None:
    scene.racks(a=[4, 4])
    scene.apply(*GROUP, pod={"schedulerName": "volcano"})
    assert "volcano" in scene.says("OtherScheduler")
    spec: Object = scene.deployment("decode")["spec"]["template"]["spec"]
    assert "affinity" not in spec
    assert "schedulingGroup" not in spec
