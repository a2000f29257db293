"""Answers in SGLang's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from disagg.engine_sim.api.answers import completion_logprobs
from disagg.engine_sim.dialects.sglang.tools import tool_calls
from disagg.engine_sim.request import Output, Request
from disagg.engine_sim.text import EOS, decode


def matched(
    output_tokens: Sequence[int], finish_reason: str | None, stop_reason: str | int | None
) -> str | int | None:
    """What has ended an answer: a stop string, or a token."""
    if finish_reason != "stop":
        return None
    if stop_reason is not None:
        return stop_reason
    return EOS if output_tokens and output_tokens[-1] == EOS else None


def usage(requests: Sequence[Request], samples: int, *, cache_report: bool) -> dict[str, Any]:
    """Tokens of a call.

    Args:
        requests: All its sequences.
        samples: How many of them have the same prompt.
        cache_report: Whether cached tokens are told.
    """
    prompt = sum(len(request.prompt) for request in requests[::samples])
    answer = sum(len(request.output) for request in requests)
    cached = sum(request.cached_tokens for request in requests[::samples])
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + answer,
        "completion_tokens": answer,
        "prompt_tokens_details": {"cached_tokens": cached} if cache_report else None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def completion_choice(  # noqa: PLR0913 - the parts it is made of
    index: int, request: Request, output: Output, *, echo: bool, logprobs: bool, ids: bool
) -> dict[str, Any]:
    """A choice of a completion, whole or a piece of it.

    Args:
        index: Of the choice.
        request: Its sequence.
        output: What is told.
        echo: Whether the prompt stands before it.
        logprobs: Whether they are wanted.
        ids: Whether tokens are wanted.
    """
    found = output.logprobs or []
    return {
        "index": index,
        "text": (decode(request.prompt) if echo else "") + output.text,
        "logprobs": completion_logprobs(output.tokens, found) if logprobs else None,
        "finish_reason": output.finish_reason,
        "matched_stop": matched(output.tokens, output.finish_reason, output.stop_reason),
        **({"token_ids": output.tokens, "prompt_token_ids": request.prompt} if ids else {}),
    }


def chat_message(output: Output, *, tool: bool) -> tuple[dict[str, Any], str | None]:
    """The message of a whole answer, and how it ended.

    Args:
        output: The answer.
        tool: Whether it had to be a tool call.
    """
    message: dict[str, Any] = {"role": "assistant", "content": output.text, "reasoning_content": None}
    calls = tool_calls(output.text) if tool else None
    if calls is None:
        return message, output.finish_reason
    return {**message, "content": None, "tool_calls": calls}, "tool_calls"


def event(body: dict[str, Any]) -> bytes:
    """One event of a stream."""
    return b"data: " + orjson.dumps(body) + b"\n\n"
