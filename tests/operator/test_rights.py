from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, CommandError, wait_until
from tests.operator.conftest import OPERATOR, OPERATOR_ROLE, RunningOperator
from tests.operator.kube import Kube, manifest

pytestmark = pytest.mark.usefixtures("operator")


class Rights:
    """The operator's ClusterRole."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before = self._read()

    def _read(self) -> list[dict[str, list[str]]]:
        text = self._cluster.kubectl("get", "clusterrole", OPERATOR_ROLE, "-o", "json")
        return list(json.loads(text)["rules"])

    def take(self, resource: str, *verbs: str) -> None:
        rules = [
            rule
            if resource not in rule["resources"]
            else rule | {"verbs": [verb for verb in rule["verbs"] if verb not in verbs]}
            for rule in self._read()
        ]
        self._write(rules)
        # The API server's authorizer learns of the change from a watch.
        user = f"--as={OPERATOR}"
        asked = ("auth", "can-i", verbs[0], resource, "--all-namespaces", user)
        wait_until("the right to be gone", lambda: not self._can(*asked))

    def _can(self, *asked: str) -> bool:
        try:
            return self._cluster.kubectl(*asked).strip() == "yes"
        except CommandError:
            # kubectl says no with an exit status, too.
            return False

    def restore(self) -> None:
        self._write(self._before)

    def _write(self, rules: list[dict[str, list[str]]]) -> None:
        patch = json.dumps({"rules": rules})
        self._cluster.kubectl("patch", "clusterrole", OPERATOR_ROLE, "--type=merge", "-p", patch)


@pytest.fixture
def rights(cluster: Cluster) -> Iterator[Rights]:
    found = Rights(cluster)
    yield found
    found.restore()


def test_a_missing_right_is_a_condition_with_verb_and_resource(kube: Kube, rights: Rights) -> None:
    rights.take("horizontalpodautoscalers", "patch", "create")
    kube.apply(manifest(prefill={"autoscaling": {"maxReplicas": 2}}))
    condition = kube.wait_for("llama", "Stalled", "True", "Forbidden")
    assert (
        'cannot patch resource "horizontalpodautoscalers" in API group "autoscaling"' in condition["message"]
    )


def test_a_right_that_is_given_back_is_used(kube: Kube, rights: Rights) -> None:
    rights.take("services", "patch", "create")
    kube.apply(manifest())
    kube.wait_for("llama", "Stalled", "True", "Forbidden")
    rights.restore()
    kube.patch("llama", {"prefill": {"replicas": 2}})
    kube.ready()


def test_a_right_to_read_that_is_missing_is_told_of(
    kube: Kube, rights: Rights, operator: RunningOperator
) -> None:
    kube.apply(manifest())
    kube.ready()
    rights.take("rolebindings", "list", "watch")
    kube.patch("llama", {"prefill": {"replicas": 2}})
    condition = kube.wait_for("llama", "Stalled", "True", "Forbidden")
    # The chart's rule is about both, and either request may be the first to be refused.
    assert re.search('cannot list resource "role(binding)?s"', condition["message"])
    assert operator.is_running
