"""Requests as `trtllm-serve` takes them: it knows its fields, and refuses all others."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec
import orjson
from aiohttp import web

from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.request import MAX_SAMPLES

CONTEXT, GENERATION, BOTH = "context_only", "generation_only", "context_and_generation"
_KINDS = (CONTEXT, GENERATION, BOTH)


class ValidationError(Exception):
    """A body that is not one of the API; answered in another form than what fails later."""

    def response(self) -> web.Response:
        """The answer that says it."""
        return web.Response(
            body=orjson.dumps({"error": str(self)}), status=400, content_type="application/json"
        )


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What a stream holds besides text."""

    include_usage: bool | None = True
    continuous_usage_stats: bool | None = False


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True):
    """What form an answer must have."""

    type: Literal["text", "json", "json_schema", "json_object", "regex", "ebnf", "structural_tag"]
    schema: dict[str, Any] | None = None
    json_schema: dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    format: Any = None


class PromptTokensDetails(msgspec.Struct, forbid_unknown_fields=True):
    """Part of usage."""

    cached_tokens: int = 0


class Usage(msgspec.Struct, forbid_unknown_fields=True):
    """Tokens of a call."""

    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: PromptTokensDetails | None = None


class DisaggregatedParams(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What one side tells the other, by way of the orchestrator."""

    request_type: str
    first_gen_tokens: list[int] | None = None
    first_gen_log_probs: list[Any] | None = None
    first_gen_logits: list[Any] | None = None
    ctx_request_id: int | None = None
    encoded_opaque_state: str | None = None
    draft_tokens: list[int] | None = None
    disagg_request_id: int | None = None
    ctx_dp_rank: int | None = None
    ctx_info_endpoint: str | None = None
    schedule_style: int | str | None = None
    conversation_id: str | None = None
    ctx_usage: Usage | None = None


class Call(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields of both kinds of requests."""

    model: str
    frequency_penalty: float | None = 0.0
    logit_bias: dict[str, float] | None = None
    n: int = 1
    presence_penalty: float | None = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    lora_request: dict[str, Any] | None = None
    prompt_ignore_length: int | None = 0
    best_of: int | None = None
    use_beam_search: bool = False
    top_k: int = 0
    top_p_min: float = 0.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool | None = None
    response_format: ResponseFormat | None = None
    disaggregated_params: DisaggregatedParams | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings."""
        if not self.stop:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def limit(self) -> int | None:
        """Tokens that the answer may have, if it says so."""
        raise NotImplementedError

    @property
    def alternatives(self) -> int | None:
        """Alternatives wanted for each token; None for no log probabilities."""
        raise NotImplementedError


class CompletionCall(Call, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]]
    echo: bool | None = False
    logprobs: int | None = None
    max_tokens: int | None = None
    suffix: str | None = None
    return_context_logits: bool = False
    detokenize: bool = True

    @property
    def limit(self) -> int | None:
        """See `Call`."""
        return self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """See `Call`."""
        return self.logprobs or None


class ChatCall(Call, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    prompt_token_ids: list[int] | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = "none"
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    echo: bool = False
    add_generation_prompt: bool = True
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    cache_salt: str | None = None
    agent_hierarchy: Any = None

    @property
    def limit(self) -> int | None:
        """See `Call`."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def alternatives(self) -> int | None:
        """See `Call`."""
        return (self.top_logprobs or 1) if self.logprobs else None


_Kind = TypeVar("_Kind", bound=Call)


async def body(http: web.Request) -> bytes:
    """The body of a call, which must be JSON or say nothing of what it is.

    Raises:
        ValidationError: It says that it is something else.
    """
    if "Content-Type" in http.headers and http.content_type != "application/json":
        raise ValidationError("Input should be a valid dictionary or object to extract fields from")
    return await http.read()


def read(data: bytes, kind: type[_Kind]) -> _Kind:
    """Read a body.

    Raises:
        ValidationError: It is none.
    """
    try:
        call = msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        message = str(error)
        if "unknown field" in message:
            message = f"Extra inputs are not permitted: {message}"
        raise ValidationError(f"1 validation error: {message}") from error
    if call.stream_options is not None and not call.stream:
        raise ValidationError("Stream options can only be defined when stream is true.")
    if isinstance(call, CompletionCall) and call.suffix:
        raise ValidationError("suffix is not supported")
    return call


def check(call: Call, beams: int) -> None:
    """Refuse what sampling can't do.

    Args:
        call: The call.
        beams: Most beams that there may be.

    Raises:
        ApiError: It is asked for.
    """
    wanted = call.best_of or call.n
    if wanted > MAX_SAMPLES:
        raise ApiError(f"The simulation gives at most {MAX_SAMPLES} samples, not {wanted}")
    if call.n < 1 or wanted < call.n:
        raise ApiError(f"best_of ({wanted}) cannot be less than n ({call.n})")
    if call.use_beam_search and wanted > beams:
        raise ApiError(f"Request beam width {wanted} is larger than max_beam_width {beams}")
    for name, value, least, most in (
        ("temperature", call.temperature, 0.0, float("inf")),
        ("top_p", call.top_p, 0.0, 1.0),
        ("top_k", call.top_k, 0, float("inf")),
        ("max_tokens", call.limit, 1, float("inf")),
        ("min_tokens", call.min_tokens, 0, float("inf")),
    ):
        if value is not None and not least <= value <= most:
            raise ApiError(f"require {name} from {least} to {most}, got {name}={value}")
    params = call.disaggregated_params
    if params is None:
        return
    if params.request_type not in _KINDS:
        raise ApiError(
            f"Unknown request type: {params.request_type}. Must be context_only, generation_only or "
            "context_and_generation"
        )
    if params.request_type != BOTH and (wanted > 1 or call.use_beam_search):
        raise ApiError("Disaggregated requests have one sequence and one beam: n, best_of and beams are 1")
