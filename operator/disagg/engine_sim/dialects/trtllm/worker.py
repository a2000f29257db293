"""How a call becomes requests of the engine: checks, lengths, and the two legs of a disaggregated one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.api.prompts import Conversation, chat_prompt, completion_prompts, known_tokens
from disagg.engine_sim.api.serving import Serving
from disagg.engine_sim.dialects.trtllm.arguments import Arguments
from disagg.engine_sim.dialects.trtllm.protocol import (
    CONTEXT,
    GENERATION,
    Call,
    ChatCall,
    CompletionCall,
    check,
)
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.request import Output, Request, Sampling, Sink
from disagg.engine_sim.text import decode, words

_NO_TRANSCEIVER = (
    "kv_cache_transceiver is disabled, please set 'cache_transceiver_config: backend:<backend_type>` in config file for "
    "disaggregated serving"
)
_OVERLAP = "Context only requests are not supported in pytorch backend when overlap is enabled."
TRANSFER_FAILED = "Error in kv cache transfer for generation requests"
_JSON = frozenset({"json", "json_object", "json_schema"})


class Worker:
    """One `trtllm-serve`, between its HTTP and its engines.

    Attributes:
        serving: The engines and what goes with them.
        args: Command line.
        seed: Of calls that have none.
    """

    def __init__(self, serving: Serving, args: Arguments, seed: int) -> None:
        self.serving = serving
        self.args = args
        self.seed = seed
        self._numbers = itertools.count(1)

    def prompts(self, call: Call) -> list[list[int]]:
        """The tokens of the prompts of a call, of which a chat has one.

        Raises:
            ApiError: There are none, or it can't have them.
        """
        check(call, self.args.max_beam_width)
        if isinstance(call, CompletionCall):
            if len({type(each) for each in call.prompt}) > 1:
                raise ApiError(
                    "prompt must be text, tokens, or a list of either", kind="Bad Request", param="prompt"
                )
            found = [known_tokens(each) for each in completion_prompts(call.prompt)]
        elif isinstance(call, ChatCall):
            found = [_chat(call)]
        else:
            raise TypeError(call)
        if not all(found):
            raise ApiError("The prompt is empty")
        if call.response_format is not None and call.response_format.type != "text" and not self.args.guided:
            raise ApiError("Request specifies guided decoding, but guided_decoding_backend is not set")
        self._check_kind(call, len(found))
        return found

    def requests(
        self, call: Call, prompts: Sequence[list[int]], sink: Callable[[int], Sink]
    ) -> list[Request]:
        """What the engine is asked for by a call: `n` sequences for each prompt. Not yet handed to it.

        Args:
            call: The call.
            prompts: Its prompts.
            sink: Who hears of a sequence, by its number.

        Raises:
            ApiError: A prompt is too long.
        """
        found = []
        for number, prompt in enumerate(prompts):
            allowed = self._allowed(call, len(prompt))
            for index in range(call.n):
                sampling = self._sampling(call, allowed, index)
                found.append(self._request(call, prompt, sampling, sink(number * call.n + index)))
        return found

    def choose(self, requests: Sequence[Request]) -> Engine:
        """The rank that takes the requests of a call.

        Raises:
            ApiError: One has the number of another whose KV is still here.
        """
        for engine in self.serving.engines:
            scheduler = engine.scheduler
            for request in requests:
                if request.id in scheduler.requests or request.id in scheduler.leases.held:
                    raise ApiError(f"disagg_request_id {request.id} is in use")
        return min(self.serving.engines, key=lambda engine: engine.load)

    def _check_kind(self, call: Call, prompts: int) -> None:
        if call.lora_request is not None:
            raise ApiError("lora_request: adapters are not simulated")
        params = call.disaggregated_params
        if params is None or params.request_type not in {CONTEXT, GENERATION}:
            return
        if prompts != 1:
            raise ApiError("Disaggregated requests have one prompt")
        if self.args.transfer is None:
            raise ApiError(_NO_TRANSCEIVER)
        if params.request_type == CONTEXT and not self.args.disable_overlap_scheduler:
            raise ApiError(_OVERLAP)
        if params.request_type == GENERATION and (
            params.ctx_request_id is None or not params.first_gen_tokens
        ):
            raise ApiError("generation_only requests need ctx_request_id and first_gen_tokens")
        known_tokens(params.first_gen_tokens or [])

    def _allowed(self, call: Call, size: int) -> int:
        params = call.disaggregated_params
        kind = None if params is None else params.request_type
        most = self.args.max_num_tokens
        if kind != GENERATION and not self.args.enable_chunked_prefill and size > most:
            raise ApiError(
                f"The sum of prompt length ({float(size)}), query length (0) should not exceed max_num_tokens ({most})"
            )
        longest = self.serving.models.max_model_len
        room = longest - size
        if room <= 0:
            raise ApiError(
                f"`default_max_tokens` ({room}) must be greater than 0, `default_max_tokens` ({room}) = max_seq_len "
                f"({longest}) - `splited_prompt_len` ({size}) - `query_token_len` (0)"
            )
        if kind == CONTEXT:
            return 1
        return room if call.limit is None else min(call.limit, room)

    def _sampling(self, call: Call, allowed: int, index: int) -> Sampling:
        seed = self.seed if call.seed is None else call.seed
        form = call.response_format
        script = None
        if form is not None and form.type in _JSON:

            def script(state: bytes) -> str:
                return '{"answer": "' + words(state, 5) + '"}'

        return Sampling(
            max_tokens=allowed,
            min_tokens=call.min_tokens,
            stop=call.stops,
            stop_token_ids=tuple(call.stop_token_ids or ()),
            ignore_eos=call.ignore_eos,
            include_stop=call.include_stop_str_in_output,
            key=b"" if call.temperature == 0 else f"{seed}/{index}".encode(),
            logprobs=call.alternatives,
            script=script,
        )

    def _request(self, call: Call, prompt: list[int], sampling: Sampling, sink: Sink) -> Request:
        params = call.disaggregated_params
        number = next(self._numbers)
        request = Request(
            id=f"r{number}",
            prompt=prompt,
            sampling=sampling,
            arrival=self.serving.clock.now(),
            sink=sink,
            salt=(call.cache_salt or "") if isinstance(call, ChatCall) else "",
        )
        if params is None or params.request_type not in {CONTEXT, GENERATION}:
            return request
        request.transfer = msgspec.to_builtins(params)
        if params.request_type == CONTEXT:
            # The other side asks for the KV of this number.
            own = number if params.disagg_request_id is None else params.disagg_request_id
            request.id = str(own)
            request.transfer["ctx_request_id"] = own
        else:
            _continue(request, params.first_gen_tokens or [], params.first_gen_log_probs)
        return request


def _chat(call: ChatCall) -> list[int]:
    if call.prompt_token_ids is not None:
        return known_tokens(call.prompt_token_ids)
    if not call.messages or any(not isinstance(message.get("role"), str) for message in call.messages):
        raise ApiError("messages: a list of messages with roles is expected")
    return chat_prompt(
        Conversation(
            call.messages,
            tools=call.tools,
            arguments=call.chat_template_kwargs,
            add_generation_prompt=call.add_generation_prompt,
        )
    )


def _continue(request: Request, first: list[int], logprobs: list[Any] | None) -> None:
    """Let an answer begin with what the context worker has said: it is part of it, and counts."""
    sink, text, said = request.sink, decode(first), False
    request.output = list(first)
    if request.sampling.stop:
        # A stop string may begin there.
        request.text_held = request.text_seen = text

    def take(output: Output) -> None:
        nonlocal said
        if not said and output.tokens:
            said = True
            if request.sampling.max_tokens <= len(first):
                # Nothing was left to say; the engine has said one more, which nobody hears.
                del request.output[len(first) :]
                output = Output(text, list(first), [], "length")
            else:
                output.text = output.text if request.sampling.stop else text + output.text
                output.tokens = [*first, *output.tokens]
            if request.sampling.logprobs is not None:
                output.logprobs = [*_read_logprobs(first, logprobs), *(output.logprobs or [])]
            else:
                output.logprobs = None
        sink(output)

    request.sink = take


def _read_logprobs(first: list[int], given: list[Any] | None) -> list[tuple[float, list[int]]]:
    found: list[tuple[float, list[int]]] = []
    for index in range(len(first)):
        item = given[index] if given is not None and index < len(given) else None
        told = item if isinstance(item, dict) else {}
        found.append((float(told.get("logprob", 0.0)), [int(each) for each in told.get("others", [])]))
    return found
