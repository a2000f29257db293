from __future__ import annotations

from typing import Any

import pytest
import yaml

from e2e.cluster import CommandError
from tests.operator.kube import Kube, manifest

pytestmark = pytest.mark.usefixtures("chart")

LONGEST = "a" * 50


def create(kube: Kube, resource: dict[str, Any]) -> str:
    return kube.run("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(resource))


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        pytest.param(manifest("a.b"), 'metadata.name "a.b" cannot become the name of a Service', id="dot"),
        pytest.param(manifest("Llama"), "a lowercase RFC 1123 subdomain must consist of", id="upper case"),
        pytest.param(manifest("1llama"), "begin with a letter", id="leading digit"),
        pytest.param(
            manifest("a" * 51), "metadata.name has 51 characters, at most 50 are allowed", id="too long"
        ),
        pytest.param(
            manifest(prefill={"autoscaling": {"minReplicas": 5, "maxReplicas": 2}}),
            "spec.prefill.autoscaling.minReplicas: Invalid value: minReplicas (5) must be at most maxReplicas (2)",
            id="prefill min > max",
        ),
        pytest.param(
            manifest(decode={"autoscaling": {"minReplicas": 3, "maxReplicas": 1}}),
            "spec.decode.autoscaling.minReplicas: Invalid value: minReplicas (3) must be at most maxReplicas (1)",
            id="decode min > max",
        ),
        pytest.param(
            manifest(rollout={"maxSurge": 0, "maxUnavailable": 0}),
            "spec.rollout.maxUnavailable: Invalid value: maxSurge and maxUnavailable must not both be 0",
            id="no rollout possible",
        ),
        pytest.param(
            manifest(rollout={"maxSurge": "0%", "maxUnavailable": 0}),
            "must not both be 0",
            id="no rollout in percent",
        ),
        pytest.param(
            manifest(rollout={"maxSurge": -1}),
            "spec.rollout.maxSurge: Invalid value: -1",
            id="negative surge",
        ),
        pytest.param(
            manifest(rollout={"maxUnavailable": "200%"}),
            'spec.rollout.maxUnavailable: Invalid value: "200%"',
            id="more than all unavailable",
        ),
        pytest.param(
            manifest(decode={"autoscaling": {"maxReplicas": 2, "kvCacheUtilization": 95}}),
            "spec.decode.autoscaling.kvCacheUtilization: Invalid value: 95",
            id="target within the tolerance",
        ),
        pytest.param(
            manifest(prefill={"autoscaling": {"maxReplicas": 2, "queueDepth": 0}}),
            "spec.prefill.autoscaling.queueDepth: Invalid value: 0",
            id="target 0",
        ),
        pytest.param(
            manifest(prefill={"autoscaling": {"minReplicas": 0, "maxReplicas": 2}}),
            "spec.prefill.autoscaling.minReplicas: Invalid value: 0",
            id="autoscaling to 0",
        ),
        pytest.param(
            manifest(prefill={"replicas": -1}),
            "spec.prefill.replicas: Invalid value: -1",
            id="negative replicas",
        ),
        pytest.param(
            manifest(engine={"kind": "triton"}),
            'spec.engine.kind: Unsupported value: "triton": supported values: "vllm", "sglang", "trtllm", "custom"',
            id="unknown engine",
        ),
        pytest.param(
            manifest(router={"kind": "nginx"}),
            'spec.router.kind: Unsupported value: "nginx": supported values: "vllm-router", "smg", "trtllm", "none"',
            id="unknown router",
        ),
        pytest.param(
            manifest(prefill={"parallelism": {"tensor": 4}}, decode={"parallelism": {"tensor": 2}}),
            "decode.parallelism.tensor (2) must be a multiple of prefill.parallelism.tensor (4)",
            id="tensor sizes that cannot pair",
        ),
        pytest.param(
            manifest(router={"kind": "smg", "image": "smg"}),
            "router.kind smg cannot pair vllm pods",
            id="smg with vllm",
        ),
        pytest.param(
            manifest(engine={"kind": "custom"}, router={"kind": "smg"}),
            "spec.router: Invalid value: image is required when kind is smg",
            id="smg without an image",
        ),
        pytest.param(manifest(groups=101), "spec.groups: Invalid value: 101", id="groups"),
        pytest.param(
            manifest(model={"uri": "s3://a/b"}), "spec.model.uri: Invalid value", id="unknown model source"
        ),
        pytest.param(manifest(prefil={}), 'unknown field "spec.prefil"', id="typo"),
        pytest.param(
            manifest(engine={"env": [{"name": "A", "value": "b", "valueFrom": {}}]}),
            "env A: set value or valueFrom, not both",
            id="two values",
        ),
        pytest.param(
            manifest(prefill={"resources": {"requests": {"memory": "lots"}}}),
            "spec.prefill.resources.requests.memory: Invalid value",
            id="quantity",
        ),
    ],
)
def test_a_bad_resource_is_refused_with_field_value_and_rule(
    kube: Kube, resource: dict[str, Any], message: str
) -> None:
    with pytest.raises(CommandError) as refusal:
        create(kube, resource)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "resource",
    [
        pytest.param(manifest(), id="smallest"),
        pytest.param(manifest(LONGEST), id="longest name"),
        pytest.param(manifest(prefill={"replicas": 0}, decode={"replicas": 0}), id="no replicas"),
        pytest.param(manifest(rollout={"maxUnavailable": 0}), id="surge follows"),
        pytest.param(manifest(decode={"autoscaling": {"minReplicas": 2, "maxReplicas": 2}}), id="min = max"),
        pytest.param(manifest(router={"kind": "none"}), id="no router"),
    ],
)
def test_a_good_resource_is_accepted(kube: Kube, resource: dict[str, Any]) -> None:
    assert "created" in create(kube, resource)


def test_the_count_of_pods_has_no_default(kube: Kube) -> None:
    kube.apply(manifest(prefill={"args": []}))
    assert "replicas" not in kube.get("dinf", "llama")["spec"]["prefill"]
