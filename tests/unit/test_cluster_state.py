"""What the operator knows of nodes and pods, against a server that lists them and tells of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from disagg.api.names import RoleName
from disagg.cluster.client import Client
from disagg.cluster.errors import ForbiddenError
from disagg.reconcile.cluster_state import ClusterState
from disagg.reconcile.queue import Key, KeyQueue
from tests.unit.racks import GROUP, OTHER, RACK, node, pod

KEY = Key(GROUP.namespace, GROUP.name)
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"


def versioned(raw: dict[str, Any]) -> dict[str, Any]:
    """As the API server has it."""
    raw["metadata"] = {"uid": f"uid-{raw['metadata']['name']}"} | raw["metadata"] | {"resourceVersion": "1"}
    return raw


@dataclass
class Server:
    """Lists what is there, and watches for as long as it is not told to end that."""

    objects: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {NODES: [], PODS: []})
    forbidden: set[str] = field(default_factory=set)
    events: dict[str, asyncio.Queue[bytes | None]] = field(default_factory=dict)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path in self.forbidden:
            status = {"kind": "Status", "status": "Failure", "code": 403, "message": f"{path} is forbidden"}
            return web.json_response(status, status=403)
        if "watch" not in request.query:
            items = [versioned(raw) for raw in self.objects.get(path, [])]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        events = self.events.setdefault(path, asyncio.Queue())
        while (line := await events.get()) is not None:
            await response.write(line)
            if b'"ERROR"' in line:
                break
        return response

    def tell(self, path: str, kind: str, raw: dict[str, Any]) -> None:
        line = orjson.dumps({"type": kind, "object": versioned(raw)}) + b"\n"
        self.events.setdefault(path, asyncio.Queue()).put_nowait(line)


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(app) as running:
        configuration = Configuration(host=str(running.make_url("")).rstrip("/"))
        async with Client(configuration, user_agent="test") as client:
            yield client
        for events in server.events.values():
            events.put_nowait(None)


Watch = Callable[..., Awaitable[ClusterState]]


@pytest.fixture
async def watch(client: Client) -> AsyncIterator[Watch]:
    tasks: list[asyncio.Task[None]] = []

    async def watch(*namespaces: str) -> ClusterState:
        """The state once it is known. The resource that the pods belong to is packed."""
        state = ClusterState(KeyQueue(), packed={KEY})
        tasks.append(asyncio.create_task(state.watch(client, namespaces)))
        known = asyncio.create_task(state.known())
        await asyncio.wait([tasks[0], known], timeout=20, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            known.cancel()
            tasks[0].result()
        return state

    yield watch
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def become(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - it may be anything
            await asyncio.sleep(0.005)


def told(state: ClusterState) -> bool:
    """Whether the resource is to be looked at."""
    return KEY in state.queue._waiting  # noqa: SLF001 - without waiting for it


async def quiet(state: ClusterState) -> ClusterState:
    """The state, with what was told so far taken."""
    if told(state):
        key, _ = await state.queue.get()
        state.queue.done(key)
    return state


# Known


async def test_nodes_and_pods_are_known_once_they_have_been_listed(server: Server, watch: Watch) -> None:
    server.objects = {NODES: [node("n1", "r1", gpu=8)], PODS: [pod("a", "n1", group=GROUP, gpu=2)]}
    state = await watch()
    assert state.inventory.placed(GROUP, RACK)[RoleName.DECODE] == {"r1": 1}
    assert [item.name for item in state.own.of(GROUP)] == ["a"]
    assert told(state)


async def test_changes_are_followed(server: Server, watch: Watch) -> None:
    state = await watch()
    server.tell(NODES, "ADDED", node("n1", "r1"))
    server.tell(PODS, "ADDED", pod("a", "n1", group=GROUP))
    await become(lambda: bool(state.inventory.groups_on("n1")) and state.inventory.node("n1") is not None)
    server.tell(PODS, "DELETED", pod("a", "n1", group=GROUP))
    server.tell(NODES, "DELETED", node("n1", "r1"))
    await become(lambda: not state.own.of(GROUP) and state.inventory.node("n1") is None)
    assert not state.inventory.groups_on("n1")


async def test_what_a_fresh_list_lacks_is_gone(server: Server, watch: Watch) -> None:
    server.objects = {NODES: [node("n1", "r1")], PODS: [pod("a", "n1", group=GROUP)]}
    state = await watch()
    server.objects = {NODES: [], PODS: []}
    gone: dict[str, Any] = {"kind": "Status", "code": 410, "metadata": {"name": ""}}
    for path in (NODES, PODS):
        server.tell(path, "ERROR", gone)
    await become(lambda: state.inventory.node("n1") is None and not state.own.of(GROUP))


async def test_a_node_that_was_made_again_stays(server: Server, watch: Watch) -> None:
    """The news of the old one's end may come late."""
    server.objects[NODES] = [node("n1", "r1")]
    state = await watch()
    again = node("n1", "r2")
    again["metadata"]["uid"] = "another"
    server.tell(NODES, "ADDED", again)
    server.tell(NODES, "DELETED", node("n1", "r1"))
    server.tell(NODES, "ADDED", node("n2", "r2"))
    await become(lambda: state.inventory.node("n2") is not None)
    assert [use.name for use in state.inventory.domains(RACK)["r2"]] == ["n1", "n2"]


