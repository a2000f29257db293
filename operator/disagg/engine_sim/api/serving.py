"""What all endpoints share: engines, names of models, and how a call becomes requests of an engine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from disagg.engine_sim.api.answers import Answer
from disagg.engine_sim.api.errors import ApiError, busy, dead, internal_error, not_found, refused
from disagg.engine_sim.api.protocol import Common
from disagg.engine_sim.api.shape import Shape
from disagg.engine_sim.api.tools import script
from disagg.engine_sim.clock import Clock
from disagg.engine_sim.engine import DEAD, Engine, QueueFullError
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.request import Output, Request, Sampling

_BUSY = {
    "max_num_queued_reqs": "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance.",
    "max_num_queued_tokens": "The engine has reached its prefill token backlog limit. Please try again later or on a "
    "different instance.",
}


@dataclass
class Models:
    """Names under which the model answers, and adapters.

    Attributes:
        names: Of the base model; the first is the one in answers and metrics.
        root: Model as the command line says it.
        max_model_len: Longest context.
        loras: Adapters, with where they came from.
        lora_enabled: Whether there may be any.
        tells_names: Whether a name that is none is answered with those that are.
    """

    names: Sequence[str]
    root: str
    max_model_len: int
    loras: dict[str, str] = field(default_factory=dict)
    lora_enabled: bool = False
    tells_names: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    def adapter(self, name: str | None) -> str | None:
        """The adapter that a request names, None for the base model.

        Raises:
            ApiError: There is no such model.
        """
        if not name or name in self.names:
            return None
        if name in self.loras:
            return name
        aliases = f" Valid aliases: {', '.join(self.names)}." if self.tells_names else ""
        raise not_found(f"The model `{name}` does not exist.{aliases}")

    def shown(self, name: str | None) -> str:
        """The name in an answer to a request that names `name`: other names of the base model are not said."""
        return name if name and name in self.loras else self.names[0]


def kv_params(call: Common) -> dict[str, Any] | None:
    """vLLM's: what the sender says about peers."""
    return call.kv_transfer_params


def kv_answer(answers: Sequence[Answer]) -> dict[str, Any]:
    """vLLM's: what the answer says about the next one."""
    return {"kv_transfer_params": answers[0].transfer}


