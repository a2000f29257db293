"""KV events as SGLang has them: one for each page, with hashes that are signed."""

from __future__ import annotations

from collections.abc import Iterator

from disagg.engine_sim.blocks import CacheEvent, Removed, Stored
from disagg.engine_sim.kv_events import EventPublisher, EventsConfig

_HALF, _WHOLE = 1 << 63, 1 << 64


def signed(number: int) -> int:
    """The same 64 bits as a signed number."""
    return number - _WHOLE if number >= _HALF else number


def by_page(event: CacheEvent, page_size: int) -> Iterator[CacheEvent]:
    """What happened, page by page.

    Args:
        event: What happened.
        page_size: Tokens of a page.
    """
    if isinstance(event, Stored):
        parent = None if event.parent is None else signed(event.parent)
        for index, each in enumerate(event.hashes):
            tokens = event.tokens[index * page_size : (index + 1) * page_size]
            yield Stored([signed(each)], parent, tokens, event.lora)
            parent = signed(each)
    elif isinstance(event, Removed):
        for each in event.hashes:
            yield Removed([signed(each)])
    else:
        yield event


class PageEvents(EventPublisher):
    """Publishes what happens to one rank's radix cache."""

    def __init__(self, config: EventsConfig, rank: int, page_size: int) -> None:
        """Open the sockets.

        Args:
            config: Where and how.
            rank: Of data parallelism.
            page_size: Tokens of a page.
        """
        super().__init__(config, rank, page_size, as_map=True)
        self._page_size = page_size

    def record(self, event: CacheEvent) -> None:
        """Remember an event for the next batch."""
        for each in by_page(event, self._page_size):
            super().record(each)
