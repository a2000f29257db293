from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from disagg.cluster.client import Client, Object, ResourceType
from disagg.cluster.errors import ForbiddenError
from disagg.cluster.reflector import Reflector, Timing

PODS = ResourceType("v1", "Pod", "pods")
FAST = Timing(watch=(1, 1), grace=0.2, retry=(0.01, 0.02))

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pod(name: str, version: int | str = 1, **more: object) -> Object:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}, **more}


def event(kind: str, obj: Object) -> bytes:
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def status(code: int, **details: object) -> Object:
    return {"kind": "Status", "status": "Failure", "code": code, "message": "no", "details": details}


def page(*names: str, version: int = 10, more: str = "") -> Reply:
    async def reply(_: web.Request) -> web.Response:
        metadata = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
        return web.json_response({"metadata": metadata, "items": [pod(name) for name in names]})

    return reply


def refusal(code: int, **headers: str) -> Reply:
    async def reply(_: web.Request) -> web.Response:
        return web.json_response(status(code), status=code, headers=headers)

    return reply


def text(content: str) -> Reply:
    async def reply(_: web.Request) -> web.Response:
        return web.Response(text=content)

    return reply


def stream(*pieces: bytes, cut: bool = False) -> Reply:
    """A watch that tells `pieces` and ends, with `cut` as a broken connection does."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.01)
        if cut and request.transport:
            request.transport.close()
        return response

    return reply


class Server:
    """An API server that gives its replies in turn, and is silent after the last."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.asked: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.times: list[float] = []
        self.done = asyncio.Event()
        self.closing = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.times.append(asyncio.get_running_loop().time())
        query = dict(request.query)
        self.queries.append(query)
        token, version = query.get("continue", ""), query.get("resourceVersion", "")
        self.asked.append(f"watch {version}" if "watch" in query else f"list {token}".strip())
        if self.replies:
            return await self.replies.pop(0)(request)
        self.done.set()
        response = web.StreamResponse()
        await response.prepare(request)
        await self.closing.wait()
        return response


