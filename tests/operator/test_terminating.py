from __future__ import annotations

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from disagg.cluster.client import Client, ResourceType
from disagg.cluster.errors import NamespaceTerminatingError
from tests.operator.kube import Kube

CONFIG_MAP = ResourceType("v1", "ConfigMap", "configmaps")


def _config_map(name: str, namespace: str, **metadata: object) -> dict[str, object]:
    head = {"name": name, "namespace": namespace, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head}


async def test_a_namespace_that_is_being_deleted_is_told_from_a_missing_right(kube: Kube) -> None:
    configuration = Configuration()
    await config.load_kube_config(str(kube.cluster.kubeconfig), client_configuration=configuration)
    kube.apply(_config_map("holder", kube.namespace, finalizers=["disagg.dev/test"]))
    kube.cluster.kubectl("delete", "namespace", kube.namespace, "--wait=false")
    async with Client(configuration, user_agent="test") as client:
        with pytest.raises(NamespaceTerminatingError, match="is being terminated"):
            await client.apply(CONFIG_MAP, _config_map("late", kube.namespace), manager="test")
    kube.run("patch", "configmap", "holder", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
