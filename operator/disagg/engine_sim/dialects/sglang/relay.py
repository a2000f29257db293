"""The voice of a request whose first token prefill has said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from disagg.engine_sim.scheduler import Pull, Scheduler
from disagg.engine_sim.text import Voice, encode, voice


@dataclass
class RelayedVoice(Voice):
    """Says what follows from the pages that came, after a first token that came with them.

    Attributes:
        first: That token.
    """

    first: int = 0

    def next(self, *, may_end: bool) -> int:
        """The next token."""
        token = super().next(may_end=may_end)
        return self.first if self._said == 1 else token


def relayed(scheduler: Scheduler, pull: Pull, content: Sequence[bytes], first: int) -> RelayedVoice:
    """The voice of a request that has just got its pages.

    Args:
        scheduler: Has the pages that were here already.
        pull: Which pages these are not.
        content: Those that came.
        first: The first token.
    """
    request = pull.request
    here = request.blocks[: len(request.blocks) - len(pull.blocks)]
    pages = [*(scheduler.pool.content.get(block, b"") for block in here), *content]
    plain = voice(pages, request.sampling.key, mean_length=scheduler.limits.mean_length)
    script = [] if request.sampling.script is None else encode(request.sampling.script(plain.state))
    return RelayedVoice(plain.state, script, plain.mean_length, first=first)
