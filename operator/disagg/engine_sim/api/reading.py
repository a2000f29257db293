"""Bodies to requests: what is no JSON, has a wrong type or contradicts itself is refused, with vLLM's words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from disagg.engine_sim.api.contradictions import check_chat_body, check_completion_body
from disagg.engine_sim.api.errors import ApiError, internal_error
from disagg.engine_sim.api.protocol import ChatRequest, CompletionRequest

_Request = TypeVar("_Request")
_COMPLETION, _CHAT = TypeAdapter(CompletionRequest), TypeAdapter(ChatRequest)

_TOKENIZED = frozenset({"prompt", "messages", "tools"})
_SENT_TO_ENGINE = frozenset({"stop", "bad_words", "request_id"})
_MAX_ERRORS = 10
_MAX_INPUT = 200
_MAX_ERROR = 1000
_INTERNAL = re.compile(r"[\[\]{}()]")
_KINDS = frozenset(
    """
    str int float bool bytes list tuple dict set none nullable union default chain NamedTool Tool ResponseFormat StructuralTag
    OldStructuralTag StructuredOutputsParams RepetitionDetectionParams _Said _Silent FunctionCall CustomCall TokenizeText
    TokenizeChat
    """.split()  # noqa: SIM905 - a list of strings is unreadable
)
"""Names that the library puts into the path of an error beside those of fields."""


def read_completion(data: bytes) -> CompletionRequest:
    """A completion's body.

    Raises:
        ApiError: It is refused.
    """
    return read(data, _COMPLETION, check_completion_body)


def read_chat(data: bytes) -> ChatRequest:
    """A chat's body.

    Raises:
        ApiError: It is refused.
    """
    return read(data, _CHAT, check_chat_body)


def read(
    data: bytes, kind: TypeAdapter[_Request], check: Callable[[dict[str, Any]], None] = lambda _body: None
) -> _Request:
    """A request of a body.

    Args:
        data: The body.
        kind: What it must be.
        check: What is looked at before types are; raises ApiError.

    Raises:
        ApiError: It is not JSON, a field has another type, or fields contradict each other.
    """
    body = _json(data)
    if body is None:
        raise _malformed([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    if not isinstance(body, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise _malformed([{"type": "model_attributes_type", "loc": ("body",), "msg": message, "input": body}])
    check(body)
    try:
        request = kind.validate_python(body)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise _malformed([{**each, "loc": ("body", *each["loc"])} for each in found]) from error
    if b"\\ud" in data.lower():
        _check_characters(body)
    return request


def _check_characters(body: Mapping[str, Any]) -> None:
    """Half of a pair of surrogates is no character: vLLM's tokenizer refuses it, its engine fails of it, and the rest never look."""
    for field, value in body.items():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            if field == "cache_salt":
                message = "Input should be a valid string, unable to parse raw data as a unicode string"
                where = ("body", field)
                raise _malformed(
                    [{"type": "string_unicode", "loc": where, "msg": message, "input": value}]
                ) from error
            if field == "model":
                raise ApiError(str(error)) from error
            if field in _TOKENIZED:
                raise ApiError(
                    "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"
                ) from error
            if field in _SENT_TO_ENGINE:
                raise internal_error("") from error


def _json(data: bytes) -> Any:  # noqa: ANN401 - JSON, or whatever is given
    if not data:
        return None
    try:
        # The standard library's, as FastAPI: it takes integers of any size, and NaN.
        body = json.loads(data)
    except json.JSONDecodeError as error:
        raise _malformed(
            [
                {
                    "type": "json_invalid",
                    "loc": ("body", error.pos),
                    "msg": "JSON decode error",
                    "input": {},
                    "ctx": {"error": error.msg},
                }
            ]
        ) from error
    except (ValueError, RecursionError) as error:
        raise ApiError("There was an error parsing the body", kind="Bad Request") from error
    return body


def _malformed(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    count = len(errors)
    label = "error" if count == 1 else "errors"
    lines = [f"{count} validation {label}:", *(f"  {_told(each)}" for each in errors[:_MAX_ERRORS])]
    if count > _MAX_ERRORS:
        lines.append(f"  ...and {count - _MAX_ERRORS} more {label}")
    return ApiError("\n".join(lines), kind="Bad Request", param=_path(errors[0]["loc"]))


def _told(error: Mapping[str, Any]) -> str:
    told = {**error, "loc": _path(error["loc"]), "input": _summary(error["input"])}
    text = str(told)
    return text if len(text) <= _MAX_ERROR else text[:_MAX_ERROR] + "...[truncated]"


def _summary(value: object) -> str:
    if isinstance(value, (list, dict)):
        return f"<{type(value).__name__} of {len(value)} items>"
    text = str(value)
    return text if len(text) <= _MAX_INPUT else text[:_MAX_INPUT] + "...[truncated]"


def _path(location: tuple[Any, ...]) -> str:
    parts = [str(part) for part in location]
    return ".".join(part for part in parts if part not in _KINDS and not _INTERNAL.search(part))
