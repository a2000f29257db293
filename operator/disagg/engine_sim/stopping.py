"""One more token of an answer, and whether it is the last."""

from __future__ import annotations

from functools import lru_cache

from disagg.engine_sim.request import Output, Request
from disagg.engine_sim.text import EOS, Voice, decode


def advance(request: Request, speaker: Voice) -> Output:
    """Say the next token of an answer.

    Text that may become part of a stop string is held back until that is clear, as the real detokenizer does.

    Args:
        request: The request, whose answer grows.
        speaker: Its voice.
    """
    sampling = request.sampling
    may_end = len(request.output) >= sampling.min_tokens and not sampling.ignore_eos
    token = speaker.next(may_end=may_end)
    request.output.append(token)
    logprobs = None
    if sampling.logprobs is not None:
        logprobs = [(speaker.logprob(), speaker.alternatives(sampling.logprobs))]
    length = len(request.output)
    if token == EOS and not sampling.ignore_eos:
        return _last(request, Output("", [token], logprobs, "stop"))
    text = _text(token)
    if sampling.stop:
        request.text_seen += text
        request.text_held += text
        if length > sampling.min_tokens and (found := _stop(request)) is not None:
            return Output(_cut(request, found), [token], logprobs, "stop", found)
        keep = max(map(len, sampling.stop)) - 1
        text, request.text_held = _split(request.text_held, keep)
    output = Output(text, [token], logprobs)
    if length > sampling.min_tokens and token in sampling.stop_token_ids:
        output.finish_reason, output.stop_reason = "stop", token
    elif length >= sampling.max_tokens:
        output.finish_reason = "length"
    return _last(request, output) if output.finish_reason else output


@lru_cache(maxsize=4096)
def _text(token: int) -> str:
    return decode((token,))


def _last(request: Request, output: Output) -> Output:
    output.text += request.text_held
    request.text_held = ""
    return output


def _split(text: str, keep: int) -> tuple[str, str]:
    if keep <= 0:
        return text, ""
    return text[:-keep], text[-keep:]


def _stop(request: Request) -> str | None:
    """The stop string that came first in what is held back, if any did."""
    found = [(request.text_held.find(each), each) for each in request.sampling.stop if each]
    return min(((at, each) for at, each in found if at >= 0), default=(0, None))[1]


def _cut(request: Request, stop: str) -> str:
    at = request.text_held.find(stop)
    text = request.text_held[: at + len(stop) if request.sampling.include_stop else at]
    request.text_held = ""
    return text
