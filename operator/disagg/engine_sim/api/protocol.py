"""Requests of the OpenAI API, with the fields, types and limits of vLLM's own.

Each field that vLLM knows is here, also where the simulation does nothing with it: a value of another type is refused. Whatever
else a request has is ignored, as by the engine. `reading` makes requests of bodies.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from disagg.engine_sim.api.parts import (
    AnyFormat,
    Budget,
    Message,
    NamedTool,
    RepetitionDetectionParams,
    ResponseFormat,
    StreamOptions,
    StructuredOutputsParams,
    Tool,
)

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1

Long = Annotated[int, Field(ge=_LONG_MIN, le=_LONG_MAX)]
Stop = str | Annotated[list[str], Field(max_length=4)] | None
Natural = Annotated[int, Field(ge=0)]


class Common(BaseModel):
    """Fields of both kinds of requests."""

    model_config = ConfigDict(protected_namespaces=())

    model: str | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    max_tokens: int | None = None
    n: int | None = 1
    presence_penalty: float | None = None
    seed: Long | None = None
    stop: Stop = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    watermarking: bool | None = None
    length_penalty: float = 1.0
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=_LONG_MAX)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    allowed_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    bad_words: list[str] = Field(default_factory=list)
    response_format: AnyFormat | None = None
    structured_outputs: StructuredOutputsParams | None = None
    priority: Long = 0
    request_id: str = Field(default_factory=lambda: uuid.uuid4().hex[16:])
    session_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    routed_experts_prompt_start: Natural = 0
    return_token_offsets: bool | None = False
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None
    repetition_detection: RepetitionDetectionParams | None = None
    thinking_token_budget: Budget = None
    stream_interval: Annotated[int, Field(ge=1)] | None = None

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

    @property
    def alternatives(self) -> int | None:
        """Log probabilities wanted for each token; None for none."""
        return None

    @property
    def of_prompt(self) -> int | None:
        """Log probabilities wanted for each token of the prompt; None for none."""
        return self.prompt_logprobs

    @property
    def wants_json(self) -> bool:
        """Whether the answer must be JSON."""
        if isinstance(self.response_format, ResponseFormat):
            return self.response_format.type != "text"
        outputs = self.structured_outputs
        return outputs is not None and bool(outputs.json or outputs.json_object)


class CompletionRequest(Common):
    """POST /v1/completions."""

    prompt: list[Natural] | list[list[Natural]] | str | list[str] | None = None
    echo: bool | None = False
    logprobs: int | None = None
    max_tokens: int | None = 16
    n: int = 1
    suffix: str | None = None
    mm_processor_kwargs: Any = None
    media_io_kwargs: Any = None
    prompt_embeds: bytes | list[bytes] | None = None
    add_special_tokens: bool = True

    @property
    def alternatives(self) -> int | None:
        """Log probabilities wanted for each token; None for none."""
        return self.logprobs

    @property
    def of_prompt(self) -> int | None:
        """As many as of the answer's tokens, if the prompt is repeated."""
        return self.logprobs if self.echo and self.prompt_logprobs is None else self.prompt_logprobs


class ChatRequest(Common):
    """POST /v1/chat/completions."""

    messages: list[Message]
    logprobs: bool | None = False
    # Null is the same as nothing.
    top_logprobs: Annotated[int, BeforeValidator(lambda value: 0 if value is None else value)] = 0
    max_completion_tokens: int | None = None
    tools: list[Tool] | None = None
    tool_choice: (
        Literal["none"] | Literal["auto"] | Literal["required"] | NamedTool | None  # noqa: PYI030 - each has its own error
    ) = "none"
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    include_reasoning: bool = True
    parallel_tool_calls: bool | None = True
    echo: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None

    @property
    def alternatives(self) -> int | None:
        """Log probabilities wanted for each token; None for none."""
        return self.top_logprobs if self.logprobs else None

    @property
    def of_prompt(self) -> int | None:
        """As many as of the answer's tokens, if the prompt is repeated."""
        return self.top_logprobs if self.echo and self.prompt_logprobs is None else self.prompt_logprobs

    @property
    def schemas(self) -> Sequence[dict[str, Any]]:
        """The tools as the template shows them."""
        return [tool.shown for tool in self.tools or ()]
