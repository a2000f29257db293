"""What the engine says of itself, and adapters that come and go."""

from __future__ import annotations

import uuid
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel, TypeAdapter

from disagg.engine_sim.api.errors import ApiError, not_found
from disagg.engine_sim.api.generate import body
from disagg.engine_sim.api.parts import Message, Tool
from disagg.engine_sim.api.prompts import Conversation, chat_prompt
from disagg.engine_sim.api.protocol import Natural
from disagg.engine_sim.api.reading import read
from disagg.engine_sim.api.serving import Serving
from disagg.engine_sim.text import decode, encode, token_text


class LoadLora(BaseModel):
    """POST /v1/load_lora_adapter."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False


class UnloadLora(BaseModel):
    """POST /v1/unload_lora_adapter."""

    lora_name: str


class TokenizeText(BaseModel):
    """POST /tokenize of a text."""

    model: str | None = None
    prompt: str
    return_token_strs: bool | None = False


class TokenizeChat(BaseModel):
    """POST /tokenize of a chat."""

    model: str | None = None
    messages: list[Message]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    return_token_strs: bool | None = False
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[Tool] | None = None


class Detokenize(BaseModel):
    """POST /detokenize."""

    tokens: list[Natural]
    model: str | None = None


_LOAD, _UNLOAD, _DETOKENIZE = TypeAdapter(LoadLora), TypeAdapter(UnloadLora), TypeAdapter(Detokenize)
_TOKENIZE: TypeAdapter[TokenizeText | TokenizeChat] = TypeAdapter(TokenizeText | TokenizeChat)


def answer(value: Any) -> web.Response:  # noqa: ANN401 - JSON, or whatever is given
    """JSON of a value."""
    return web.Response(body=orjson.dumps(value), content_type="application/json")


def models(serving: Serving) -> dict[str, Any]:
    """GET /v1/models."""
    known = serving.models
    cards = [_card(serving, name, known.root, None, known.max_model_len) for name in known.names]
    cards += [_card(serving, name, path, known.names[0], None) for name, path in known.loras.items()]
    return {"object": "list", "data": cards}


def _card(serving: Serving, name: str, root: str, parent: str | None, length: int | None) -> dict[str, Any]:
    created = serving.models.created
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": length,
        "permission": [
            {
                "id": f"modelperm-{uuid.uuid4().hex}",
                "object": "model_permission",
                "created": created,
                "allow_create_engine": False,
                "allow_sampling": True,
                "allow_logprobs": True,
                "allow_search_indices": False,
                "allow_view": True,
                "allow_fine_tuning": False,
                "organization": "*",
                "group": None,
                "is_blocking": False,
            }
        ],
    }


async def load_lora(serving: Serving, http: web.Request) -> web.Response:
    """Add an adapter.

    Raises:
        ApiError: It lacks a name or path, has one that is taken, or there may be none.
    """
    wanted = read(await body(http), _LOAD)
    loras = serving.models.loras
    if not wanted.lora_name or not wanted.lora_path:
        raise ApiError("Both 'lora_name' and 'lora_path' must be provided.", kind="InvalidUserInput")
    if wanted.lora_name in serving.models.names:
        raise ApiError(
            f"The lora adapter '{wanted.lora_name}' conflicts with a base model name.",
            kind="InvalidUserInput",
        )
    if wanted.lora_name in loras and not wanted.load_inplace:
        raise ApiError(
            f"The lora adapter '{wanted.lora_name}' has already been loaded. If you want to load the adapter in place, "
            "set 'load_inplace' to True.",
            kind="InvalidUserInput",
        )
    if not serving.models.lora_enabled:
        raise ApiError("LoRA is not enabled. Use --enable-lora to enable LoRA.")
    loras[wanted.lora_name] = wanted.lora_path
    return web.Response(text=f"Success: LoRA adapter '{wanted.lora_name}' added successfully.")


async def unload_lora(serving: Serving, http: web.Request) -> web.Response:
    """Remove an adapter.

    Raises:
        ApiError: It has no name, or there is no such adapter.
    """
    wanted = read(await body(http), _UNLOAD)
    if not wanted.lora_name:
        raise ApiError("'lora_name' needs to be provided to unload a LoRA adapter.", kind="InvalidUserInput")
    if wanted.lora_name not in serving.models.loras:
        raise not_found(f"The lora adapter '{wanted.lora_name}' cannot be found.", None)
    del serving.models.loras[wanted.lora_name]
    return web.Response(text=f"Success: LoRA adapter '{wanted.lora_name}' removed successfully.")


async def tokenize(serving: Serving, http: web.Request) -> web.Response:
    """The tokens of a prompt or of a chat, as generation would see them.

    Raises:
        ApiError: It has neither, or names a model that there is not.
    """
    wanted = read(await body(http), _TOKENIZE)
    serving.models.adapter(wanted.model)
    if isinstance(wanted, TokenizeText):
        tokens = encode(wanted.prompt)
    else:
        if wanted.continue_final_message and wanted.add_generation_prompt:
            raise ApiError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        chat = Conversation(
            wanted.messages,
            [tool.shown for tool in wanted.tools or ()],
            wanted.chat_template_kwargs,
            wanted.add_generation_prompt,
            wanted.continue_final_message,
        )
        tokens = chat_prompt(chat, serving.models.root)
    return answer(
        {
            "count": len(tokens),
            "max_model_len": serving.models.max_model_len,
            "tokens": tokens,
            "token_strs": [token_text(token) for token in tokens] if wanted.return_token_strs else None,
        }
    )


async def detokenize(serving: Serving, http: web.Request) -> web.Response:
    """The text of tokens.

    Raises:
        ApiError: It names a model that there is not.
    """
    wanted = read(await body(http), _DETOKENIZE)
    serving.models.adapter(wanted.model)
    return answer({"prompt": decode(wanted.tokens)})
