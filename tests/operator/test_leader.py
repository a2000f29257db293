from __future__ import annotations

import json

import pytest

from e2e.cluster import Cluster, wait_until
from e2e.operator_process import OperatorProcess
from tests.operator.conftest import OPERATOR, RunningOperator
from tests.operator.kube import Kube, manifest

LEASES = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "leases"},
    "rules": [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    ],
}


@pytest.fixture
def lease_rights(kube: Kube) -> None:
    kube.apply(LEASES)
    _, _, namespace, name = OPERATOR.split(":")
    kube.run("create", "rolebinding", "leases", "--role=leases", f"--serviceaccount={namespace}:{name}")


def candidate(cluster: Cluster, kube: Kube, name: str) -> OperatorProcess:
    env = {"POD_NAMESPACE": kube.namespace, "POD_NAME": name}
    return OperatorProcess(cluster, args=["--leader-elect"], env=env, name=name)


@pytest.mark.usefixtures("lease_rights")
def test_of_two_operators_one_leads_and_the_other_takes_over(
    cluster: Cluster, kube: Kube, operator: RunningOperator
) -> None:
    operator.stop()
    with candidate(cluster, kube, "first") as first, candidate(cluster, kube, "second"):

        def holder() -> str:
            lease = json.loads(kube.run("get", "lease", "disagg-operator", "-o", "json"))
            return str(lease["spec"].get("holderIdentity", ""))

        wait_until("the first to lead", lambda: holder() == "first")
        kube.apply(manifest())
        kube.ready()
        first.kill()
        wait_until("the second to lead", lambda: holder() == "second")
        kube.patch("llama", {"prefill": {"replicas": 2}})
        kube.ready()
        assert kube.replicas("llama-prefill") == 2
