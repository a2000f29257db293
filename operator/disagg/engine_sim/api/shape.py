"""Fields of answers that come and go with releases of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shape:
    """What answers have beside the fields that are always there. Values are those of an engine that does nothing special.

    Attributes:
        fingerprint: The system's, None for none.
        answer: Of each answer.
        chat: Of each answer to a chat, and of the first event of its stream.
        choice: Of each choice.
        usage: Of each usage.
        empty_tool_calls: Whether a message that calls no tool has an empty list of calls.
    """

    fingerprint: str | None = None
    answer: Mapping[str, None] = field(default_factory=dict)
    chat: Mapping[str, None] = field(default_factory=dict)
    choice: Mapping[str, None] = field(default_factory=dict)
    usage: Mapping[str, None] = field(default_factory=dict)
    empty_tool_calls: bool = True

    @property
    def last(self) -> dict[str, str]:
        """Fields of the last event of a stream."""
        return {} if self.fingerprint is None else {"system_fingerprint": self.fingerprint}
