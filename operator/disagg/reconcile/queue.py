"""Keys that wait to be reconciled: the second step of event -> **key** -> read -> decide -> build -> apply -> assess.

The semantics are those of client-go's work queue. A key waits at most once, however many events it has; it is never
worked on twice at the same time; an event that comes while it is worked on brings it back afterwards.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from dataclasses import dataclass, field

from disagg.reconcile.kinds import ALL_KINDS

BACKOFF_LIMIT_SECONDS = 300.0


@dataclass(frozen=True, order=True)
class Key:
    """A resource: namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass
class _Waiting:
    due: float
    kinds: frozenset[str]


@dataclass
class KeyQueue:
    """The queue. Times are those of the running event loop, in seconds."""

    _waiting: dict[Key, _Waiting] = field(default_factory=dict)
    _heap: list[tuple[float, Key]] = field(default_factory=list)
    _busy: dict[Key, float] = field(default_factory=dict)
    _failures: dict[Key, int] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, key: Key, kinds: frozenset[str] = ALL_KINDS, *, delay: float = 0.0) -> None:
        """Have `key` worked on, with the children of `kinds` looked at.

        Args:
            key: The resource.
            kinds: Kinds of children that may have changed; those of several calls add up.
            delay: Seconds to wait for more to happen. The earliest of several calls counts.
        """
        due = _now() + delay
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = _Waiting(due, kinds)
        else:
            waiting.kinds |= kinds
            if waiting.due <= due:
                return
            waiting.due = due
        heapq.heappush(self._heap, (due, key))
        self._changed.set()

    async def get(self) -> tuple[Key, frozenset[str]]:
        """The next key that is due and not worked on, and the kinds of children to look at. `done` must follow."""
        while True:
            if (taken := self._take()) is not None:
                return taken
            self._changed.clear()
            timeout = max(self._heap[0][0] - _now(), 0.0) if self._heap else None
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: Key) -> None:
        """`key` is not worked on any more."""
        self._busy.pop(key, None)
        if (waiting := self._waiting.get(key)) is not None:
            heapq.heappush(self._heap, (waiting.due, key))
        self._changed.set()

    def failed(self, key: Key, *, at_least: float = 0.0) -> float:
        """Have `key` come back: after 1 s, 2 s, 4 s ... up to 5 minutes, with jitter. Returns the seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(2.0 ** min(failures, 16), BACKOFF_LIMIT_SECONDS) * random.uniform(0.8, 1.2)  # noqa: S311
        delay = max(delay, at_least)
        self.add(key, delay=delay)
        return delay

    def succeeded(self, key: Key) -> None:
        """Forget the failures of `key`."""
        self._failures.pop(key, None)

    def depth(self) -> int:
        """Keys that are due and keys that are worked on."""
        now = _now()
        return len(self._busy) + sum(waiting.due <= now for waiting in self._waiting.values())

    def oldest(self) -> float:
        """Seconds that the key which waits longest is overdue or worked on; 0 without one.

        A key that waits for the end of its own work counts by that work alone.
        """
        now = _now()
        due = [
            waiting.due
            for key, waiting in self._waiting.items()
            if waiting.due <= now and key not in self._busy
        ]
        since = [*due, *self._busy.values()]
        return max(now - min(since), 0.0) if since else 0.0

    def _take(self) -> tuple[Key, frozenset[str]] | None:
        now = _now()
        while self._heap and self._heap[0][0] <= now:
            due, key = heapq.heappop(self._heap)
            waiting = self._waiting.get(key)
            # Entries of the heap are never removed: one that was overtaken by an earlier one is void. A busy key
            # comes back with `done`.
            if waiting is None or waiting.due != due or key in self._busy:
                continue
            del self._waiting[key]
            self._busy[key] = now
            return key, waiting.kinds
        return None


def _now() -> float:
    return asyncio.get_running_loop().time()
