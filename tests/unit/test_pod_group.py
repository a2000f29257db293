"""PodGroups."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from disagg.api.names import MAX_NAME_LENGTH
from disagg.api.topology_constraint import PackMode
from disagg.build.objects import build
from disagg.build.pod_group import pod_group
from disagg.decide.decisions import Mechanism, Placement
from tests.unit.racks import RACK
from tests.unit.resources import resource
from tests.unit.scene import DECODE, PREFILL, REQUIRED, Scene, pair, racks

PLACED = Placement(RACK, PackMode.REQUIRED, Mechanism.POD_GROUP, DECODE, "r1")


def test_a_pod_group_is_a_gang_in_one_domain() -> None:
    assert pod_group(resource(), 1, PLACED, 5) == {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": f"llama-group-1-{PLACED.identity}",
            "namespace": "inference",
            "labels": {
                "disagg.dev/name": "llama",
                "disagg.dev/group": "1",
                "app.kubernetes.io/name": "disagg",
                "app.kubernetes.io/part-of": "llama",
                "app.kubernetes.io/managed-by": "disagg",
            },
            "ownerReferences": [resource().owner_reference],
        },
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 5}},
            "schedulingConstraints": {"topology": [{"key": RACK}]},
        },
    }


@pytest.mark.parametrize(
    "other", [replace(PLACED, domain="r2"), replace(PLACED, key="a/b"), replace(PLACED, moves=1)]
)
def test_a_group_that_moves_gets_another(other: Placement) -> None:
    """The topology of a PodGroup is immutable, and its pods that run would hold the new ones where they are."""
    names = {pod_group(resource(), 0, placement, 1)["metadata"]["name"] for placement in (PLACED, other)}
    assert len(names) == 2


def test_a_group_that_grows_keeps_its_own() -> None:
    one, other = (pod_group(resource(), 0, PLACED, count)["metadata"] for count in (1, 9))
    assert one == other


def test_its_name_is_valid() -> None:
    name = pod_group(resource("a" * MAX_NAME_LENGTH), 99, PLACED, 1)["metadata"]["name"]
    assert len(name) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)


def made(scene: Scene) -> list[str]:
    return [obj["kind"] for obj in build(scene.wanted, scene.decide())]


def test_pod_groups_are_made_before_the_pods_that_name_them() -> None:
    kinds = made(Scene(pair(**REQUIRED), racks(r1=8), pod_groups=True))
    assert kinds.count("PodGroup") == 1
    assert kinds.index("Deployment") > kinds.index("PodGroup")


def test_groups_that_are_to_be_apart_are_steered() -> None:
    assert "PodGroup" not in made(Scene(pair(groups=2, **REQUIRED), racks(r1=8, r2=8), pod_groups=True))


@pytest.mark.parametrize(
    ("mode", "offered"), [("Preferred", True), ("Required", False), ("Preferred", False)]
)
def test_groups_that_need_none_have_none(mode: str, *, offered: bool) -> None:
    scene = Scene(pair(topologyConstraint={"mode": mode}), racks(r1=8), pod_groups=offered)
    assert "PodGroup" not in made(scene)


def test_the_placement_is_kept_on_the_deployments_of_the_engines() -> None:
    scene = Scene(pair(**REQUIRED), racks(r1=8), pod_groups=True)
    scene.step()
    scene.bind(DECODE, "r1")
    placement = scene.step().groups[0].placement
    assert scene.told(DECODE) == scene.told(PREFILL) == placement
    router = scene.children["Deployment", "llama-router"]
    assert "disagg.dev/placement" not in router["metadata"]["annotations"]
