"""kopf as a source of events: the first step of **event** -> key -> read -> decide -> build -> apply -> assess.

Only `@kopf.on.event` is used. It writes nothing to any object: no annotation, no finalizer, no handler state. An
event says only that something happened to a key; what is to be done about it is read from the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, cast

import kopf

from disagg.api.names import GROUP, MANAGED_BY, MANAGED_BY_LABEL, NAME_LABEL, PLURAL, VERSION
from disagg.reconcile.kinds import STATUS_KINDS, WATCHED_KINDS
from disagg.reconcile.queue import Key, KeyQueue

CHILD_DELAY_SECONDS = 1.0
"""Children report by dozens while pods start: their events are gathered for a second."""


def registry(queue: KeyQueue) -> kopf.OperatorRegistry:
    """Handlers that turn events into keys in `queue`.

    Args:
        queue: Where the keys go.
    """
    handlers = kopf.OperatorRegistry()
    generations: dict[Key, int] = {}

    # Asynchronous, although nothing is awaited: kopf would run a plain function in a thread, away from the queue.
    async def resource_event(type: str | None, meta: kopf.Meta, **_: Any) -> None:  # noqa: A002, ANN401 - kopf's names
        key = Key(str(meta["namespace"]), str(meta["name"]))
        generation = int(meta["generation"])
        if type == "DELETED":
            generations.pop(key, None)
        elif type == "MODIFIED" and generations.get(key) == generation and "deletionTimestamp" not in meta:
            # A status: our own.
            return
        else:
            generations[key] = generation
        queue.add(key)

    def child_event(kind: str) -> Callable[..., Coroutine[Any, Any, None]]:
        # What was just made has been made by us, and has no status that matters unless it runs pods. The first list
        # (type None) tells of children whose resource it tells of too.
        ignored = {None} if kind in STATUS_KINDS else {None, "ADDED"}

        async def handle(type: str | None, meta: kopf.Meta, **_: Any) -> None:  # noqa: A002, ANN401 - kopf's names
            if type not in ignored and (name := meta.labels.get(NAME_LABEL)):
                queue.add(Key(str(meta["namespace"]), name), frozenset({kind}), delay=CHILD_DELAY_SECONDS)

        return handle

    kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)(resource_event)
    for kind, resource in WATCHED_KINDS.items():
        group, _, version = resource.api_version.rpartition("/")
        kopf.on.event(group, version, resource.plural, registry=handlers, id=f"child-{kind}")(
            child_event(kind)
        )
    kopf.on.login(registry=handlers)(_login)
    return handlers


def settings() -> kopf.OperatorSettings:
    """kopf's settings: it watches what is ours, and posts and scans nothing."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.persistence.diffbase_storage = _NoDiffs()
    # Scanning watches CRDs and namespaces of the whole cluster, for kinds that come and go. Ours do not.
    chosen.scanning.disabled = True
    for resource in WATCHED_KINDS.values():
        chosen.watching.label_selectors[resource.group, resource.plural] = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
    return chosen


async def watch(queue: KeyQueue, namespaces: Sequence[str], started: asyncio.Event) -> None:
    """Put the key of each resource that something happens to into `queue`, for ever.

    Args:
        queue: Where the keys go.
        namespaces: The namespaces to watch; all of them if empty.
        started: Set once kopf has logged in.

    Raises:
        Exception: A watch failed for a reason that it does not recover from. The process is to end and be restarted.
    """
    await kopf.operator(
        registry=registry(queue),
        settings=settings(),
        namespaces=list(namespaces),
        clusterwide=not namespaces,
        standalone=True,
        ready_flag=started,
    )


class _NoDiffs(kopf.DiffBaseStorage):
    """What kopf compares an object with, to tell handlers of changes: nothing, since no handler of ours is told.

    Its own storages copy each object of each event for that.
    """

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        del body, extra_fields
        return cast("kopf.BodyEssence", {})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        del body
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        del body, patch, essence


def _login(**arguments: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - kopf's keywords
    return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)
