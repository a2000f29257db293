"""Tokens of prompts: completions as they are, chats by a template."""

from __future__ import annotations

from typing import Any

import orjson

from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.api.protocol import ChatRequest, CompletionRequest
from disagg.engine_sim.text import VOCABULARY, encode

_MAX_PROMPTS = 1024


def completion_prompts(request: CompletionRequest) -> list[list[int]]:
    """The tokens of each prompt of a completion.

    Raises:
        ApiError: There are too many, an empty one, or tokens that the model has not.
    """
    given = request.prompt
    if isinstance(given, str):
        return [encode(given)]
    if not given:
        raise ApiError("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    kind = type(given[0])
    if any(type(each) is not kind for each in given):
        raise ApiError("prompt must be text, tokens, or a list of either", kind="Bad Request", param="prompt")
    if kind is int:
        return [known_tokens([each for each in given if isinstance(each, int)])]
    if len(given) > _MAX_PROMPTS:
        raise ApiError(
            f"prompt list length {len(given)} exceeds the maximum allowed count of {_MAX_PROMPTS}. To increase this "
            "limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable.",
            param="prompt",
        )
    prompts = [encode(each) for each in given if isinstance(each, str)]
    prompts += [known_tokens(each) for each in given if isinstance(each, list)]
    if not all(prompts):
        raise ApiError("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    return prompts


def known_tokens(tokens: list[int]) -> list[int]:
    """Tokens, if the model has all of them.

    Raises:
        ApiError: It has not.
    """
    if tokens and not 0 <= min(tokens) <= max(tokens) < VOCABULARY:
        raise ApiError(f"Token id {max(tokens)} is out of vocabulary", param="prompt")
    return tokens


def chat_prompt(request: ChatRequest) -> list[int]:
    """The tokens of a chat.

    What the template reads must be the same for prefill and decode, or their prompts differ: messages, tools, template
    arguments. It does not read the tool choice.

    Raises:
        ApiError: A message has content that this model can't read.
    """
    parts = []
    if request.tools:
        parts.append("<|im_start|>system\n<|tool|>" + _json(request.tools) + "<|im_end|>\n")
    if request.chat_template_kwargs:
        parts.append("<|im_start|>system\n" + _json(request.chat_template_kwargs) + "<|im_end|>\n")
    for message in request.messages:
        text = _content(message.get("content"))
        if message.get("tool_calls"):
            text += "<|tool|>" + _json(message["tool_calls"])
        parts.append(f"<|im_start|>{message['role']}\n{text}<|im_end|>\n")
    if request.add_generation_prompt:
        parts.append("<|im_start|>assistant\n")
    elif request.continue_final_message:
        parts[-1] = parts[-1].removesuffix("<|im_end|>\n")
    return encode("".join(parts))


def _json(value: Any) -> str:  # noqa: ANN401 - JSON, or whatever is given
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _content(content: Any) -> str:  # noqa: ANN401 - JSON, or whatever is given
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ApiError("Input should be a valid string or list", kind="Bad Request", param="messages")
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type") == "text":
            texts.append(str(part.get("text", "")))
        else:
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise ApiError(f"At most 0 {kind}(s) may be provided in one prompt.")
    return "\n".join(texts)
