"""What an engine asks of whatever moves KV between it and its peers.

Two styles fit: the decode side pulls after the prefill side has answered (vLLM, TensorRT-LLM), or both sides work on a
request at once and meet by a number (SGLang). In either, the decode side's request waits in `fetch` and the prefill
side keeps blocks by what `finished` returns.
"""

from __future__ import annotations

from typing import Any, Protocol

from disagg.engine_sim.request import Output, Request
from disagg.engine_sim.scheduler import Pull


class TransferError(Exception):
    """KV can't be had from a peer."""


class FatalError(Exception):
    """Something that the real engine does not survive."""


class TransferObserver(Protocol):
    """Told of what happens to transfers, for metrics."""

    def transferred(self, *, seconds: float, posted: float, size: int, descriptors: int) -> None:
        """A transfer is through.

        Args:
            seconds: It took.
            posted: Of which until it was on its way.
            size: Bytes that it would have moved.
            descriptors: Pieces of memory that it was made of.
        """

    def transfer_failed(self) -> None:
        """A transfer, or the handshake before it, failed."""

    def notification_failed(self) -> None:
        """A peer could not be told."""

    def expired(self) -> None:
        """Blocks were freed that no peer had read."""

    def late(self) -> None:
        """A peer has read blocks that were freed before."""


class Connector(Protocol):
    """Moves KV between engines."""

    async def start(self) -> None:
        """Listen for peers."""

    async def stop(self) -> None:
        """Let go of peers and sockets."""

    def arrived(self, request: Request) -> None:
        """A request has come: say by `request.remote` whether its KV comes from a peer."""

    def rejected(self, transfer: dict[str, Any]) -> None:
        """A request with this transfer was refused before it became one.

        Raises:
            FatalError: What it says ends the engine.
        """

    async def fetch(self, pull: Pull) -> list[bytes]:
        """What a peer's blocks hold, one item for each block of `pull`.

        Raises:
            TransferError: They can't be had.
            FatalError: What the request says ends the engine.
        """

    def finished(self, request: Request, output: Output, now: float) -> float | None:
        """A request is over.

        Args:
            request: With its blocks.
            output: Its last output; what a peer needs to go on is put into it.
            now: The time.

        Returns:
            Until when its blocks are kept for a peer; None to free them.
        """

    @property
    def recomputes(self) -> bool:
        """Whether a request whose KV can't be had is computed here, rather than failed."""
