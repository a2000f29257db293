"""An operator that may read its own namespace only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster
from e2e.operator_process import RELEASE, OperatorProcess
from tests.placement.crowd import Crowd
from tests.placement.scene import AFFINITY, PREFERRED, Pods, Scene, Way

NAMESPACE = "blind"


@pytest.fixture(scope="module")
def blind(cluster: Cluster, crowd: Crowd) -> Iterator[Crowd]:
    """The crowd, with an operator that has no right to read nodes."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("--namespace", NAMESPACE, "create", "serviceaccount", "operator")
    right = ("rolebinding", "operator", f"--clusterrole={RELEASE}", f"--serviceaccount={NAMESPACE}:operator")
    cluster.kubectl("--namespace", NAMESPACE, "create", *right)
    arguments = (f"--namespace={NAMESPACE}", "--pod-group=off")
    account = (NAMESPACE, "operator")
    with OperatorProcess(cluster, service_account=account, args=arguments, name="operator-blind"):
        yield crowd


@pytest.fixture(params=[PREFERRED, AFFINITY], ids=str)
def scene(blind: Crowd, request: pytest.FixtureRequest) -> Scene:
    way: Way = request.param
    return blind.scene(NAMESPACE, way)


def test_without_a_right_to_read_nodes_pods_attract_each_other_and_nobody_claims_more(scene: Scene) -> None:
    scene.racks(a=[8, 8], b=[8, 8])
    scene.apply(Pods(2, 2), Pods(2, 4))
    assert len(scene.runs(2, 2)) == 1
    assert "may not read nodes" in scene.says("NodeAccessDenied")
    assert scene.condition()["status"] == "Unknown"
