"""Answers that come whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from disagg.engine_sim.request import Output
from disagg.engine_sim.text import token_bytes, token_text


class Answer:
    """Collects what one sequence gives. Calling it takes an output.

    Attributes:
        text: So far.
        tokens: So far.
        logprobs: Of each token, if wanted.
        finish_reason: How it ended.
        stop_reason: What ended it.
        transfer: What the connector says.
        done: Set at its end.
    """

    def __init__(self) -> None:
        self.text = ""
        self.tokens: list[int] = []
        self.logprobs: list[tuple[float, list[int]]] = []
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        self.transfer: dict[str, Any] | None = None
        self.done = asyncio.Event()

    def __call__(self, output: Output) -> None:
        """Take an output."""
        self.text += output.text
        self.tokens += output.tokens
        if output.logprobs:
            self.logprobs += output.logprobs
        if output.finish_reason is not None:
            self.finish_reason = output.finish_reason
            self.stop_reason = output.stop_reason
            self.transfer = output.transfer
            self.done.set()


def of_prompt(tokens: Sequence[int]) -> list[tuple[float | None, list[int]]]:
    """Log probabilities of a prompt's tokens, of which the first has none."""
    return [(None, []), *((_prompt_logprob(token), []) for token in tokens[1:])]


def completion_logprobs(
    tokens: Sequence[int], found: Sequence[tuple[float | None, list[int]]], offset: int = 0
) -> dict[str, Any]:
    """Log probabilities as completions have them.

    Args:
        tokens: What was said.
        found: Log probability and alternatives of each.
        offset: Where in the text they begin.
    """
    texts = [token_text(token) for token in tokens]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    return {
        "text_offset": offsets,
        "token_logprobs": [logprob for logprob, _others in found],
        "tokens": texts,
        "top_logprobs": [
            None
            if logprob is None
            else {text: logprob}
            | {token_text(other): logprob - 1 - rank for rank, other in enumerate(others)}
            for text, (logprob, others) in zip(texts, found, strict=False)
        ],
    }


def chat_logprobs(tokens: Sequence[int], found: Sequence[tuple[float, list[int]]]) -> dict[str, Any]:
    """Log probabilities as chats have them."""
    return {
        "content": [
            _entry(token, logprob)
            | {
                "top_logprobs": [
                    _entry(other, logprob - rank)
                    for rank, other in enumerate([token, *others][: len(others)])
                ]
            }
            for token, (logprob, others) in zip(tokens, found, strict=False)
        ]
    }


def prompt_logprobs(tokens: Sequence[int], wanted: int | None) -> list[dict[str, Any] | None] | None:
    """Log probabilities of a prompt's tokens, of which the first has none; None if they are not wanted."""
    if wanted is None:
        return None
    found: list[dict[str, Any] | None] = [None]
    for token in tokens[1:]:
        entry = {"logprob": _prompt_logprob(token), "rank": 1, "decoded_token": token_text(token)}
        found.append({str(token): entry})
    return found


def _prompt_logprob(token: int) -> float:
    return -(1 + token % 256) / 64


def _entry(token: int, logprob: float) -> dict[str, Any]:
    return {"token": token_text(token), "logprob": logprob, "bytes": list(token_bytes(token))}
