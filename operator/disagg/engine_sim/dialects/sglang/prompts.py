"""Tokens of a call's prompts, and how long its answers may be."""

from __future__ import annotations

from collections.abc import Sequence

from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.api.prompts import Conversation, chat_prompt
from disagg.engine_sim.dialects.sglang.arguments import Arguments
from disagg.engine_sim.dialects.sglang.calls import Chat, Completion
from disagg.engine_sim.dialects.sglang.errors import SglangError
from disagg.engine_sim.text import VOCABULARY, encode


def of_completion(call: Completion) -> list[list[int]]:
    """The tokens of each prompt of a completion.

    Raises:
        SglangError: There is none, or there are tokens that the model has not.
    """
    given = call.prompt
    if not given or (isinstance(given, list) and not all(each or each == 0 for each in given)):
        raise SglangError("Prompt cannot be empty", kind="BadRequestError")
    if isinstance(given, str):
        return [encode(given)]
    if all(isinstance(each, int) for each in given):
        return [_known([each for each in given if isinstance(each, int)])]
    return [
        encode(each) if isinstance(each, str) else _known(each if isinstance(each, list) else [each])
        for each in given
    ]


def is_batch(call: Completion) -> bool:
    """Whether a completion has a list of prompts, if only of one."""
    return isinstance(call.prompt, list) and not isinstance(call.prompt[0], int)


def of_chat(call: Chat) -> list[int]:
    """The tokens of a chat.

    Raises:
        SglangError: There are no messages, or there is something in them that this model can't read.
    """
    if not call.messages:
        raise SglangError("Messages cannot be empty.", kind="BadRequestError")
    if any(not isinstance(message.get("role"), str) for message in call.messages):
        raise SglangError("Field required: role", kind="Bad Request")
    try:
        return chat_prompt(
            Conversation(
                call.messages,
                tools=None if call.tool_choice == "none" else call.tools,
                arguments=call.chat_template_kwargs,
                add_generation_prompt=not call.continue_final_message,
                continue_final=call.continue_final_message,
            )
        )
    except ApiError as error:
        raise SglangError(error.message) from error


def length(args: Arguments, longest: int, prompt: Sequence[int], wanted: int | None) -> int:
    """Tokens that an answer may have.

    Args:
        args: Say whether what is too long is cut.
        longest: Tokens of the longest context.
        prompt: The prompt.
        wanted: Tokens that are asked for; None if nothing is said.

    Raises:
        SglangError: Prompt, or prompt and answer, do not fit.
    """
    size = len(prompt)
    if size >= longest:
        raise SglangError(
            f"The input ({size} tokens) is longer than the model's context length ({longest} tokens).",
            kind="BadRequestError",
        )
    room = longest - size
    if wanted is None:
        return room
    if wanted > room:
        if args.auto_truncate:
            return room
        raise SglangError(
            f"Requested token count exceeds the model's maximum context length of {longest} tokens. You requested a total "
            f"of {wanted + size} tokens: {size} tokens from the input messages and {wanted} tokens for the completion. "
            "Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
            kind="BadRequestError",
        )
    return wanted


def _known(tokens: list[int]) -> list[int]:
    if tokens and not 0 <= min(tokens) <= max(tokens) < VOCABULARY:
        raise SglangError(
            f"The input_ids {tokens} contains values greater than the vocab size ({VOCABULARY}).",
            kind="BadRequestError",
        )
    return tokens
