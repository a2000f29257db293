"""Keys that wait to be reconciled: the second step of event -> **key** -> read -> decide -> build -> apply -> assess.

The semantics are those of client-go's work queue. A key waits at most once, however many events it has; it is never
worked on twice at the same time; an event that comes while it is worked on brings it back afterwards.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from dataclasses import dataclass, field
from math import inf

from disagg.reconcile.kinds import ALL_KINDS

BACKOFF_LIMIT_SECONDS = 300.0
GATHER_SECONDS = 1.0
"""What is due this soon is looked at together with what is due now."""


@dataclass(frozen=True, order=True)
class Key:
    """A resource: namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass
class KeyQueue:
    """The queue. Times are those of the running event loop, in seconds."""

    _waiting: dict[Key, dict[str, float]] = field(default_factory=dict)
    """Per key the kinds of children to look at, and when."""
    _heap: list[tuple[float, Key]] = field(default_factory=list)
    _busy: dict[Key, float] = field(default_factory=dict)
    _failures: dict[Key, int] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, key: Key, kinds: frozenset[str] = ALL_KINDS, *, delay: float = 0.0) -> None:
        """Have `key` worked on, with the children of `kinds` looked at.

        Each kind waits for itself, so that a child's event does not make the next resync, which is about all of them,
        come early.

        Args:
            key: The resource.
            kinds: Kinds of children that may have changed.
            delay: Seconds to wait for more to happen. For each kind the earliest of several calls counts.
        """
        due = _now() + delay
        waiting = self._waiting.setdefault(key, {})
        earliest = min(waiting.values(), default=inf)
        for kind in kinds:
            waiting[kind] = min(waiting.get(kind, inf), due)
        if due < earliest:
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
        if waiting := self._waiting.get(key):
            heapq.heappush(self._heap, (min(waiting.values()), key))
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
        due = [
            key
            for key, kinds in self._waiting.items()
            if key not in self._busy and min(kinds.values()) <= now
        ]
        return len(self._busy) + len(due)

    def oldest(self) -> float:
        """Seconds that the key which waits longest is overdue or worked on; 0 without one.

        A key that waits for the end of its own work counts by that work alone.
        """
        now = _now()
        due = [min(kinds.values()) for key, kinds in self._waiting.items() if key not in self._busy]
        return max(now - min([*due, *self._busy.values()], default=now), 0.0)

    def _take(self) -> tuple[Key, frozenset[str]] | None:
        now = _now()
        while self._heap and self._heap[0][0] <= now:
            _, key = heapq.heappop(self._heap)
            waiting = self._waiting.get(key, {})
            # Entries of the heap are never removed: one whose kinds were taken with an earlier one is void. A busy
            # key comes back with `done`.
            if min(waiting.values(), default=inf) > now or key in self._busy:
                continue
            kinds = frozenset(kind for kind, due in waiting.items() if due <= now + GATHER_SECONDS)
            for kind in kinds:
                del waiting[kind]
            if not waiting:
                del self._waiting[key]
            self._busy[key] = now
            return key, kinds
        return None


def _now() -> float:
    return asyncio.get_running_loop().time()
