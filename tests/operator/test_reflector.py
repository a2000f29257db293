from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from disagg.cluster.client import Client, Object, ResourceType
from disagg.cluster.errors import ForbiddenError
from disagg.cluster.reflector import Reflector, Timing
from tests.operator.kube import Kube

CONFIG_MAPS = ResourceType("v1", "ConfigMap", "configmaps")
NODES = ResourceType("v1", "Node", "nodes")
PODS = ResourceType("v1", "Pod", "pods")
MINE = "disagg.dev/test=reflector"


class Inventory:
    """What a consumer keeps: the objects that are there, by uid."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.syncs = 0

    def put(self, obj: Object) -> None:
        self.objects[obj["metadata"]["uid"]] = obj

    def remove(self, obj: Object) -> None:
        self.objects.pop(obj["metadata"]["uid"], None)

    def synced(self, uids: set[str]) -> None:
        self.objects = {uid: obj for uid, obj in self.objects.items() if uid in uids}
        self.syncs += 1

    def data(self) -> dict[str, str]:
        return {obj["metadata"]["name"]: obj["data"]["key"] for obj in self.objects.values()}


def config_map(name: str, value: str = "1") -> Object:
    key, _, label = MINE.partition("=")
    head = {"name": name, "labels": {key: label}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": {"key": value}}


@pytest.fixture
def requests() -> list[tuple[str, int]]:
    return []


@pytest.fixture
async def client(kube: Kube, requests: list[tuple[str, int]]) -> AsyncIterator[Client]:
    configuration = Configuration()
    await config.load_kube_config(str(kube.cluster.kubeconfig), client_configuration=configuration)
    async with Client(
        configuration, user_agent="test", on_request=lambda verb, code, _: requests.append((verb, code))
    ) as client:
        yield client


@contextlib.asynccontextmanager
async def reflecting(reflector: Reflector) -> AsyncIterator[Inventory]:
    inventory = Inventory()
    running = asyncio.create_task(reflector.run(inventory))
    yield inventory
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():  # noqa: ASYNC110 - what it waits for happens elsewhere
            await asyncio.sleep(0.02)


async def test_an_inventory_follows_what_is_made_changed_and_deleted(client: Client, kube: Kube) -> None:
    kube.apply(config_map("a"))
    reflector = Reflector(client, CONFIG_MAPS, namespace=kube.namespace, label_selector=MINE)
    async with reflecting(reflector) as inventory:
        await until(lambda: inventory.data() == {"a": "1"})
        kube.apply(config_map("b"))
        await until(lambda: inventory.data() == {"a": "1", "b": "1"})
        kube.apply(config_map("b", "2"))
        await until(lambda: inventory.data() == {"a": "1", "b": "2"})
        kube.run("delete", "configmap", "a")
        await until(lambda: inventory.data() == {"b": "2"})
    assert inventory.syncs == 1


async def test_what_is_no_longer_selected_is_gone(client: Client, kube: Kube) -> None:
    kube.apply(config_map("a"))
    reflector = Reflector(client, CONFIG_MAPS, namespace=kube.namespace, label_selector=MINE)
    async with reflecting(reflector) as inventory:
        await until(lambda: inventory.data() == {"a": "1"})
        kube.run("label", "configmap", "a", MINE.partition("=")[0] + "-")
        await until(lambda: not inventory.objects)


async def test_pages_make_up_one_list(client: Client, kube: Kube, requests: list[tuple[str, int]]) -> None:
    kube.apply(*(config_map(f"c{n}") for n in range(5)))
    reflector = Reflector(client, CONFIG_MAPS, namespace=kube.namespace, label_selector=MINE, page=2)
    async with reflecting(reflector) as inventory:
        await until(lambda: inventory.syncs == 1)
        assert set(inventory.data()) == {f"c{n}" for n in range(5)}
        assert requests.count(("list", 200)) == 3


async def test_a_watch_that_the_api_server_ends_is_resumed(
    client: Client, kube: Kube, requests: list[tuple[str, int]]
) -> None:
    timing = Timing(watch=(1, 1))
    reflector = Reflector(client, CONFIG_MAPS, namespace=kube.namespace, label_selector=MINE, timing=timing)
    async with reflecting(reflector) as inventory:
        await until(lambda: requests.count(("watch", 200)) == 3)
        kube.apply(config_map("a"))
        await until(lambda: inventory.data() == {"a": "1"})
        await until(lambda: requests.count(("watch", 200)) == 6)
        kube.run("delete", "configmap", "a")
        await until(lambda: not inventory.objects)
    assert requests.count(("list", 200)) == inventory.syncs == 1


@pytest.mark.parametrize("resource", [NODES, PODS], ids=lambda resource: resource.plural)
async def test_a_kind_is_listed_over_the_whole_cluster(
    client: Client, kube: Kube, resource: ResourceType
) -> None:
    expected = kube.cluster.kubectl("get", resource.plural, "-A", "-o", "name").split()
    async with reflecting(Reflector(client, resource, page=2)) as inventory:
        await until(lambda: inventory.syncs == 1)
        names = {f"{resource.kind.lower()}/{obj['metadata']['name']}" for obj in inventory.objects.values()}
    assert names >= set(expected)


async def test_without_rights_it_ends(kube: Kube) -> None:
    configuration = Configuration()
    kube.run("create", "serviceaccount", "nobody")
    path = kube.cluster.kubeconfig_for_service_account(kube.namespace, "nobody")
    await config.load_kube_config(str(path), client_configuration=configuration)
    async with Client(configuration, user_agent="test") as client:
        with pytest.raises(ForbiddenError, match='cannot list resource "nodes"'):
            async with asyncio.timeout(20):
                await Reflector(client, NODES).run(Inventory())
