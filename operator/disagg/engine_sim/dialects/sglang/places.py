"""Where a request's two halves meet, and how it is told that they have not."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from disagg.engine_sim.request import Request
from disagg.engine_sim.transfer.connector import TransferError

FAKE_HOST = "2.2.2.2"
"""A host with which SGLang's own checks say that there is no other half."""

_KEY = "sglang"


@dataclass
class Place:
    """What a call says about where one of its sequences is handed over.

    Attributes:
        host: Of prefill's bootstrap server.
        port: As well.
        room: Number that both sides know the request by.
        prefill_rank: Rank of prefill's that has it, if the call says so.
        stuck: Whether the two sides never find each other.
        failure: Status and message of what went wrong.
    """

    host: str | None
    port: int | None
    room: int
    prefill_rank: int | None = None
    stuck: bool = False
    failure: tuple[int, str] | None = None

    @property
    def fake(self) -> bool:
        """Whether there is no other side."""
        return self.host == FAKE_HOST

    @property
    def address(self) -> str:
        """The bootstrap server, as messages name it."""
        return f"{self.host}:{self.port}"

    def fail(self, message: str, status: int = HTTPStatus.INTERNAL_SERVER_ERROR) -> None:
        """Say what went wrong; the first word counts."""
        if self.failure is None:
            self.failure = (int(status), message)

    def as_transfer(self) -> dict[str, Any]:
        """As a request carries it."""
        return {_KEY: self}


def place_of(request: Request) -> Place | None:
    """Where a request is handed over; None if it is not."""
    found = (request.transfer or {}).get(_KEY)
    return found if isinstance(found, Place) else None


class KVTransferError(TransferError):
    """A request's KV cache does not come, in SGLang's words."""

    def __init__(self, room: int, reason: str) -> None:
        super().__init__(f"KVTransferError(bootstrap_room={room}): {reason}")


UNKNOWN = "Failed due to an unknown reason from another rank"
"""What is said where nobody has said why."""
