"""Answers as `trtllm-serve` writes them: whole ones and events."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from disagg.engine_sim.api.answers import Answer, chat_logprobs, completion_logprobs
from disagg.engine_sim.dialects.trtllm.protocol import CONTEXT, Call, ChatCall, DisaggregatedParams
from disagg.engine_sim.request import Output, Request
from disagg.engine_sim.text import decode


def head(call: Call, model: str) -> dict[str, Any]:
    """Fields that an answer begins with, or each event of it."""
    chat = isinstance(call, ChatCall)
    kind = "text_completion" if not chat else "chat.completion.chunk" if call.stream else "chat.completion"
    return {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def usage(call: Call, requests: Sequence[Request]) -> dict[str, Any]:
    """Tokens of a call. What a prompt cost is for the context worker to say."""
    firsts = requests[:: call.n]
    prompt = sum(len(request.prompt) for request in firsts)
    cached = sum(request.cached_tokens for request in firsts)
    said = sum(len(request.output) for request in requests)
    told = None if call.disaggregated_params is None else call.disaggregated_params.ctx_usage
    if told is not None:
        prompt = told.prompt_tokens
        cached = 0 if told.prompt_tokens_details is None else told.prompt_tokens_details.cached_tokens
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + said,
        "completion_tokens": said,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def whole(
    call: Call, start: dict[str, Any], answers: Sequence[Answer], requests: Sequence[Request]
) -> dict[str, Any]:
    """A whole answer."""
    choices = [
        _choice(call, index, answer, request)
        for index, (answer, request) in enumerate(zip(answers, requests, strict=True))
    ]
    params = call.disaggregated_params
    is_context = params is not None and params.request_type == CONTEXT
    return start | {
        "choices": choices,
        "usage": usage(call, requests),
        "prompt_token_ids": requests[0].prompt if is_context else None,
    }


def _choice(call: Call, index: int, answer: Answer, request: Request) -> dict[str, Any]:
    params = call.disaggregated_params
    found: dict[str, Any] = {
        "index": index,
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
        "disaggregated_params": None,
        "avg_decoded_tokens_per_iter": None,
    }
    if params is not None and params.request_type == CONTEXT:
        found["disaggregated_params"] = _offer(params, answer, request)
    if isinstance(call, ChatCall):
        return found | {
            "message": {
                "role": "assistant",
                "content": answer.text,
                "reasoning_content": None,
                "reasoning": None,
                "tool_calls": [],
            },
            "logprobs": chat_logprobs(answer.tokens, answer.logprobs) if answer.logprobs else None,
            "mm_embedding_handle": None,
        }
    echo = bool(getattr(call, "echo", False))
    return found | {
        "text": (decode(request.prompt) if echo else "") + answer.text,
        "token_ids": None,
        "logprobs": completion_logprobs(answer.tokens, answer.logprobs) if answer.logprobs else None,
        "context_logits": None,
    }


def _offer(params: DisaggregatedParams, answer: Answer, request: Request) -> dict[str, Any]:
    """What the generation worker must know."""
    transfer = request.transfer or {}
    logprobs = None
    if answer.logprobs:
        logprobs = [{"logprob": logprob, "others": others} for logprob, others in answer.logprobs]
    offer = DisaggregatedParams(
        request_type=CONTEXT,
        first_gen_tokens=list(answer.tokens),
        first_gen_log_probs=logprobs,
        ctx_request_id=transfer["ctx_request_id"],
        disagg_request_id=params.disagg_request_id,
        schedule_style=params.schedule_style,
        conversation_id=params.conversation_id,
        **(answer.transfer or {}),
    )
    told: dict[str, Any] = msgspec.to_builtins(offer)
    return told


def chunk(call: Call, index: int, output: Output) -> dict[str, Any]:
    """The choice of an event."""
    ended = {"finish_reason": output.finish_reason, "stop_reason": output.stop_reason}
    if isinstance(call, ChatCall):
        return {
            "index": index,
            "delta": {"content": output.text},
            "logprobs": chat_logprobs(output.tokens, output.logprobs) if output.logprobs else None,
            **ended,
        }
    return {
        "index": index,
        "text": output.text,
        "token_ids": None,
        "logprobs": completion_logprobs(output.tokens, output.logprobs) if output.logprobs else None,
        **ended,
        "avg_decoded_tokens_per_iter": None,
    }


def opening(index: int) -> dict[str, Any]:
    """The choice of a chat's first event."""
    return {"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
