"""Whatever a valid resource asks for, the API server accepts the resource and all that it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from disagg.api.resource import parse
from disagg.commands.render import rendered
from e2e.cluster import Cluster
from tests.placement.rest import Object, Rest
from tests.unit import strategies

pytestmark = pytest.mark.usefixtures("chart")

_STRICT = "?dryRun=All&fieldValidation=Strict"
_PATHS = {
    "DisaggregatedInference": "/apis/disagg.dev/v1alpha1/namespaces/default/disaggregatedinferences",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "Service": "/api/v1/namespaces/default/services",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    "ServiceAccount": "/api/v1/namespaces/default/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
}


@pytest.fixture(scope="module")
def rest(cluster: Cluster) -> Iterator[Rest]:
    found = Rest(cluster)
    yield found
    found.close()


def submit(rest: Rest, obj: Object) -> None:
    rest.create(_PATHS[obj["kind"]] + _STRICT, obj)


@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(strategies.raws())
def test_what_a_valid_resource_becomes_is_valid(rest: Rest, raw: dict[str, Any]) -> None:
    wanted = raw | {"metadata": {"name": raw["metadata"]["name"], "namespace": "default"}}
    submit(rest, wanted)
    for obj in rendered(parse(wanted)):
        submit(rest, obj)
