"""Answers that must be something: a call of a tool, or JSON."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import orjson

from disagg.engine_sim.api.answers import Answer
from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.api.parts import Function, NamedTool
from disagg.engine_sim.api.protocol import ChatRequest, Common
from disagg.engine_sim.text import words


def forced_tool(call: Common) -> str | None:
    """The tool that the answer must call; an empty name for any."""
    if not isinstance(call, ChatRequest) or call.tool_choice is None:
        return None
    if isinstance(call.tool_choice, NamedTool):
        return call.tool_choice.function.name
    return "" if call.tool_choice == "required" else None


def script(call: Common) -> Callable[[bytes], str] | None:
    """Text that the answer must be: the arguments of a tool, or some JSON."""
    name = forced_tool(call)
    if name is not None and isinstance(call, ChatRequest):
        tools = [tool.function for tool in call.tools or []]
        tool = next((each for each in tools if each.name == name), tools[0])
        return lambda state: _tool_call(tool, state, named=bool(name) or bool(call.stream))
    if call.wants_json:
        return lambda state: '{"answer": "' + words(state, 5) + '"}'
    return None


def _tool_call(tool: Function, state: bytes, *, named: bool) -> str:
    parameters = (tool.parameters or {}).get("properties", {})
    arguments = ", ".join(
        f'{json.dumps(key)}: "{words(state + json.dumps(key).encode(), 2)}"'
        for key in (parameters if isinstance(parameters, dict) else {})
    )
    if named:
        return "{" + arguments + "}"
    return '[{"name": ' + json.dumps(tool.name) + ', "parameters": {' + arguments + "}}]"


def message_of(answer: Answer, tool: str | None, *, lenient: bool) -> dict[str, Any]:
    """The message of an answer and how it ended.

    Args:
        answer: The answer.
        tool: Tool that it had to call, an empty name for any; None if it had not to.
        lenient: Whether a call that was cut is no error.

    Raises:
        ApiError: It had to call a tool and was cut before it had.
    """
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.text,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "tool_calls": [],
        "reasoning": None,
    }
    if tool is None or answer.finish_reason == "abort":
        return {"message": message, "finish_reason": answer.finish_reason}
    try:
        found = orjson.loads(answer.text)
    except orjson.JSONDecodeError as error:
        if lenient:
            # A piece of a call is words like others.
            return {"message": message, "finish_reason": answer.finish_reason}
        # What the real one says of a forced tool call that max_tokens has cut.
        raise ApiError(
            f"Invalid JSON: EOF while parsing a value: {error}", status=500, kind="InternalServerError"
        ) from error
    calls = [{"name": tool, "parameters": found}] if tool else found
    message["content"] = ""
    message["tool_calls"] = [_call(each["name"], orjson.dumps(each["parameters"]).decode()) for each in calls]
    return {"message": message, "finish_reason": "stop" if tool else "tool_calls"}


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-tool-{uuid.uuid4().hex}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def delta_of(index: int, text: str, tool: str, call: ChatRequest, started: set[int]) -> dict[str, Any]:
    """A piece of a tool call. For any tool, the whole of what is said is its arguments, as the client sees it."""
    function: dict[str, Any] = {"arguments": text}
    piece: dict[str, Any] = {"index": 0, "function": function}
    if index not in started:
        started.add(index)
        name = tool or (call.tools[0].function.name if call.tools else None)
        piece = {"id": f"chatcmpl-tool-{uuid.uuid4().hex}", "type": "function", **piece}
        piece["function"] = {"name": name, **function}
    return {"tool_calls": [piece]}
