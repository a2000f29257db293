"""Requests of the OpenAI API, and the checks that vLLM makes before it takes one.

Messages are vLLM's: routers and clients are known to look at them.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from disagg.engine_sim.api.errors import ApiError


class StreamOptions(msgspec.Struct):
    """What a stream holds besides text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Common(msgspec.Struct, kw_only=True):
    """Fields of both kinds of requests; what is not here is ignored, as by the engine."""

    model: str | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    n: int | None = 1
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    prompt_logprobs: int | None = None
    priority: int = 0
    cache_salt: str | None = None
    response_format: dict[str, Any] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    disaggregated_params: dict[str, Any] | None = None
    bootstrap_host: str | list[str | None] | None = None
    bootstrap_port: int | list[int | None] | None = None
    bootstrap_room: int | list[int] | None = None
    return_token_ids: bool | None = None
    request_id: str | None = None

    @property
    def choices(self) -> int:
        """Answers wanted for each prompt."""
        return 1 if self.n is None else self.n

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class CompletionRequest(Common, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]] | None = None
    echo: bool | None = False
    logprobs: int | None = None
    suffix: str | None = None
    best_of: int | None = None


class ChatRequest(Common, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    prompt_token_ids: list[int] | None = None


_MAX_SAMPLES = 16384

_Request = TypeVar("_Request", bound=msgspec.Struct)


def parse(data: bytes, kind: type[_Request]) -> _Request:
    """Read a request's body.

    Raises:
        ApiError: It is not JSON, or a field has another type.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        message = str(error)
        param = message.partition("`$.")[2].rstrip("`") or None
        raise ApiError(message, kind="Bad Request", param=param) from error
    except msgspec.DecodeError as error:
        raise ApiError(f"JSON decode error: {error}", kind="Bad Request") from error


def check_stream(request: Common) -> None:
    """Refuse what streams can't have.

    Raises:
        ApiError: It is asked for.
    """
    if request.stream_options is not None and not request.stream:
        raise ApiError("Stream options can only be defined when `stream=True`.", param="stream_options")
    wanted = request.prompt_logprobs
    if wanted is not None:
        if request.stream and (wanted > 0 or wanted == -1):
            raise ApiError("`prompt_logprobs` are not available when `stream=True`.", param="prompt_logprobs")
        if wanted < -1:
            raise ApiError("`prompt_logprobs` must be a positive value or -1.", param="prompt_logprobs")


def check_sampling(request: Common) -> None:
    """Refuse values that sampling can't have.

    Raises:
        ApiError: There is one.
    """
    for name, value, low, high in (
        ("presence_penalty", request.presence_penalty, -2.0, 2.0),
        ("frequency_penalty", request.frequency_penalty, -2.0, 2.0),
    ):
        if value is not None and not low <= value <= high:
            raise ApiError(f"{name} must be in [-2, 2], got {value}.")
    repetition = request.repetition_penalty
    if repetition is not None and not (math.isfinite(repetition) and repetition > 0):
        raise ApiError(f"repetition_penalty must be greater than zero, got {repetition}.")
    temperature = request.temperature
    if temperature is not None and not (math.isfinite(temperature) and temperature >= 0):
        raise ApiError(f"temperature must be non-negative, got {temperature}.", param="temperature")
    if request.top_p is not None and not 0 < request.top_p <= 1:
        raise ApiError(f"top_p must be in (0, 1], got {request.top_p}.", param="top_p")
    if request.top_k is not None and request.top_k < -1:
        raise ApiError(f"top_k must be 0 (disable), or at least 1, got {request.top_k}.")
    if request.min_p is not None and not 0 <= request.min_p <= 1:
        raise ApiError(f"min_p must be in [0, 1], got {request.min_p}.")
    _check_samples(request)


def _check_samples(request: Common) -> None:
    if request.choices < 1:
        raise ApiError(f"n must be at least 1, got {request.choices}.", param="n")
    if request.choices > _MAX_SAMPLES:
        raise ApiError(
            f"n must be at most {_MAX_SAMPLES}, got {request.choices}. To increase this limit, set the "
            "VLLM_MAX_N_SEQUENCES environment variable.",
            param="n",
        )
    if request.choices > 1 and request.temperature == 0:
        raise ApiError(f"n must be 1 when using greedy sampling, got {request.choices}.")
    if any(not each for each in request.stops):
        raise ApiError("stop cannot contain an empty string.")


def check_tokens(max_tokens: int, min_tokens: int) -> None:
    """Refuse lengths that contradict each other.

    Raises:
        ApiError: They do.
    """
    if max_tokens < 1:
        raise ApiError(f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens")
    if min_tokens < 0:
        raise ApiError(f"min_tokens must be greater than or equal to 0, got {min_tokens}.")
    if min_tokens > max_tokens:
        raise ApiError(f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}.")


def check_completion(request: CompletionRequest) -> None:
    """Refuse what a completion can't have.

    Raises:
        ApiError: It is asked for.
    """
    if not request.prompt:
        raise ApiError("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    if request.suffix:
        raise ApiError("suffix is not currently supported")
    if request.logprobs is not None and request.logprobs < -1:
        raise ApiError("`logprobs` must be a positive value or -1.", param="logprobs")
    check_stream(request)
    check_sampling(request)


def check_chat(request: ChatRequest, *, auto_tools: bool) -> None:
    """Refuse what a chat completion can't have.

    Args:
        request: The request.
        auto_tools: Whether the engine was started with a parser for tool calls.

    Raises:
        ApiError: It is asked for.
    """
    check_stream(request)
    if request.top_logprobs is not None:
        if request.top_logprobs < -1:
            raise ApiError("`top_logprobs` must be a positive value or -1.", param="top_logprobs")
        if request.top_logprobs and not request.logprobs:
            raise ApiError("when using `top_logprobs`, `logprobs` must be set to true.", param="top_logprobs")
    if request.continue_final_message and request.add_generation_prompt:
        raise ApiError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    if not request.messages:
        raise ApiError("list index out of range")
    if any(not isinstance(message.get("role"), str) for message in request.messages):
        raise ApiError("Field required: role", kind="Bad Request", param="messages")
    _check_tools(request, auto_tools=auto_tools)
    check_sampling(request)


def _check_tools(request: ChatRequest, *, auto_tools: bool) -> None:  # noqa: C901 - a list of checks
    if request.tools is not None and not request.tools:
        raise ApiError(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
            param="tools",
        )
    choice = request.tool_choice
    if choice is None:
        choice = "auto" if request.tools else "none"
    if choice == "none":
        return
    if not request.tools:
        raise ApiError("When using `tool_choice`, `tools` must be set.", param="tool_choice")
    if choice == "auto":
        if not auto_tools:
            raise ApiError(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            )
    elif isinstance(choice, dict):
        name = named_tool(choice)
        if name is None:
            raise ApiError(
                "Expected field `name` in `function` in `tool_choice`!", param="tool_choice.function.name"
            )
        if all(tool.get("function", {}).get("name") != name for tool in request.tools):
            raise ApiError(
                "The tool specified in `tool_choice` does not match any of the specified `tools`",
                param="tool_choice",
            )
    elif choice != "required":
        raise ApiError(
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or '
            '"required" are supported.',
            param="tool_choice",
        )


def named_tool(choice: dict[str, Any]) -> str | None:
    """The tool that a tool choice names."""
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) and name else None
