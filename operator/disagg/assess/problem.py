"""What keeps the operator from making a resource what its spec says, as far as the resource or the rights are at fault."""

from __future__ import annotations

from dataclasses import dataclass

from disagg.api.status import Reason


@dataclass(frozen=True)
class Problem:
    """Something that no retry cures by itself.

    Attributes:
        reason: Reason of the condition `Stalled`.
        message: What is wrong, where, and the cure.
    """

    reason: Reason
    message: str
