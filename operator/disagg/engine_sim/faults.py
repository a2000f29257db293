"""Faults on demand: what tests and demonstrations let go wrong."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list of side channels",
}
_PEER = re.compile(r".+:\d+")


class FaultError(ValueError):
    """A fault that can't be.

    Attributes:
        field: Its name.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@dataclass
class Faults:
    """What goes wrong now. Each attribute is a key of `POST /sim/faults`.

    Attributes:
        fail_prefill: Which prefill from now on fails, 1 for the next; 0 for none. Prefills are requests that ask for
            `do_remote_decode`, or that a dialect counts as such.
        stale_peers: Side channels, as host:port, that this engine can't reach though both look healthy; * for all.
        side_channel_dropped: Whether peers that ask get no answer.
        die_after_tokens: Tokens from now on after which the process dies; 0 for never.
        hang: Whether steps stop while everything else answers.
        slow: Factor on the time of steps and transfers.
        metrics_lost: Whether /metrics fails.
        health_lost: Whether /health says 503.
        cancel_leaks: Whether a generation that is cancelled before it has its KV leaves the prefill side waiting for
            it; for dialects in which that is a defect.
    """

    fail_prefill: int = 0
    stale_peers: list[str] = field(default_factory=list)
    side_channel_dropped: bool = False
    die_after_tokens: int = 0
    hang: bool = False
    slow: float = 1.0
    metrics_lost: bool = False
    health_lost: bool = False
    cancel_leaks: bool = False

    def __post_init__(self) -> None:
        self._moving = asyncio.Event()
        self._moving.set()
        self.die: Callable[[], None] = lambda: None
        self.end: Callable[[], None] = lambda: None

    def apply(self, wanted: dict[str, Any]) -> None:
        """Change what goes wrong: all of it, or nothing if some of it can't be.

        Raises:
            FaultError: There is no such fault, or not with such a value.
        """
        for name, value in {name: self._checked(name, value) for name, value in wanted.items()}.items():
            setattr(self, name, value)
        if self.hang:
            self._moving.clear()
        else:
            self._moving.set()

    def _checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - JSON, or whatever is given
        kinds = {each.name: type(getattr(self, each.name)) for each in fields(self)}
        kind = kinds.get(name)
        if kind is None:
            raise FaultError(name, f"there is no such fault; there are {', '.join(kinds)}")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise FaultError(name, f"{_KINDS[kind]} is expected, not {value!r}")
        if kind is int and value < 0:
            raise FaultError(name, f"0 or more is expected, not {value}")
        if kind is float and not 0 < value < math.inf:
            raise FaultError(name, f"a number above 0 is expected, not {value}")
        if kind is list:
            for peer in value:
                if not isinstance(peer, str) or not (peer == "*" or _PEER.fullmatch(peer)):
                    raise FaultError(name, f"host:port or * is expected in the list, not {peer!r}")
        return value

    def state(self) -> dict[str, Any]:
        """What goes wrong now."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    async def gate(self) -> None:
        """Wait as long as the engine hangs."""
        await self._moving.wait()

    def prefill_fails(self) -> bool:
        """Count one more prefill, and whether this is the one that fails."""
        if self.fail_prefill == 0:
            return False
        self.fail_prefill -= 1
        return self.fail_prefill == 0

    def said(self, tokens: int) -> None:
        """Count tokens, and die if it is time."""
        if self.die_after_tokens:
            self.die_after_tokens = max(0, self.die_after_tokens - tokens)
            if self.die_after_tokens == 0:
                self.die()
