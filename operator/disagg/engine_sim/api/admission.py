"""From a request to the sequences that the engine is to run: what vLLM looks at on the way, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from disagg.engine_sim.api.errors import ApiError, refused
from disagg.engine_sim.api.parts import NamedTool
from disagg.engine_sim.api.prompts import (
    Conversation,
    chat_prompt,
    completion_prompts,
    has_media,
    known_tokens,
)
from disagg.engine_sim.api.protocol import ChatRequest, Common, CompletionRequest
from disagg.engine_sim.api.sampling import check_model, check_values
from disagg.engine_sim.api.serving import Serving
from disagg.engine_sim.request import Sampling

Sequences = Sequence[tuple[list[int], Sampling]]


def completion_sequences(serving: Serving, call: CompletionRequest) -> Sequences:
    """The sequences of a completion.

    Raises:
        ApiError: It is refused.
    """
    if call.suffix is not None:
        _refuse_suffix(call)
    if call.prompt_embeds is not None and call.prompt_embeds != []:
        raise refused(
            "You must set `--enable-prompt-embeds` to input `prompt_embeds`.", param="prompt_embeds"
        )
    _refuse_media_arguments(call.mm_processor_kwargs, call.media_io_kwargs)
    _check_wanted(serving, call, call.max_tokens, "max_tokens")
    return [
        sequence
        for prompt in completion_prompts(call.prompt)
        for sequence in _sequences(serving, call, prompt, call.max_tokens)
    ]


def chat_sequences(serving: Serving, call: ChatRequest) -> Sequences:
    """The sequences of a chat.

    Raises:
        ApiError: It is refused.
    """
    _check_tools(serving, call)
    if call.chat_template is not None or (call.chat_template_kwargs or {}).get("chat_template") is not None:
        raise ApiError(
            "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with "
            "untrusted chat template."
        )
    _refuse_media_arguments(call.mm_processor_kwargs, call.media_io_kwargs)
    wanted, param = call.max_completion_tokens, "max_completion_tokens"
    if wanted is None:
        wanted, param = call.max_tokens, "max_tokens"
    _check_wanted(serving, call, wanted, param)
    given = None if call.echo or has_media(call.messages) else _forwarded(call)
    return _sequences(serving, call, given or _rendered(serving, call), wanted)


def check_engine(serving: Serving, call: Common, sequences: Sequences) -> None:
    """What the engine itself refuses, which in a stream is said after it has begun.

    Raises:
        ApiError: It does.
    """
    check_model(call, serving.max_logprobs)
    longest = serving.models.max_model_len
    for prompt, _sampling in sequences:
        known_tokens(prompt)
        if not prompt:
            raise ApiError("The decoder prompt cannot be empty")
        if len(prompt) == longest:
            raise ApiError(
                f"The decoder prompt (length {longest}) plus the number of requested output tokens (at least 1) is longer "
                f"than the maximum model length of {longest}. Make sure that `max_model_len` is no smaller than the number "
                "of text tokens (prompt + requested output tokens)."
            )
        if call.routed_experts_prompt_start > len(prompt):
            raise refused(
                f"routed_experts_prompt_start must be between 0 and the prompt length ({len(prompt)}), inclusive.",
                param="routed_experts_prompt_start",
                value=call.routed_experts_prompt_start,
            )


def _refuse_suffix(call: CompletionRequest) -> None:
    if call.echo:
        raise ApiError("Echo is unsupported with suffix.", param="suffix")
    if call.truncate_prompt_tokens is not None:
        raise ApiError("suffix is not supported with truncate_prompt_tokens", param="suffix")
    text = isinstance(call.prompt, str) or all(isinstance(each, str) for each in call.prompt or ())
    message = (
        "suffix is only supported for models with FIM completion rendering"
        if text
        else "suffix requires text prompt input for FIM completion rendering"
    )
    raise ApiError(message, param="suffix")


def _check_tools(serving: Serving, call: ChatRequest) -> None:
    choice = call.tool_choice
    if choice is None or choice == "none":
        return
    if choice == "auto":
        if not serving.auto_tools:
            raise ApiError(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            )
    elif not serving.tool_parser:
        told = f'function "{choice.function.name}"' if isinstance(choice, NamedTool) else f'"{choice}"'
        raise ApiError(f"tool_choice={told} requires --tool-call-parser to be set")


def _refuse_media_arguments(processor: object, media: object) -> None:
    for name, value, what in (
        ("mm_processor_kwargs", processor, "preprocessing"),
        ("media_io_kwargs", media, "media loading"),
    ):
        if value:
            raise refused(
                f"Per-request {name} are disabled by default because they can change multimodal {what} resource usage. "
                "Start the server with --trust-request-mm-kwargs only when clients are trusted.",
                param=name,
            )


def _forwarded(call: Common) -> list[int] | None:
    """Tokens that prefill has made of the prompt, if the router passes them on."""
    given = (call.kv_transfer_params or {}).pop("prompt_token_ids", None)
    if given is None:
        return None
    param = "kv_transfer_params.prompt_token_ids"
    if not isinstance(given, list) or not given or any(type(each) is not int or each < 0 for each in given):
        raise refused(
            "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers.",
            param=param,
        )
    return known_tokens(given, param)


def _rendered(serving: Serving, call: ChatRequest) -> list[int]:
    if not call.messages:
        raise ApiError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    if call.continue_final_message and call.add_generation_prompt:
        raise ApiError(
            "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when you want "
            "the model to continue the final message, and add_generation_prompt when you want to add a header that will "
            "prompt it to start a new assistant message instead."
        )
    if "messages" in (call.chat_template_kwargs or {}):
        raise ApiError(
            "jinja2.environment.Template.render() got multiple values for keyword argument 'messages'"
        )
    chat = Conversation(
        call.messages,
        call.schemas,
        call.chat_template_kwargs,
        call.add_generation_prompt,
        call.continue_final_message,
    )
    return chat_prompt(chat, serving.models.root)


def _check_wanted(serving: Serving, call: Common, wanted: int | None, param: str) -> None:
    longest = serving.models.max_model_len
    if wanted is not None and wanted > longest:
        raise refused(
            f"{param}={wanted} cannot be greater than max_model_len={longest}. Please request fewer output tokens.",
            param=param,
            value=wanted,
        )
    kept = call.truncate_prompt_tokens
    if kept is not None and kept > longest:
        raise refused(
            f"truncate_prompt_tokens={kept} cannot be greater than max_model_len = {longest}. Please request a smaller "
            "truncation size.",
            param="truncate_prompt_tokens",
            value=kept,
        )


def _sequences(serving: Serving, call: Common, prompt: list[int], wanted: int | None) -> Sequences:
    prompt = _truncated(call, prompt, serving.models.max_model_len)
    allowed = serving.limits(prompt, wanted)
    if isinstance(call, CompletionRequest) and call.echo and call.max_tokens == 0:
        # Nothing but the prompt is wanted; the engine says a token, which is not shown.
        allowed = 1
    check_values(call, allowed)
    return [(prompt, serving.sampling(call, allowed, index)) for index in range(call.choices)]


def _truncated(call: Common, prompt: list[int], longest: int) -> list[int]:
    kept: Any = call.truncate_prompt_tokens
    if kept is None:
        return prompt
    if kept == -1:
        kept = longest - 1
    if kept >= len(prompt):
        return prompt
    return prompt[:kept] if call.truncation_side == "right" else prompt[len(prompt) - kept :]
