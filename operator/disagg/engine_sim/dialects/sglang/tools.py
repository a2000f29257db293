"""Tool calls that an answer must be."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import orjson

from disagg.engine_sim.dialects.sglang.calls import Chat
from disagg.engine_sim.dialects.sglang.errors import SglangError
from disagg.engine_sim.text import words


def forced(call: Chat) -> dict[str, Any] | None:
    """The tool that an answer must call; None if it must not.

    Raises:
        SglangError: There is no such tool.
    """
    functions = [tool.get("function", {}) for tool in call.tools or []]
    choice = call.tool_choice
    if isinstance(choice, str):
        if choice.lower() != "required":
            return None
        if not functions:
            raise SglangError(
                "Tools cannot be empty if tool choice is set to required.", kind="BadRequestError"
            )
        return dict(functions[0])
    if choice is None:
        return None
    if not functions:
        raise SglangError(
            "Tools cannot be empty if tool choice is set to a specific tool.", kind="BadRequestError"
        )
    name = (choice.get("function") or {}).get("name")
    for function in functions:
        if function.get("name") == name:
            return dict(function)
    raise SglangError(f"Tool '{name}' not found in tools list.", kind="BadRequestError")


def script(call: Chat, tool: dict[str, Any] | None) -> Callable[[bytes], str] | None:
    """Text that an answer must be: a tool call, or some JSON; None if it is free."""
    if tool is not None:
        parameters = tool.get("parameters", {}).get("properties", {})
        names = list(parameters) if isinstance(parameters, dict) else []
        return lambda state: orjson.dumps(
            [
                {
                    "name": tool.get("name"),
                    "parameters": {each: words(state + each.encode(), 2) for each in names},
                }
            ]
        ).decode()
    if (call.response_format or {}).get("type") in {"json_object", "json_schema"}:
        return lambda state: '{"answer": "' + words(state, 5) + '"}'
    return None


def tool_calls(text: str) -> list[dict[str, Any]] | None:
    """The calls that a text is; None if it was cut before it was any."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return [
        {
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "index": index,
            "type": "function",
            "function": {"name": each["name"], "arguments": orjson.dumps(each["parameters"]).decode()},
        }
        for index, each in enumerate(found)
    ]
