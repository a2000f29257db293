"""POST /v1/completions and /v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from disagg.engine_sim.api.answers import Answer, chat_logprobs
from disagg.engine_sim.dialects.sglang import prompts
from disagg.engine_sim.dialects.sglang.calls import (
    Call,
    Chat,
    Completion,
    check,
    override,
    plain,
    read,
    route_header,
)
from disagg.engine_sim.dialects.sglang.desk import Desk, why
from disagg.engine_sim.dialects.sglang.errors import SglangError
from disagg.engine_sim.dialects.sglang.places import place_of
from disagg.engine_sim.dialects.sglang.shapes import chat_message, completion_choice, matched, usage
from disagg.engine_sim.dialects.sglang.streams import Piece, Stream
from disagg.engine_sim.dialects.sglang.tools import forced, script, tool_calls
from disagg.engine_sim.request import Output, Request, Sampling

_Sequences = Sequence[tuple[list[int], Sampling]]


async def completions(desk: Desk, http: web.Request) -> web.StreamResponse:
    """A completion, of one prompt or several.

    Raises:
        SglangError: It is refused, or fails.
    """
    call = await read(http, Completion)
    _headers(desk, call, http)
    if call.max_tokens < 1:
        raise SglangError("1 validation error: max_tokens must be positive", kind="Bad Request")
    check(call, call.max_tokens)
    found = prompts.of_completion(call)
    sequences: list[tuple[list[int], Sampling]] = []
    longest = desk.serving.models.max_model_len
    for prompt in found:
        allowed = prompts.length(desk.args, longest, prompt, call.max_tokens)
        sequences += [
            (prompt, _sampling(desk, call, allowed, index, call.logprobs)) for index in range(call.n)
        ]
    places = desk.places(call, len(found), batch=prompts.is_batch(call))

    def piece(index: int, request: Request, output: Output, *, first: bool) -> dict[str, Any]:
        return completion_choice(
            index,
            request,
            output,
            echo=call.echo and first,
            logprobs=call.logprobs is not None,
            ids=call.return_token_ids,
        )

    answer = _Call(
        desk, http, call, "text_completion", sequences, [each for each in places for _ in range(call.n)]
    )
    if call.stream:
        return await answer.stream(piece, "text_completion")
    outputs, requests = await answer.whole()
    choices = [
        piece(index, request, output, first=True)
        for index, (request, output) in enumerate(zip(requests, outputs, strict=True))
    ]
    return answer.respond(choices, requests)


async def chat_completions(desk: Desk, http: web.Request) -> web.StreamResponse:
    """A chat.

    Raises:
        SglangError: It is refused, or fails.
    """
    call = await read(http, Chat)
    _headers(desk, call, http)
    wanted = call.max_tokens if call.max_completion_tokens is None else call.max_completion_tokens
    check(call, wanted)
    tool = forced(call)
    prompt = prompts.of_chat(call)
    allowed = prompts.length(desk.args, desk.serving.models.max_model_len, prompt, wanted)
    logprobs = (call.top_logprobs or 0) if call.logprobs else None
    said = script(call, tool)
    sequences = [(prompt, _sampling(desk, call, allowed, index, logprobs, said)) for index in range(call.n)]
    places = desk.places(call, 1, batch=False) * call.n

    def piece(index: int, _request: Request, output: Output, *, first: bool) -> dict[str, Any]:
        delta: dict[str, Any] = {"role": None, "content": output.text, "reasoning_content": None}
        if first:
            delta["role"] = "assistant"
        calls = tool_calls(output.text) if tool else None
        if calls:
            delta |= {"content": None, "tool_calls": calls}
        return {
            "index": index,
            "delta": delta,
            "logprobs": chat_logprobs(output.tokens, output.logprobs) if output.logprobs else None,
            "finish_reason": "tool_calls" if calls else output.finish_reason,
            "matched_stop": matched(output.tokens, output.finish_reason, output.stop_reason),
        }

    answer = _Call(desk, http, call, "chat.completion", sequences, places)
    if call.stream:
        return await answer.stream(piece, "chat.completion.chunk", in_one_go=tool is not None)
    outputs, requests = await answer.whole()
    choices = []
    for index, output in enumerate(outputs):
        message, reason = chat_message(output, tool=tool is not None)
        choices.append(
            {
                "index": index,
                "message": message,
                "logprobs": chat_logprobs(output.tokens, output.logprobs or []) if call.logprobs else None,
                "finish_reason": reason,
                "matched_stop": matched(output.tokens, output.finish_reason, output.stop_reason),
            }
        )
    return answer.respond(choices, requests)


class _Call:
    """A call that has been checked."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it is made of
        self,
        desk: Desk,
        http: web.Request,
        call: Call,
        kind: str,
        sequences: _Sequences,
        places: Sequence[Any],
    ) -> None:
        self._desk, self._http, self._call, self._kind = desk, http, call, kind
        self._sequences, self._places = sequences, places
        self._lora = _adapter(desk, call)
        self._created = int(time.time())

    async def whole(self) -> tuple[list[Output], list[Request]]:
        """All answers, each as one output.

        Raises:
            SglangError: One has failed.
        """
        answers = [Answer() for _ in self._sequences]
        requests: list[Request] = []
        try:
            requests += self._desk.submit(self._call, self._sequences, self._places, answers, self._lora)
            for answer, request in zip(answers, requests, strict=True):
                await answer.done.wait()
                if has_failed(request, answer.finish_reason):
                    raise why(request)
        finally:
            self._desk.leave(requests)
        return [
            Output(each.text, each.tokens, each.logprobs, each.finish_reason, each.stop_reason)
            for each in answers
        ], requests

    def respond(self, choices: list[dict[str, Any]], requests: Sequence[Request]) -> web.Response:
        """The answer."""
        return plain(
            {
                "id": requests[0].id,
                "object": self._kind,
                "created": self._created,
                "model": self._call.model,
                "choices": choices,
                "usage": self._usage(requests),
                "metadata": {"weight_version": "default"},
            }
        )

    async def stream(self, piece: Piece, kind: str, *, in_one_go: bool = False) -> web.StreamResponse:
        """The answers as a stream.

        Args:
            piece: Makes a choice of an output.
            kind: Of the events.
            in_one_go: Whether text is told only when it is complete, as tool calls are.
        """
        head = {"object": kind, "created": self._created, "model": self._call.model}
        stream = Stream(head, piece, len(self._sequences), in_one_go=in_one_go)
        options = self._call.stream_options
        if options is not None and options.continuous_usage_stats:
            stream.usage = lambda request: usage([request], 1, cache_report=False)
        sinks = [stream.sink(index) for index in range(len(self._sequences))]
        try:
            stream.requests += self._desk.submit(self._call, self._sequences, self._places, sinks, self._lora)
            stream.begin()
            wanted = self._call.usage_wanted or self._desk.args.stream_usage
            return await stream.serve(self._http, (lambda: self._usage(stream.requests)) if wanted else None)
        finally:
            self._desk.leave(stream.requests)

    def _usage(self, requests: Sequence[Request]) -> dict[str, Any]:
        return usage(requests, self._call.n, cache_report=self._desk.args.enable_cache_report)


