"""The API server accepts all that resources become: each engine on each fabric, and the examples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from disagg.commands.render import rendered
from e2e.cluster import Cluster
from tests.placement.rest import Object, Rest
from tests.unit import goldens

pytestmark = pytest.mark.usefixtures("chart")

_STRICT = "?dryRun=All&fieldValidation=Strict"
_PATHS = {
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


@pytest.mark.parametrize("name", goldens.EXAMPLES)
def test_what_a_resource_becomes_is_valid(rest: Rest, name: str) -> None:
    example = goldens.EXAMPLES[name]
    metadata = example.metadata.model_copy(update={"namespace": "default"})
    for obj in rendered(example.model_copy(update={"metadata": metadata})):
        submit(rest, obj)
