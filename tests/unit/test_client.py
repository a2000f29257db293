from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from disagg.cluster.client import Client, ResourceType
from disagg.cluster.errors import ApiError, ConflictError, ForbiddenError, RejectedError

PODS = ResourceType("v1", "Pod", "pods")
DEPLOYMENTS = ResourceType("apps/v1", "Deployment", "deployments")

Answer = Callable[[web.Request], web.StreamResponse]


class Server:
    """An API server that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _: web.json_response({})
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[Any] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path, dict(request.query)))
        self.bodies.append(await request.json() if request.can_read_body else None)
        return self.answer(request)

    def fail(self, code: int, message: str, **headers: str) -> None:
        body = {"kind": "Status", "code": code, "message": message}
        self.answer = lambda _: web.json_response(body, status=code, headers=headers)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(app) as running:
        configuration = Configuration(host=str(running.make_url("")).rstrip("/"))
        async with Client(configuration, user_agent="test") as client:
            yield client


def obj(name: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "ns"}}


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (PODS, "/api/v1/namespaces/ns/pods/x"),
        (DEPLOYMENTS, "/apis/apps/v1/namespaces/ns/deployments/x"),
    ],
)
async def test_an_object_is_read_where_its_group_says(
    client: Client, server: Server, resource: ResourceType, path: str
) -> None:
    await client.get(resource, "ns", "x")
    assert server.asked == [("GET", path, {})]


async def test_an_object_that_is_not_there_is_none(client: Client, server: Server) -> None:
    server.fail(404, "not found")
    assert await client.get(PODS, "ns", "x") is None


async def test_items_of_a_list_know_their_type(client: Client, server: Server) -> None:
    server.answer = lambda _: web.json_response({"items": [{"metadata": {"name": "a"}}]})
    found = await client.list_objects(DEPLOYMENTS, "ns", labels={"a": "b", "c": "d"})
    assert found == [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}]
    assert server.asked[0][2] == {"labelSelector": "a=b,c=d"}


async def test_an_apply_is_strict_takes_over_and_names_its_manager(client: Client, server: Server) -> None:
    await client.apply(DEPLOYMENTS, obj("x"), manager="disagg")
    query = {"fieldManager": "disagg", "force": "true", "fieldValidation": "Strict"}
    assert server.asked == [("PATCH", "/apis/apps/v1/namespaces/ns/deployments/x", query)]


async def test_a_dry_run_says_so(client: Client, server: Server) -> None:
    await client.apply(DEPLOYMENTS, obj("x"), manager="disagg", dry_run=True)
    assert server.asked[0][2]["dryRun"] == "All"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, RejectedError),
        (403, ForbiddenError),
        (409, ConflictError),
        (422, RejectedError),
        (404, ApiError),
        (429, ApiError),
        (500, ApiError),
        (503, ApiError),
    ],
)
async def test_an_error_is_sorted_by_what_to_do_about_it(
    client: Client, server: Server, code: int, kind: type[ApiError]
) -> None:
    server.fail(code, "the reason")
    with pytest.raises(ApiError, match="the reason") as error:
        await client.apply(DEPLOYMENTS, obj("x"), manager="disagg")
    assert type(error.value) is kind
    assert error.value.code == code


async def test_what_does_not_fit_the_schema_is_a_refusal_although_the_server_says_500(
    client: Client, server: Server
) -> None:
    server.fail(
        500, "failed to create typed patch object (ns/x; apps/v1): .spec.x: field not declared in schema"
    )
    with pytest.raises(RejectedError):
        await client.apply(DEPLOYMENTS, obj("x"), manager="disagg")


async def test_the_wait_that_the_server_asks_for_is_passed_on(client: Client, server: Server) -> None:
    server.fail(429, "slow down", **{"Retry-After": "7"})
    with pytest.raises(ApiError) as error:
        await client.get(PODS, "ns", "x")
    assert error.value.retry_after == 7.0


async def test_an_answer_that_is_no_status_is_told_as_it_is(client: Client, server: Server) -> None:
    server.answer = lambda _: web.Response(status=502, text="<html>bad gateway</html>")
    with pytest.raises(ApiError, match="bad gateway"):
        await client.get(PODS, "ns", "x")


async def test_a_server_that_is_not_there_is_an_api_error() -> None:
    async with Client(Configuration(host="http://127.0.0.1:1"), user_agent="test") as client:
        with pytest.raises(ApiError) as error:
            await client.get(PODS, "ns", "x")
    assert error.value.code == 0


async def test_a_deletion_is_of_the_object_that_was_seen(client: Client, server: Server) -> None:
    await client.delete(PODS, "ns", "x", uid="u-1")
    assert server.bodies[0]["preconditions"] == {"uid": "u-1"}


async def test_a_deletion_may_be_of_the_object_as_it_was_seen(client: Client, server: Server) -> None:
    await client.delete(PODS, "ns", "x", uid="u-1", version="7")
    assert server.bodies[0]["preconditions"] == {"uid": "u-1", "resourceVersion": "7"}
