"""What fields of requests are made of: formats of answers, tools, messages. Classes whose names errors show have vLLM's."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict  # the one that pydantic reads on Python 3.11

from disagg.engine_sim.api.errors import ApiError, refused


class _Shape(BaseModel):
    # As FastAPI reads them; it shows in errors.
    model_config = ConfigDict(from_attributes=True, protected_namespaces=())


class StreamOptions(_Shape):
    """What a stream holds besides text."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class JsonSchema(_Shape):
    """A schema that the answer must have."""

    name: str
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(_Shape):
    """A form that the answer must have."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuralTag(_Shape):
    """The same by a tree of tags."""

    type: Literal["structural_tag"]
    format: Any


class _Structure(_Shape):
    begin: str
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    end: str


class OldStructuralTag(_Shape):
    """The same by a list of tags."""

    type: Literal["structural_tag"]
    structures: list[_Structure]
    triggers: list[str]


AnyFormat = ResponseFormat | StructuralTag | OldStructuralTag


@dataclass
class StructuredOutputsParams:
    """vLLM's own way to say the form of an answer: one of these."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None

    def __post_init__(self) -> None:
        """Refuse all but one."""
        kinds = (self.json, self.regex, self.choice, self.grammar, self.json_object, self.structural_tag)
        count = sum(kind is not None for kind in kinds)
        told = {**vars(self), "_backend": None, "_backend_was_auto": False}
        told.pop("__pydantic_initialised__", None)
        if count > 1:
            raise ApiError(
                "You can only use one kind of structured outputs constraint but multiple are specified: "
                f"{told}"
            )
        if count < 1:
            raise ApiError(
                f"You must use one kind of structured outputs constraint but none are specified: {told}"
            )


@dataclass
class RepetitionDetectionParams:
    """When an answer that repeats itself is ended."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes that contradict each other."""
        if not 0 <= self.min_pattern_size <= self.max_pattern_size:
            raise ApiError(
                "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= max_pattern_size. "
                "Set both to 0 to disable repetitive pattern detection."
            )
        if self.max_pattern_size > 0 and self.min_count < 2:  # noqa: PLR2004 - once is no repetition
            raise ApiError(
                "min_count must be >= 2 to detect repetitive patterns in engine output. If you do not wish to detect "
                "repetitive patterns, set max_pattern_size to 0."
            )


class Function(_Shape):
    """What a tool is."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Shape):
    """A tool that the model may call."""

    type: Literal["function"] = "function"
    function: Function

    @property
    def shown(self) -> dict[str, Any]:
        """As a chat's template sees it."""
        return self.model_dump(exclude_none=True)


class _Named(_Shape):
    name: str


class NamedTool(_Shape):
    """A tool that the model must call."""

    function: _Named
    type: Literal["function"] = "function"


class _Called(TypedDict):
    name: str
    arguments: str


class FunctionCall(TypedDict):
    """A call of a tool that the assistant has made."""

    id: str
    function: _Called
    type: Literal["function"]


class CustomCall(TypedDict):
    """The same of a tool whose input is text."""

    id: str
    custom: dict[str, Any]
    type: Literal["custom"]


class _Speaker(TypedDict, total=False):
    name: str
    tool_call_id: str | None
    tool_calls: list[FunctionCall | CustomCall] | None
    reasoning: str | None


class _Said(_Speaker, total=False):
    role: Required[str]
    content: str | list[dict[str, Any]]


class _Silent(_Speaker, total=False):
    role: Required[Literal["assistant", "function"]]
    content: None


Message = _Said | _Silent
"""A message of a chat: only what has called a tool may say nothing."""


def _budget(value: object) -> int | None:
    if value is None or (value == -1 and type(value) is int):
        return None
    if type(value) is not int or value < 0:
        raise refused(
            "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.",
            param="thinking_token_budget",
            value=value,
        )
    return value


Budget = Annotated[int | None, BeforeValidator(_budget)]
