"""Tokens of prompts: completions as they are, chats by a template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disagg.engine_sim.api.errors import ApiError, refused
from disagg.engine_sim.text import VOCABULARY, encode

_MEDIA = {
    "audio_embeds", "audio_url", "image_embeds", "image_pil", "image_url", "input_audio", "input_image", "prompt_embeds",
    "video_embeds", "video_url",
}  # fmt: skip
_TEXTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
_PARTS = sorted(_MEDIA | _TEXTS.keys() | {"tool_reference"})


@dataclass(frozen=True)
class Conversation:
    """What the template of a chat reads. It must be the same for prefill and decode, or their prompts differ.

    Attributes:
        messages: Each with a role.
        tools: As the model sees them. It does not see which one it must call.
        arguments: More of the template's.
        add_generation_prompt: Whether the next one to speak is the assistant.
        continue_final: Whether the last message goes on.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    arguments: Mapping[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final: bool = False


def completion_prompts(given: Sequence[Any] | None) -> list[list[int]]:
    """The tokens of each prompt of a completion, which is text, tokens, or a list of either.

    Raises:
        ApiError: There is none.
    """
    if isinstance(given, str):
        return [encode(given)]
    if not given:
        raise ApiError("You must pass at least one prompt")
    if isinstance(given[0], int):
        return [list(given)]
    return [encode(each) if isinstance(each, str) else list(each) for each in given]


def known_tokens(tokens: list[int], param: str | None = None) -> list[int]:
    """Tokens, if the model has all of them.

    Args:
        tokens: The tokens.
        param: The field that has them.

    Raises:
        ApiError: It has not.
    """
    if tokens and min(tokens) < 0:
        raise refused(f"Token id {min(tokens)} is out of vocabulary", param=param)
    if tokens and max(tokens) >= VOCABULARY:
        raise refused(f"Token id {max(tokens)} is out of vocabulary", param=param)
    return tokens


def has_media(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is anything but text in messages."""
    parts = (part for message in messages for part in message.get("content") or () if isinstance(part, dict))
    return any(part.get("type") in _MEDIA for part in parts)


def chat_prompt(chat: Conversation, model: str = "") -> list[int]:
    """The tokens of a chat.

    Args:
        chat: The chat.
        model: Name of the model, for errors.

    Raises:
        ApiError: A message has content that this model can't read.
    """
    parts = []
    if chat.tools:
        parts.append("<|im_start|>system\n<|tool|>" + _json(chat.tools) + "<|im_end|>\n")
    if chat.arguments:
        parts.append("<|im_start|>system\n" + _json(chat.arguments) + "<|im_end|>\n")
    for message in chat.messages:
        text = _content(message.get("content"), model)
        if message.get("tool_calls"):
            text += "<|tool|>" + _json(message["tool_calls"])
        parts.append(f"<|im_start|>{message['role']}\n{text}<|im_end|>\n")
    if chat.add_generation_prompt:
        parts.append("<|im_start|>assistant\n")
    elif chat.continue_final:
        parts[-1] = parts[-1].removesuffix("<|im_end|>\n")
    return encode("".join(parts))


def _json(value: Any) -> str:  # noqa: ANN401 - JSON, or whatever is given
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _content(content: Any, model: str) -> str:  # noqa: ANN401 - JSON, or whatever is given
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ApiError("Input should be a valid dictionary")
    return "\n".join(_part(part, model) for part in content)


def _part(part: Any, model: str) -> str:  # noqa: ANN401 - JSON, or whatever is given
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise ApiError("Input should be a valid dictionary")
    kind = part.get("type")
    if kind in _MEDIA:
        raise ApiError(f"{model} is not a multimodal model")
    field = _TEXTS.get(str(kind))
    if field is None:
        raise refused(
            f"Unsupported chat content part type: {kind!r}. Supported types: {', '.join(_PARTS)}.",
            param="type",
            value=kind,
        )
    if not isinstance(part.get(field), str):
        raise ApiError(f"{field}: Input should be a valid string")
    return str(part[field])
