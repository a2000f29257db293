"""The engine's time: seconds since it started, which pass faster than the world's by a factor.

All of the model runs on it: computing, transfers, leases, heartbeats. What others can see of the process does not:
keep-alive of connections, the time that a shutdown may take.
"""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Counts seconds of the engine's time."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self._start = time.monotonic()

    def now(self) -> float:
        """Seconds since the engine started."""
        return (time.monotonic() - self._start) * self.scale

    async def sleep_until(self, when: float) -> None:
        """Return at `when`, at once if that is over."""
        await asyncio.sleep(max(0.0, (when - self.now()) / self.scale))

    def wall(self, seconds: float) -> float:
        """How long `seconds` of the engine's time take."""
        return seconds / self.scale
