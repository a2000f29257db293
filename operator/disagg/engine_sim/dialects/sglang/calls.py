"""Requests of SGLang's API, and the checks that it makes before it takes one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
import orjson
from aiohttp import web

from disagg.engine_sim.dialects.sglang.errors import SglangError
from disagg.engine_sim.request import MAX_SAMPLES


class StreamOptions(msgspec.Struct):
    """What a stream holds besides text."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class Call(msgspec.Struct, kw_only=True):
    """Fields of both kinds of requests; what is not here is ignored, as by the engine."""

    model: str = "default"
    n: int = 1
    min_tokens: int = 0
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    no_stop_trim: bool = False
    ignore_eos: bool = False
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    bootstrap_host: str | list[str | None] | None = None
    bootstrap_port: int | list[int | None] | None = None
    bootstrap_room: int | list[int | None] | None = None
    routed_dp_rank: int | None = None
    data_parallel_rank: int | None = None
    disagg_prefill_dp_rank: int | None = None
    rid: str | list[str] | None = None
    lora_path: str | list[str | None] | None = None
    cache_salt: str | list[str] | None = None
    priority: int | None = None
    response_format: dict[str, Any] | None = None
    return_token_ids: bool = False

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def rank(self) -> int | None:
        """The data-parallel rank that it is for."""
        return self.data_parallel_rank if self.routed_dp_rank is None else self.routed_dp_rank

    @property
    def usage_wanted(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)


class Completion(Call, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]]
    max_tokens: int = 16
    echo: bool = False
    logprobs: int | None = None


class Chat(Call, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool = False


_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_OVERRIDES = {
    "x-override-rid": ("rid", str),
    "x-override-bootstrap-host": ("bootstrap_host", str),
    "x-override-bootstrap-port": ("bootstrap_port", int),
    "x-override-bootstrap-room": ("bootstrap_room", int),
    "x-override-routed-dp-rank": ("routed_dp_rank", int),
    "x-override-disagg-prefill-dp-rank": ("disagg_prefill_dp_rank", int),
    "x-override-priority": ("priority", int),
}


async def read(http: web.Request, kind: type[_Struct]) -> _Struct:
    """Read a request's body.

    Raises:
        SglangError: It is not JSON, or a field has another type.
    """
    media = http.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise SglangError("Unsupported Media Type: Only 'application/json' is allowed", kind="Bad Request")
    return parse(await http.read(), kind)


def parse(data: bytes, kind: type[_Struct]) -> _Struct:
    """Read a body.

    Raises:
        SglangError: It is not JSON, or a field has another type.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise SglangError(f"1 validation error: {error}", kind="Bad Request") from error


def override(call: Call, http: web.Request) -> None:
    """Let headers say what the body does not.

    Raises:
        SglangError: One is no number.
    """
    for header, (field, cast) in _OVERRIDES.items():
        value = http.headers.get(header)
        if value is None:
            continue
        try:
            setattr(call, field, cast(value))
        except ValueError as error:
            raise SglangError(
                f"invalid {header} header {value!r}: {error}", kind=str(int(HTTPStatus.BAD_REQUEST))
            ) from error


def route_header(call: Call, http: web.Request) -> None:
    """Let the header for it say the data-parallel rank.

    Raises:
        SglangError: It is no number.
    """
    value = http.headers.get("X-Data-Parallel-Rank")
    if value is None:
        return
    try:
        call.routed_dp_rank = int(value)
    except ValueError as error:
        raise SglangError(
            f"Invalid X-Data-Parallel-Rank header: must be an integer, got '{value}'", kind="400"
        ) from error


def check(call: Call, max_new_tokens: int | None) -> None:  # noqa: C901, PLR0912 - a list of checks
    """Refuse values that sampling can't have.

    Raises:
        SglangError: There is one.
    """

    def refuse(message: str) -> None:
        raise SglangError(message, kind="BadRequestError")

    if call.temperature is not None and call.temperature < 0:
        refuse(f"temperature must be a non-negative finite number, got {call.temperature}.")
    if call.top_p is not None and not 0 < call.top_p <= 1:
        refuse(f"top_p must be in (0, 1], got {call.top_p}.")
    if call.min_p is not None and not 0 <= call.min_p <= 1:
        refuse(f"min_p must be in [0, 1], got {call.min_p}.")
    if call.top_k is not None and call.top_k != -1 and call.top_k < 1:
        refuse(f"top_k must be -1 (disable) or at least 1, got {call.top_k}.")
    for name in ("frequency_penalty", "presence_penalty"):
        value = getattr(call, name)
        if value is not None and not -2 <= value <= 2:  # noqa: PLR2004 - OpenAI's range
            refuse(f"{name} must be in [-2, 2], got {value}.")
    if call.repetition_penalty is not None and not 0 < call.repetition_penalty <= 2:  # noqa: PLR2004 - SGLang's range
        refuse(f"repetition_penalty must be in (0, 2] (1.0 = no penalty), got {call.repetition_penalty}.")
    if call.min_tokens < 0:
        refuse(f"min_new_tokens must be in [0, max_new_tokens], got {call.min_tokens}.")
    if max_new_tokens is not None:
        if max_new_tokens < 0:
            refuse(f"max_new_tokens must be at least 0, got {max_new_tokens}.")
        if call.min_tokens > max_new_tokens:
            refuse(f"min_new_tokens must be in [0, max_new_tokens({max_new_tokens})], got {call.min_tokens}.")
    if call.n < 1:
        refuse("The parallel_sample_num should be at least 1.")
    if call.n > MAX_SAMPLES:
        refuse(f"The simulation gives at most {MAX_SAMPLES} samples, not {call.n}.")


def plain(value: Any) -> web.Response:  # noqa: ANN401 - JSON
    """An answer in JSON."""
    return web.Response(body=orjson.dumps(value), content_type="application/json")
