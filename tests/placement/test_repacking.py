"""Groups that a full rack has scattered or broken up come together again, and no pod is deleted for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.placement.crowd import at_once, unattended
from tests.placement.rest import Object
from tests.placement.scene import PREFERRED, REQUIRED, Pods, Scene

READY, END = "pod-ready.stage.kwok.x-k8s.io/delay", "pod-delete.stage.kwok.x-k8s.io/delay"
NEVER = "24h"


def _annotated(**delays: str) -> Object:
    names = {"ready": READY, "end": END}
    annotations = {names[name]: delay for name, delay in delays.items()}
    return {"podTemplate": {"metadata": {"annotations": annotations}}}


def _repacked(scene: Scene) -> list[str]:
    """Names of the pods that the operator has deleted, as its events tell."""
    found = scene.rest.items(f"/api/v1/namespaces/{scene.namespace}/events")
    return [
        event["message"].split()[1]
        for event in found
        if event["involvedObject"]["name"] == scene.name and event["reason"] == "Repacked"
    ]


def _names(scene: Scene, role: str) -> set[str]:
    """Pods of a role that are to stay."""
    return {
        pod["metadata"]["name"]
        for pod in scene.pods()
        if pod["metadata"]["labels"]["disagg.dev/role"] == role and "deletionTimestamp" not in pod["metadata"]
    }


# Preferred


@at_once(PREFERRED, slow=True)
def test_after_a_restart_in_a_full_rack_all_pods_are_at_home_and_none_was_lost_that_served(
    scene: Scene,
) -> None:
    scene.racks(a=[8], b=[8, 8])
    slow = _annotated(ready="40s", end="15s")
    scene.apply(Pods(3, 2), Pods(1, 2), prefill=slow, decode=_annotated(end="15s"))
    scene.is_whole_in("a", 3, 1)
    scene.wait("all pods serve", lambda: scene.deployment("prefill")["status"].get("availableReplicas") == 3)
    scene.restart("prefill")
    served, fewest = set[str](), 3

    def is_over() -> bool:
        nonlocal fewest
        # What serves is asked first: a pod that is deleted after it is no mistake of this test.
        served.update(
            pod["metadata"]["name"]
            for pod in scene.pods()
            if any(
                c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", [])
            )
        )
        found = scene.deployment("prefill")
        spec, status = found["spec"], found["status"]
        fewest = min(fewest, status.get("availableReplicas", 0))
        return bool(
            status["observedGeneration"] >= found["metadata"]["generation"]
            and status.get("updatedReplicas") == spec["replicas"] == status.get("availableReplicas")
            and status["replicas"] == spec["replicas"]
        )

    scene.wait("the rollout is over", is_over, seconds=600)
    scene.is_whole_in("a", 3, 1)
    gone = _repacked(scene)
    assert gone
    assert len(gone) == len(set(gone))
    assert not served.intersection(gone)
    assert fewest >= 2


@at_once(PREFERRED, slow=True)
def test_a_pod_that_the_scheduler_keeps_from_home_is_not_deleted_for_ever(scene: Scene) -> None:
    scene.racks(a=[8], b=[8])
    apart = {
        "labelSelector": {"matchLabels": {"noisy": scene.name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    # The operator does not look at affinity between pods of others and its own.
    spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}}
    scene.apply(Pods(2, 2), Pods(1, 4), pod=spec)
    scene.runs(2, 1)
    (home,) = scene.landed()
    neighbour = scene.fill(f"{scene.name}-{home}-0", 0, name=f"{scene.name}-neighbour")
    path = f"/api/v1/namespaces/{scene.namespace}/pods/{neighbour}"
    scene.rest.patch(path, {"metadata": {"labels": {"noisy": scene.name}}})
    scene.patch(prefill=_annotated(ready=NEVER))
    scene.wait("it is tried", lambda: len(_repacked(scene)) == 5 and len(_names(scene, "prefill")) == 2)
    before = _names(scene, "prefill")
    time.sleep(30)
    assert len(_repacked(scene)) == 5
    assert _names(scene, "prefill") == before


# Required


def _break_up(scene: Scene) -> None:
    """Small pods on three of four nodes, so that one of two large ones waits, though there is room for all."""
    scene.racks(a=[4, 4, 4, 4])
    scene.apply(Pods(4, 2), Pods(2, 4), prefill=_annotated(ready="10s", end="15s"))
    scene.is_whole_in("a", 4, 2)


def _wedge(scene: Scene) -> set[str]:
    """Returns the small pods."""
    by_role: dict[str, list[Object]] = {"prefill": [], "decode": []}
    for pod in scene.pods():
        by_role[pod["metadata"]["labels"]["disagg.dev/role"]].append(pod)
    large, small = by_role["decode"][0], by_role["prefill"][0]
    node = str(large["spec"]["nodeName"])
    nodes = scene.nodes("a")
    scene.cordon(nodes)
    scene.delete_pod(large["metadata"]["name"])
    scene.wait("a large pod waits", lambda: scene.waiting() == 1)
    scene.fill(node, 1, name=f"{scene.name}-blocker")
    scene.delete_pod(small["metadata"]["name"])
    scene.wait("a small pod waits", lambda: scene.waiting() == 2 and not scene.ending())
    scene.cordon([node], cordoned=False)
    scene.wait("the small pod has its place", lambda: scene.waiting() == 1)
    scene.delete_pod(f"{scene.name}-blocker")
    small_ones = _names(scene, "prefill")
    scene.cordon(nodes, cordoned=False)
    return small_ones


def _was_cheap(scene: Scene, before: set[str]) -> None:
    """One pod was lost that served. That which came for it may have come to the same node first."""
    assert len(before - _names(scene, "prefill")) == 1
    assert 1 <= len(_repacked(scene)) <= 2


@at_once(*REQUIRED)
def test_small_pods_make_room_for_a_large_one(scene: Scene) -> None:
    _break_up(scene)
    before = _wedge(scene)
    scene.is_whole_in("a", 4, 2)
    _was_cheap(scene, before)


@unattended(*REQUIRED)
def test_small_pods_make_room_for_a_large_one_when_the_operator_is_back(scene: Scene) -> Iterator[None]:
    _break_up(scene)
    yield
    before = _wedge(scene)
    time.sleep(15)
    assert _names(scene, "prefill") == before
    assert scene.waiting() == 1
    assert _repacked(scene) == []
    yield
    scene.is_whole_in("a", 4, 2)
    _was_cheap(scene, before)


@at_once(*REQUIRED, slow=True)
def test_roles_of_different_size_that_are_restarted_at_once_end_in_one_piece(scene: Scene) -> None:
    _break_up(scene)
    for _ in range(2):
        scene.restart()
        scene.rolled_out()
        scene.is_whole_in("a", 4, 2)