def has_failed(request: Request, finish_reason: str | None) -> bool:
    """Whether an answer that ended so is an error to its client."""
    if finish_reason == "abort":
        place = place_of(request)
        return place is not None and place.failure is not None
    return finish_reason == "error"


def _headers(desk: Desk, call: Call, http: web.Request) -> None:
    route_header(call, http)
    if desk.environment.header_overrides:
        override(call, http)


def _adapter(desk: Desk, call: Call) -> str | None:
    """The adapter of a call: behind a colon in its model, or in lora_path. Other models are as good as any.

    Raises:
        SglangError: There is no such adapter.
    """
    _base, colon, name = call.model.partition(":")
    path = call.lora_path[0] if isinstance(call.lora_path, list) and call.lora_path else call.lora_path
    wanted = name.strip() if colon and name.strip() else path
    if not wanted or not isinstance(wanted, str):
        return None
    models = desk.serving.models
    if not models.lora_enabled:
        raise SglangError(
            f"LoRA adapter '{wanted}' was requested, but LoRA is not enabled. Please launch the server with --enable-lora "
            "flag and preload adapters using --lora-paths or /load_lora_adapter endpoint.",
            kind="BadRequestError",
        )
    if wanted not in models.loras:
        raise SglangError(
            f"Got LoRA adapter that has never been loaded: {wanted}\nAll loaded adapters: dict_keys({list(models.loras)}).",
            kind="BadRequestError",
        )
    return wanted


def _sampling(  # noqa: PLR0913, PLR0917 - the parts it is made of
    desk: Desk,
    call: Call,
    allowed: int,
    index: int,
    logprobs: int | None,
    said: Any = None,  # noqa: ANN401 - a callable
) -> Sampling:
    seed = desk.args.random_seed if call.seed is None else call.seed
    return Sampling(
        max_tokens=allowed,
        min_tokens=call.min_tokens,
        stop=call.stops,
        stop_token_ids=tuple(call.stop_token_ids or ()),
        ignore_eos=call.ignore_eos,
        include_stop=call.no_stop_trim,
        key=b"" if call.temperature == 0 else f"{seed}/{index}".encode(),
        logprobs=logprobs,
        script=said,
    )
