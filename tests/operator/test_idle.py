from __future__ import annotations

from datetime import UTC, datetime

import yaml

from e2e.cluster import wait_until
from tests.operator.conftest import OPERATOR, RunningOperator
from tests.operator.kube import Kube, manifest

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "visitor", "annotations": {"kwok.x-k8s.io/node": "fake"}},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "visitor"},
    "spec": {"containers": [{"name": "main", "image": "visitor"}]},
}


def test_ten_resyncs_write_nothing_while_others_come_and_go(kube: Kube, operator: RunningOperator) -> None:
    kube.apply(manifest(prefill={"autoscaling": {"minReplicas": 2, "maxReplicas": 4}}))
    kube.ready()
    kube.wait_for("llama", "AutoscalingReady", "False", "MetricsUnavailable")
    operator.restart("--resync-seconds", "1")
    passes = operator.passes()
    start = datetime.now(UTC)
    kube.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(NODE))
    kube.apply(POD)
    kube.run(
        "patch",
        "hpa",
        "llama-prefill",
        "--subresource=status",
        "--type=merge",
        "-p",
        '{"status":{"lastScaleTime":null}}',
    )
    wait_until("ten passes", lambda: operator.passes() >= passes + 10)
    kube.run("delete", "pod", "visitor", "--wait=false")
    kube.cluster.kubectl("delete", "node", "visitor")
    wait_until("ten more passes", lambda: operator.passes() >= passes + 20)
    writes = [
        event.path
        for event in kube.cluster.audit().events(username=OPERATOR, since=start)
        if event.is_write and f"/namespaces/{kube.namespace}/" in event.path
    ]
    assert writes == []
