"""Completions that repeat their prompt."""

from __future__ import annotations

from typing import Any

from disagg.engine_sim.api.answers import completion_logprobs, of_prompt
from disagg.engine_sim.api.protocol import CompletionRequest
from disagg.engine_sim.text import decode


def echoes_only(call: CompletionRequest) -> bool:
    """Whether a completion is its prompt and nothing else; one token is computed, and not told."""
    return bool(call.echo) and call.max_tokens == 0


def said_of(
    call: CompletionRequest,
    prompt: list[int],
    text: str,
    tokens: list[int],
    found: list[tuple[float, list[int]]],
) -> tuple[str, dict[str, Any] | None]:
    """Text and log probabilities of a choice, with those of the prompt before them if it is to be repeated."""
    # What was said is one of the likeliest, of which as many are told as were asked for.
    logprobs: list[tuple[float | None, list[int]]] = [(logprob, others[:-1]) for logprob, others in found]
    if call.echo and prompt:
        if echoes_only(call):
            text, tokens, logprobs = "", [], []
        text, tokens, logprobs = decode(prompt) + text, prompt + tokens, of_prompt(prompt) + logprobs
    return text, None if call.logprobs is None else completion_logprobs(tokens, logprobs)
