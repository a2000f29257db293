"""All objects of a kind, and each change of them, told to a consumer: list, then watch, for ever.

Made for kinds with tens of thousands of objects of which the operator needs a few fields: there is nothing for an
object but its JSON as a dictionary, which the consumer may drop. kopf starts a task and a queue for each object.

`Watch` of kubernetes.aio delivers dictionaries too, but is not used: it neither lists nor waits between attempts, asks
again for a version that is gone, takes a timeout of the API server for the end of all, and needs more time an event.
The rules are those of client-go's reflector.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Protocol

import orjson
import structlog

from disagg.cluster.client import Client, Object, ResourceType
from disagg.cluster.errors import ApiError, ForbiddenError

_log = structlog.stdlib.get_logger("disagg")

_SHORT_SECONDS = 0.5
"""A watch that ends sooner, and without an event, is a failure: else a proxy that hangs up is asked without pause."""
_GONE = 410
"""The API server has forgotten the version that a watch or the next page is to go on from."""


_EVENTS = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}


class Sink(Protocol):
    """Who wants to know. An object may be put again unchanged, and removed without having been put.

    Called from the event loop, and expected to return within microseconds. What is raised ends `Reflector.run`.
    """

    def put(self, obj: Object) -> None:
        """`obj` is there, in this state."""

    def remove(self, obj: Object) -> None:
        """`obj` is gone, or no longer selected. This was its last state."""

    def synced(self, uids: set[str]) -> None:
        """All objects have been put: those with `uids`. Any other is gone."""


@dataclass(frozen=True)
class Timing:
    """How long things take, in seconds.

    Attributes:
        watch: The API server ends a watch after a random time between these two. The next one may go to another of
            several API servers, so that they share the load.
        grace: A watch that lasts this much longer hangs, and is given up.
        retry: Wait after the first failure in a row, and the longest wait.
    """

    watch: tuple[int, int] = (240, 300)
    grace: float = 30.0
    retry: tuple[float, float] = (1.0, 60.0)


class Reflector:
    """Tells a sink of all objects of a kind.

    Args:
        client: The API server.
        resource: The kind.
        namespace: Where the objects are, empty for everywhere.
        field_selector: Only objects with these fields, such as `spec.nodeName!=`.
        label_selector: Only objects with these labels, such as `app in (a,b)`.
        page: Objects in one answer when listing.
        timing: How long to watch, and to wait after a failure.
    """

    def __init__(  # noqa: PLR0913 - what to list, and how
        self,
        client: Client,
        resource: ResourceType,
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        page: int = 500,
        timing: Timing | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._namespace = namespace
        selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        self._selectors = {key: value for key, value in selectors.items() if value}
        self._page = page
        self._timing = timing or Timing()
        self._version = ""
        self._allowed = False
        self._failures = 0

    async def run(self, sink: Sink) -> None:
        """List and watch until cancelled. Goes on after any failure, and begins with a list when called again.

        Raises:
            ForbiddenError: The right to list or to watch was missing from the start. One that is lost later may come
                back, and is waited for.
        """
        self._version, self._allowed, self._failures = "", False, 0
        while True:
            try:
                if not self._version:
                    self._version = await self._list(sink)
                await self._watch(sink)
            except ApiError as error:
                if isinstance(error, ForbiddenError) and not self._allowed:
                    raise
                if error.code == _GONE:
                    self._version = ""
                await self._wait(error)

    async def _list(self, sink: Sink) -> str:
        """Put every object, and return the version of the list."""
        uids: set[str] = set()
        # No resourceVersion: the pages are of one moment, and it is not before anything that a watch has told.
        query = self._selectors | {"limit": str(self._page)}
        while True:
            answer = await self._client.list_page(self._resource, self._namespace, query)
            metadata = answer.get("metadata") or {}
            version = str(metadata.get("resourceVersion") or "")
            if not version:
                raise ApiError(f"list {self._resource.plural}: the answer is not a list")
            for item in answer.get("items") or []:
                # Items of a list come without their type, objects of a watch with it.
                item["apiVersion"], item["kind"] = self._resource.api_version, self._resource.kind
                sink.put(item)
                uids.add(item["metadata"]["uid"])
            if not (token := metadata.get("continue")):
                sink.synced(uids)
                return version
            query["continue"] = token
            await asyncio.sleep(0)

    async def _watch(self, sink: Sink) -> None:
        """Tell of changes after the version that was reached, until the API server ends the watch."""
        seconds = random.randint(*self._timing.watch)  # noqa: S311 - not a secret
        query = self._selectors | {
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        lines = _Lines()
        limit = seconds + self._timing.grace
        async with self._client.watch(self._resource, self._namespace, query, seconds=limit) as chunks:
            self._allowed = True
            opened, told = time.monotonic(), False
            try:
                async for chunk in chunks:
                    for line in lines.feed(chunk):
                        self._version = _tell(sink, line) or self._version
                        told = True
            finally:
                useful = told or time.monotonic() - opened >= _SHORT_SECONDS
                if useful:
                    self._failures = 0
        if not useful:
            raise ApiError(f"watch {self._resource.plural}: ended at once")

    async def _wait(self, error: ApiError) -> None:
        first, longest = self._timing.retry
        limit = min(longest, first * 2 ** min(self._failures + 1, 30))
        seconds = max(random.uniform(max(first, limit / 2), limit), error.retry_after or 0.0)  # noqa: S311
        self._failures += 1
        _log.warning(
            "watch interrupted",
            resource=self._resource.plural,
            error=str(error),
            retry_seconds=round(seconds, 1),
        )
        await asyncio.sleep(seconds)


class _Lines:
    """Cuts a stream into lines. What follows the last newline waits for its end, or was cut off and is dropped."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes."""
        head, *lines = chunk.split(b"\n")
        self._rest.append(head)
        if not lines:
            return []
        first = b"".join(self._rest)
        self._rest = [lines.pop()]
        return [first, *lines]


def _tell(sink: Sink, line: bytes) -> str:
    """Tell of an event, and return the version that it leads to; empty if it is of an unknown type."""
    try:
        event = orjson.loads(line)
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise _error(obj)
        if kind not in _EVENTS:
            return ""
        version = str(obj["metadata"]["resourceVersion"])
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ApiError(f"not an event: {line[:200]!r}") from error
    if kind == "DELETED":
        sink.remove(obj)
    elif kind != "BOOKMARK":
        sink.put(obj)
    return version


def _error(status: Object) -> ApiError:
    """What an ERROR event, whose object is a Status, stands for."""
    seconds = (status.get("details") or {}).get("retryAfterSeconds")
    return ApiError(
        str(status.get("message") or status.get("reason") or "an error without a message"),
        code=int(status.get("code") or 0),
        retry_after=float(seconds) if seconds else None,
    )