class Recorder:
    """A sink that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.objects: list[Object] = []

    def put(self, obj: Object) -> None:
        self.told.append(f"+{obj['metadata']['name']}")
        self.objects.append(obj)

    def remove(self, obj: Object) -> None:
        self.told.append(f"-{obj['metadata']['name']}")

    def synced(self, uids: set[str]) -> None:
        self.told.append("=" + ",".join(sorted(uid.removeprefix("uid-") for uid in uids)))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    yield server
    server.closing.set()


@pytest.fixture
def counted() -> list[tuple[str, int]]:
    return []


@pytest.fixture
async def client(server: Server, counted: list[tuple[str, int]]) -> AsyncIterator[Client]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(app) as running:
        configuration = Configuration(host=str(running.make_url("")).rstrip("/"))
        async with Client(
            configuration,
            user_agent="test",
            on_request=lambda verb, code, _: counted.append((verb, code)),
        ) as client:
            yield client
        server.closing.set()


@pytest.fixture
def play(client: Client, server: Server) -> Callable[..., Awaitable[Recorder]]:
    async def play(*replies: Reply, timing: Timing = FAST, **options: Any) -> Recorder:  # noqa: ANN401 - of the reflector
        """Run a reflector until the server has given all of `replies` and was asked once more."""
        server.replies = list(replies)
        sink = Recorder()
        running = asyncio.create_task(Reflector(client, PODS, timing=timing, **options).run(sink))
        done = asyncio.create_task(server.done.wait())
        await asyncio.wait({running, done}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        for task in (running, done):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        assert not server.replies
        return sink

    return play


Play = Callable[..., Awaitable[Recorder]]


async def test_a_list_is_told_and_then_watched_from_its_version(play: Play, server: Server) -> None:
    sink = await play(page("a", "b", version=10))
    assert sink.told == ["+a", "+b", "=a,b"]
    assert server.asked == ["list", "watch 10"]


async def test_an_empty_list_is_a_list(play: Play) -> None:
    assert (await play(page())).told == ["="]


async def test_objects_of_a_list_know_their_type(play: Play) -> None:
    sink = await play(page("a"))
    assert (sink.objects[0]["apiVersion"], sink.objects[0]["kind"]) == ("v1", "Pod")


async def test_a_list_is_read_in_pages_and_synced_once(play: Play, server: Server) -> None:
    sink = await play(page("a", more="t1"), page("b", more="t2"), page("c"), page=1)
    assert sink.told == ["+a", "+b", "+c", "=a,b,c"]
    assert server.asked == ["list", "list t1", "list t2", "watch 10"]
    assert {query["limit"] for query in server.queries[:3]} == {"1"}


async def test_a_list_is_not_of_a_moment_before_what_was_told(play: Play, server: Server) -> None:
    await play(page("a"))
    assert "resourceVersion" not in server.queries[0]


async def test_an_expired_page_begins_the_list_anew(play: Play, server: Server) -> None:
    sink = await play(page("a", "gone", more="t1"), refusal(410), page("a", version=20))
    assert sink.told == ["+a", "+gone", "+a", "=a"]
    assert server.asked == ["list", "list t1", "list", "watch 20"]


async def test_selectors_are_of_the_list_and_of_the_watch(play: Play, server: Server) -> None:
    await play(page(), field_selector="spec.nodeName!=", label_selector="app in (a,b)")
    for query in server.queries:
        assert (query["fieldSelector"], query["labelSelector"]) == ("spec.nodeName!=", "app in (a,b)")


async def test_a_watch_asks_for_bookmarks_and_for_its_end(play: Play, server: Server) -> None:
    await play(page(), timing=Timing())
    query = server.queries[1]
    assert query["allowWatchBookmarks"] == "true"
    assert 240 <= int(query["timeoutSeconds"]) <= 300


async def test_events_are_told_as_they_are(play: Play, server: Server) -> None:
    added, modified, deleted = (
        event("ADDED", pod("b", 11)),
        event("MODIFIED", pod("b", 12, spec={"nodeName": "n"})),
        event("DELETED", pod("a", 13)),
    )
    sink = await play(page("a"), stream(added, modified, deleted))
    assert sink.told == ["+a", "=a", "+b", "+b", "-a"]
    assert sink.objects[-1]["spec"] == {"nodeName": "n"}
    assert server.asked[-1] == "watch 13"


async def test_a_bookmark_moves_the_version_and_is_not_told(play: Play, server: Server) -> None:
    bookmark = event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "99"}})
    sink = await play(page(), stream(bookmark))
    assert sink.told == ["="]
    assert server.asked == ["list", "watch 10", "watch 99"]


async def test_an_event_of_a_type_unknown_is_passed_over(play: Play, server: Server) -> None:
    sink = await play(page(), stream(event("NEWS", {}), event("ADDED", pod("a", 11))))
    assert sink.told == ["=", "+a"]
    assert server.asked[-1] == "watch 11"


async def test_a_watch_that_ended_is_resumed_without_a_list(play: Play, server: Server) -> None:
    sink = await play(page("a"), stream(event("ADDED", pod("b", 11))), stream(event("ADDED", pod("c", 12))))
    assert sink.told == ["+a", "=a", "+b", "+c"]
    assert server.asked == ["list", "watch 10", "watch 11", "watch 12"]


async def test_a_resumed_watch_does_not_wait(play: Play, server: Server) -> None:
    await play(
        page(),
        stream(event("ADDED", pod("a", 11))),
        timing=Timing(watch=(1, 1), retry=(5.0, 5.0)),
    )
    assert server.times[-1] - server.times[-2] < 1


async def test_a_watch_that_ends_at_once_and_empty_is_a_failure(play: Play, server: Server) -> None:
    await play(page(), stream(), timing=Timing(watch=(1, 1), retry=(0.3, 0.3)))
    assert server.asked == ["list", "watch 10", "watch 10"]
    assert server.times[-1] - server.times[-2] >= 0.3


@pytest.mark.parametrize(
    "gone", [refusal(410), stream(event("ERROR", status(410)))], ids=["as a status", "as an event"]
)
async def test_a_version_that_is_gone_is_cured_by_a_list(play: Play, server: Server, gone: Reply) -> None:
    sink = await play(page("a", "b"), gone, page("b", version=50))
    assert sink.told == ["+a", "+b", "=a,b", "+b", "=b"]
    assert server.asked == ["list", "watch 10", "list", "watch 50"]


async def test_what_came_before_an_error_was_told(play: Play, server: Server) -> None:
    events = event("ADDED", pod("a", 11)) + event("ERROR", status(500))
    sink = await play(page(), stream(events))
    assert sink.told == ["=", "+a"]
    assert server.asked == ["list", "watch 10", "watch 11"]


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500, 503, 504])
async def test_a_watch_that_is_refused_later_is_tried_again_from_where_it_was(
    play: Play, server: Server, code: int
) -> None:
    sink = await play(page(), stream(event("ADDED", pod("a", 11))), refusal(code))
    assert sink.told == ["=", "+a"]
    assert server.asked == ["list", "watch 10", "watch 11", "watch 11"]


@pytest.mark.parametrize("code", [401, 404, 429, 500, 503])
async def test_a_list_that_is_refused_is_tried_again(play: Play, server: Server, code: int) -> None:
    sink = await play(refusal(code), page("a"))
    assert sink.told == ["+a", "=a"]
    assert server.asked == ["list", "list", "watch 10"]


@pytest.mark.parametrize("replies", [[refusal(403)], [page(), refusal(403)]], ids=["list", "watch"])
async def test_a_right_that_was_missing_from_the_start_is_an_error(play: Play, replies: list[Reply]) -> None:
    with pytest.raises(ForbiddenError):
        await play(*replies)


async def test_a_right_that_is_lost_is_waited_for(play: Play, server: Server) -> None:
    await play(
        page(), stream(event("ADDED", pod("a", 11))), refusal(410), refusal(403), page("b", version=30)
    )
    assert server.asked == ["list", "watch 10", "watch 11", "list", "list", "watch 30"]


async def test_the_wait_that_the_server_asks_for_is_kept(play: Play, server: Server) -> None:
    await play(refusal(429, **{"Retry-After": "1"}), page())
    assert server.times[1] - server.times[0] >= 1


async def test_the_wait_that_an_error_event_asks_for_is_kept(play: Play, server: Server) -> None:
    await play(page(), stream(event("ERROR", status(500, retryAfterSeconds=1))))
    assert server.times[2] - server.times[1] >= 1


async def test_waits_grow_up_to_a_limit_and_differ(monkeypatch: pytest.MonkeyPatch, play: Play) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        if seconds:
            waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", record)
    await play(*[refusal(503)] * 9, page(), timing=Timing())
    assert len(waits) == 9
    tops = [2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert all(top / 2 <= wait <= top for wait, top in zip(waits, tops, strict=True))
    assert len(set(waits)) == 9


async def test_waits_begin_anew_after_a_watch_that_told_something(play: Play, server: Server) -> None:
    failures = [refusal(503)] * 3
    await play(
        *failures,
        page(),
        stream(event("ADDED", pod("a", 11))),
        refusal(503),
        timing=Timing(watch=(1, 1), retry=(0.1, 60)),
    )
    waits = [later - earlier for earlier, later in itertools.pairwise(server.times)]
    assert waits[2] >= 0.4
    assert 0.1 <= waits[-1] < 0.35


async def test_a_connection_that_breaks_is_resumed(play: Play, server: Server) -> None:
    sink = await play(page(), stream(event("ADDED", pod("a", 11)), b'{"type":"ADD', cut=True))
    assert sink.told == ["=", "+a"]
    assert server.asked == ["list", "watch 10", "watch 11"]


async def test_an_event_that_was_cut_off_is_asked_for_again(play: Play, server: Server) -> None:
    second = event("ADDED", pod("b", 12))
    sink = await play(page(), stream(event("ADDED", pod("a", 11)) + second[:20]), stream(second))
    assert sink.told == ["=", "+a", "+b"]
    assert server.asked[1:3] == ["watch 10", "watch 11"]


async def test_a_connection_without_a_sign_of_life_is_dropped(play: Play, server: Server) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await server.closing.wait()
        return response

    await play(page(), silent)
    assert server.asked == ["list", "watch 10", "watch 10"]
    assert 1.2 <= server.times[-1] - server.times[-2] < 3


async def test_a_server_that_is_not_there_is_waited_for() -> None:
    asked: list[int] = []
    async with Client(
        Configuration(host="http://127.0.0.1:1"),
        user_agent="test",
        on_request=lambda _verb, code, _seconds: asked.append(code),
    ) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await Reflector(client, PODS, timing=FAST).run(Recorder())
    assert len(asked) > 1
    assert set(asked) == {0}


async def test_an_event_in_many_pieces_is_one_event(play: Play) -> None:
    whole = event("ADDED", pod("é", 11)) + event("DELETED", pod("b", 12))
    sink = await play(page(), stream(*(whole[at : at + 7] for at in range(0, len(whole), 7))))
    assert sink.told == ["=", "+é", "-b"]


async def test_many_events_in_one_piece_are_many_events(play: Play, server: Server) -> None:
    sink = await play(page(), stream(b"".join(event("ADDED", pod(str(n), 100 + n)) for n in range(2000))))
    assert sink.told == ["=", *(f"+{n}" for n in range(2000))]
    assert server.asked[-1] == "watch 2099"


async def test_a_very_long_event_is_an_event(play: Play) -> None:
    long = "x" * 5_000_000
    sink = await play(page(), stream(event("ADDED", pod("a", 11, spec=long)), event("ADDED", pod("b", 12))))
    assert sink.told == ["=", "+a", "+b"]
    assert sink.objects[0]["spec"] == long


@pytest.mark.parametrize("answer", ["<html>sign in</html>", "{}", '{"metadata":{}}'])
async def test_an_answer_that_is_no_list_is_a_failure(play: Play, answer: str) -> None:
    assert (await play(text(answer), page("a"))).told == ["+a", "=a"]


@pytest.mark.parametrize(
    "line",
    [
        b"<html>\n",
        b"[]\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"ADDED","object":{}}\n',
        b'{"type":"ERROR","object":null}\n',
    ],
)
async def test_a_line_that_is_no_event_is_a_failure(play: Play, server: Server, line: bytes) -> None:
    assert (await play(page("a"), stream(line))).told == ["+a", "=a"]
    assert server.asked == ["list", "watch 10", "watch 10"]


async def test_other_tasks_run_while_a_long_stream_is_read(client: Client, server: Server) -> None:
    """The longest stretch without a turn for others is one chunk, not all that has come in."""
    events = b"".join(event("ADDED", pod(str(n), n, spec="x" * 4000)) for n in range(1000))
    server.replies = [page(), stream(events)]
    turns: list[int] = []
    sink = Recorder()
    running = asyncio.create_task(Reflector(client, PODS, timing=FAST).run(sink))
    while not server.done.is_set():
        turns.append(len(sink.objects))
        await asyncio.sleep(0)
    running.cancel()
    assert max(later - earlier for earlier, later in itertools.pairwise(turns)) < 200


async def test_requests_are_counted(play: Play, counted: list[tuple[str, int]]) -> None:
    await play(page("a", more="t"), page("b"), refusal(410), page("b"))
    assert counted == [("list", 200), ("list", 200), ("watch", 410), ("list", 200), ("watch", 200)]


async def test_what_the_sink_raises_ends_it(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: Recorder, _obj: Object) -> None:
        raise OSError("a bug")

    monkeypatch.setattr(Recorder, "remove", fail)
    with pytest.raises(OSError, match="a bug"):
        await play(page("a"), stream(event("DELETED", pod("a", 11))))


@pytest.mark.parametrize(("namespace", "path"), [("", "/api/v1/pods"), ("ns", "/api/v1/namespaces/ns/pods")])
async def test_objects_are_listed_in_one_namespace_or_in_all(namespace: str, path: str) -> None:
    assert PODS.path(namespace) == path


def test_an_object_without_a_namespace_has_a_path() -> None:
    assert ResourceType("v1", "Node", "nodes").path("", "n", "status") == "/api/v1/nodes/n/status"