# Told


@pytest.mark.parametrize(
    ("path", "raw", "is_told"),
    [
        pytest.param(PODS, pod("a", "n2", group=GROUP), True, id="a pod is bound"),
        pytest.param(PODS, pod("a", "n1", group=GROUP), False, id="a pod stays"),
        pytest.param(PODS, pod("b", "n1", group=OTHER), False, id="a pod of a group that is not packed"),
        pytest.param(PODS, pod("c", "n1", gpu=1), False, id="a pod of others"),
        pytest.param(NODES, node("n1", "r2"), True, id="the node of a pod"),
        pytest.param(NODES, node("n1", "r1"), False, id="the node stays"),
        pytest.param(NODES, node("n2", "r2"), False, id="a node without such pods"),
    ],
)
async def test_a_resource_is_looked_at_when_its_pods_or_their_nodes_change(
    server: Server, watch: Watch, path: str, raw: dict[str, Any], *, is_told: bool
) -> None:
    server.objects = {NODES: [node("n1", "r1"), node("n2", "r1")], PODS: [pod("a", "n1", group=GROUP)]}
    state = await quiet(await watch())
    server.tell(path, "MODIFIED", raw)
    marker = pod("marker", "n9", group=OTHER) if path == PODS else node("marker")
    server.tell(path, "ADDED", marker)
    await become(lambda: bool(state.inventory.groups_on("n9") or state.inventory.node("marker")))
    assert told(state) is is_told


@pytest.mark.parametrize(("path", "raw"), [(PODS, pod("a", "n1", group=GROUP)), (NODES, node("n1", "r1"))])
async def test_a_resource_is_looked_at_when_its_pod_or_node_is_gone(
    server: Server, watch: Watch, path: str, raw: dict[str, Any]
) -> None:
    server.objects = {NODES: [node("n1", "r1")], PODS: [pod("a", "n1", group=GROUP)]}
    state = await quiet(await watch())
    server.tell(path, "DELETED", raw)
    await become(lambda: told(state))


UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


@pytest.mark.parametrize(
    ("namespaces", "is_told"),
    [
        pytest.param((), True, id="all are ours"),
        pytest.param((GROUP.namespace, "other"), True, id="it is ours"),
        pytest.param(("other",), False, id="it is another operator's"),
    ],
)
async def test_a_resource_whose_pod_does_not_come_up_is_looked_at_by_its_own_operator(
    server: Server, watch: Watch, namespaces: tuple[str, ...], *, is_told: bool
) -> None:
    state = await watch(*namespaces)
    failing = pod("a", group=GROUP)
    failing["status"]["conditions"] = UNSCHEDULABLE
    # Not one of those that are packed: they are looked at anyway.
    state.packed.clear()
    server.tell(PODS, "ADDED", failing)
    await become(lambda: bool(state.failures.of(KEY)))
    assert told(state) is is_told


# Not allowed


async def test_without_the_right_to_nodes_the_pods_of_the_own_namespaces_are_known(
    server: Server, watch: Watch
) -> None:
    server.forbidden = {NODES, PODS}
    for namespace in ("default", "other"):
        server.objects[f"/api/v1/namespaces/{namespace}/pods"] = [pod(f"in-{namespace}", "n1", group=GROUP)]
    state = await watch("default", "other")
    await become(lambda: len(state.own.of(GROUP)) == 2)
    assert not state.inventory.knows_nodes
    assert state.inventory.pods(GROUP).bound[RoleName.DECODE] == {"n1": 2}


@pytest.mark.parametrize("forbidden", [NODES, PODS])
async def test_nodes_are_of_use_with_all_pods_only(server: Server, watch: Watch, forbidden: str) -> None:
    server.objects = {NODES: [node("n1", "r1")], PODS: [pod("a", "n1", group=GROUP)]}
    server.objects["/api/v1/namespaces/default/pods"] = [pod("a", "n1", group=GROUP)]
    server.forbidden = {forbidden}
    state = await watch("default")
    await become(lambda: bool(state.own.of(GROUP)))
    assert not state.inventory.knows_nodes
    assert state.inventory.domains(RACK) == {}


async def test_nothing_is_known_before_pods_are(server: Server, watch: Watch) -> None:
    """A gang that runs would be taken for one that has yet to be placed."""
    server.forbidden = {NODES}
    server.objects["/api/v1/namespaces/default/pods"] = [pod("a", "n1", group=GROUP)]
    state = await watch("default")
    assert state.own.of(GROUP)


async def test_without_the_right_to_its_own_pods_the_operator_ends(server: Server, watch: Watch) -> None:
    server.forbidden = {NODES, PODS, "/api/v1/namespaces/default/pods"}
    with pytest.raises(ExceptionGroup) as raised:
        await watch("default")
    assert raised.group_contains(ForbiddenError)