@dataclass
class Serving:
    """The API's side of the engines.

    Attributes:
        engines: By data-parallel rank.
        models: What they serve.
        clock: Their time.
        faults: What goes wrong.
        seed: Of the command line.
        max_logprobs: Alternatives that may be wanted for a token; -1 for any number.
        auto_tools: Whether the model may choose to call a tool.
        tool_parser: Whether there is a parser for tool calls, without which none may be forced.
        prompt_details: Whether usage tells of cached tokens.
        force_usage: Whether streams always tell usage.
        echo_ids: Whether answers carry X-Request-Id.
        random_ids: Whether the engine adds something of its own to request ids.
        lenient: Whether an answer that does not fit beside its prompt is made shorter, and a forced tool call that was cut
            is no error, as in newer releases.
        tells_of_refusals: Whether prefill is told of requests that are refused.
        stream_transfer: Whether the last event of a stream carries what the connector says.
        transfer_of: What a call says about peers.
        extra: What an answer says beside OpenAI's fields.
        shape: Fields that depend on the release.
        admit: Last check of a call before it becomes requests; raises ApiError.
        load: Calls in flight.
    """

    engines: Sequence[Engine]
    models: Models
    clock: Clock
    faults: Faults
    seed: int = 0
    max_logprobs: int = 20
    auto_tools: bool = False
    tool_parser: bool = True
    prompt_details: bool = False
    force_usage: bool = False
    echo_ids: bool = False
    random_ids: bool = True
    lenient: bool = True
    tells_of_refusals: bool = True
    stream_transfer: bool = True
    transfer_of: Callable[[Common], dict[str, Any] | None] = kv_params
    extra: Callable[[Sequence[Answer]], dict[str, Any]] = kv_answer
    shape: Shape = field(default_factory=Shape)
    admit: Callable[[Common], None] = lambda _call: None
    load: int = 0

    def choose(self, http: web.Request) -> Engine:
        """The rank that takes a call: the one it names, or the least loaded.

        Raises:
            ApiError: It names one that there is not.
        """
        wanted = http.headers.get("X-data-parallel-rank")
        try:
            rank = None if wanted is None else int(wanted)
        except ValueError:
            rank = None
        if rank is not None:
            if not 0 <= rank < len(self.engines):
                raise ApiError(f"data_parallel_rank {rank} is out of range [0, {len(self.engines)}).")
            return self.engines[rank]
        return min(self.engines, key=lambda engine: engine.load)

    def limits(self, prompt: Sequence[int], wanted: int | None) -> int:
        """Tokens that an answer may have.

        Args:
            prompt: Tokens of the prompt.
            wanted: Tokens that the call asks for; None if it does not say.

        Raises:
            ApiError: The prompt does not fit, or in older releases not together with the answer.
        """
        longest, size = self.models.max_model_len, len(prompt)
        if size > longest:
            # It stops counting there.
            told = f"at least {size}" if size == longest + 1 else str(size)
            raise refused(
                f"This model's maximum context length is {longest} tokens. However, your prompt contains {told} input "
                "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
                "input prompt.",
                param="input_tokens",
                value=size,
            )
        room = longest - size
        if wanted is not None and wanted > room and not self.lenient:
            raise ApiError(
                f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum context length "
                f"is {longest} tokens and your request has {size} input tokens ({wanted} > {longest} - {size}).",
                param="max_tokens",
            )
        return room if wanted is None else min(wanted, room)

    def sampling(self, call: Common, max_tokens: int, index: int) -> Sampling:
        """How the sample number `index` of a call is drawn."""
        greedy = call.temperature == 0
        seed = self.seed if call.seed is None else call.seed
        return Sampling(
            max_tokens=max_tokens,
            min_tokens=call.min_tokens,
            stop=call.stops,
            stop_token_ids=tuple(call.stop_token_ids or ()),
            ignore_eos=call.ignore_eos,
            include_stop=call.include_stop_str_in_output,
            key=b"" if greedy else f"{seed}/{index}".encode(),
            logprobs=call.alternatives,
            script=script(call),
        )

    def refuse(self, call: Common) -> None:
        """A call won't become a request: whoever keeps blocks for it must know."""
        if self.tells_of_refusals:
            self.engines[0].refused(self.transfer_of(call))

    def submit(
        self,
        engine: Engine,
        call: Common,
        name: str,
        prompts: Sequence[tuple[list[int], Sampling]],
        sinks: Sequence[Callable[[Output], None]],
    ) -> list[Request]:
        """Hand a call to an engine: each item of `prompts` is one sequence.

        Raises:
            ApiError: There is no room in the queue.
        """
        try:
            engine.check_queue(len(prompts))
        except QueueFullError as error:
            raise busy(_BUSY[error.limit]) from error
        lora = self.models.adapter(call.model)
        transfer = self.transfer_of(call)
        now = self.clock.now()
        requests = []
        for index, ((prompt, sampling), sink) in enumerate(zip(prompts, sinks, strict=True)):
            suffix = f"-{uuid.uuid4().hex[:8]}" if self.random_ids else ""
            own = name if call.choices == 1 else f"{index % call.choices}_{name}"
            requests.append(
                Request(
                    id=own.replace("{prompt}", str(index // call.choices)) + suffix,
                    prompt=prompt,
                    sampling=sampling,
                    arrival=now,
                    sink=sink,
                    priority=call.priority,
                    lora=lora,
                    salt=call.cache_salt or "",
                    uncached=call.of_prompt is not None,
                    # Siblings share it, as in the real engine: the first that has read lets prefill free the blocks.
                    transfer=dict(transfer) if transfer else None,
                    samples=call.choices if index % call.choices == 0 else 0,
                )
            )
        for request in requests:
            engine.submit(request)
        return requests

    def usage(self, requests: Sequence[Request], samples: int) -> dict[str, Any]:
        """Tokens of a call.

        Args:
            requests: All its sequences.
            samples: How many of them have the same prompt.
        """
        prompt = sum(len(request.prompt) for request in requests[::samples])
        answer = sum(len(request.output) for request in requests)
        details = None
        if self.prompt_details:
            cached = sum(request.told_cached_tokens for request in requests[::samples])
            details = {"cached_tokens": cached}
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + answer,
            "completion_tokens": answer,
            "prompt_tokens_details": details,
            **self.shape.usage,
        }


def request_id(http: web.Request, call: Common, prefix: str) -> str:
    """The id of a call: what the sender says, or a new one."""
    return f"{prefix}-{http.headers.get('X-Request-Id', call.request_id)}"


def failed(answers: Sequence[Answer]) -> None:
    """Make sure that nothing has failed.

    Raises:
        ApiError: A sequence has.
    """
    if any(answer.finish_reason == "error" for answer in answers):
        raise internal_error()
    if any(answer.finish_reason == DEAD for answer in answers):
        raise dead()
