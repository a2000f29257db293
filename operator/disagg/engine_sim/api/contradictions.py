"""What vLLM looks at in a body before it looks at types, in its order."""

from __future__ import annotations

from typing import Any

from disagg.engine_sim.api.errors import ApiError, internal_error, refused

_MAX_PROMPTS = 1024
_MAX_SALT = 128
_USAGE = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'


def check_completion_body(body: dict[str, Any]) -> None:
    """Refuse a completion's body that can't be.

    Raises:
        ApiError: It can't.
    """
    prompt, embeds = body.get("prompt"), body.get("prompt_embeds")
    if isinstance(prompt, list) and len(prompt) > _MAX_PROMPTS and not _integers(prompt):
        raise refused(
            f"prompt list length {len(prompt)} exceeds the maximum allowed count of {_MAX_PROMPTS}. To increase this "
            "limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable.",
            param="prompt",
        )
    if prompt in (None, "") and embeds in (None, []):
        raise refused("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    _check_stream_options(body)
    _check_completion_logprobs(body)
    _check_logprobs(body, "logprobs")
    _check_outputs(body, "structured_outputs")
    _check_format(body)
    _check_salt(body)
    if body.get("max_tokens") is None:
        # As if it had not been said.
        body.pop("max_tokens", None)


def check_chat_body(body: dict[str, Any]) -> None:
    """Refuse a chat's body that can't be.

    Raises:
        ApiError: It can't.
    """
    messages = body.get("messages", [])
    if not isinstance(messages, (list, str, dict)):
        raise ApiError(f"'{type(messages).__name__}' object is not iterable")
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise ApiError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    _check_tools(body)
    _check_outputs(body, None)
    _check_chat_logprobs(body)
    _check_stream_options(body)
    _check_format(body)
    _check_messages(messages)
    _check_salt(body)


def _integers(values: list[Any]) -> bool:
    return all(isinstance(value, int) for value in values)


def _check_stream_options(body: dict[str, Any]) -> None:
    if body.get("stream_options") and not body.get("stream"):
        raise refused("Stream options can only be defined when `stream=True`.", param="stream_options")


def _check_completion_logprobs(body: dict[str, Any]) -> None:
    if not body.get("logprob_token_ids"):
        return
    param = "logprob_token_ids"
    if body.get("use_beam_search"):
        raise refused("`logprob_token_ids` is not supported with beam search.", param=param)
    if body.get("echo") and body.get("max_tokens") == 0:
        raise refused(
            "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no output tokens are "
            "generated.",
            param=param,
        )
    if body.get("logprobs") is None:
        raise refused("when using `logprob_token_ids`, `logprobs` must be set.", param=param)


def _check_chat_logprobs(body: dict[str, Any]) -> None:
    if body.get("logprob_token_ids"):
        param = "logprob_token_ids"
        if body.get("use_beam_search"):
            raise refused("`logprob_token_ids` is not supported with beam search.", param=param)
        if not body.get("logprobs"):
            raise refused("when using `logprob_token_ids`, `logprobs` must be set to true.", param=param)
    _check_logprobs(body, "top_logprobs")
    wanted = body.get("top_logprobs")
    if wanted is not None and (wanted == -1 or wanted > 0) and not body.get("logprobs"):
        raise refused("when using `top_logprobs`, `logprobs` must be set to true.", param="top_logprobs")


def _check_logprobs(body: dict[str, Any], name: str) -> None:
    for field in ("prompt_logprobs", name):
        value = body.get(field)
        if value is not None and not isinstance(value, (int, float)):
            raise refused(f"`{field}` must be an integer.", param=field, value=value)
    wanted = body.get("prompt_logprobs")
    if wanted is not None and body.get("stream") and (wanted > 0 or wanted == -1):
        raise refused("`prompt_logprobs` are not available when `stream=True`.", param="prompt_logprobs")
    for field in ("prompt_logprobs", name):
        value = body.get(field)
        if value is not None and value < 0 and value != -1:
            raise refused(f"`{field}` must be a positive value or -1.", param=field, value=value)


def _check_outputs(body: dict[str, Any], param: str | None) -> None:
    outputs = body.get("structured_outputs")
    if outputs is None:
        return
    if not isinstance(outputs, dict):
        # A defect of the real one's.
        raise internal_error(f"'{type(outputs).__name__}' object has no attribute 'get'")
    count = sum(outputs.get(kind) is not None for kind in ("json", "regex", "choice"))
    if count > 1:
        raise refused(
            "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').",
            param=param,
        )
    if count and isinstance(body.get("tool_choice"), dict):
        raise ApiError("You can only either use constraints for structured outputs or tools, not both.")
    if outputs.get("structural_tag") in {"", "{}"}:
        raise refused("Invalid structured_outputs structural_tag specification.", param="structured_outputs")


def _check_format(body: dict[str, Any]) -> None:
    wanted = body.get("response_format")
    if not isinstance(wanted, dict):
        return
    kind = wanted.get("type")
    if kind == "json_schema" and wanted.get("json_schema") is None:
        raise refused(
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
            param="response_format",
        )
    if kind == "structural_tag" and not (
        isinstance(wanted.get("format"), dict) and isinstance(wanted["format"].get("type"), str)
    ):
        structures = wanted.get("structures")
        if not (isinstance(structures, list) and structures and wanted.get("triggers")):
            raise refused("Invalid response_format structural_tag specification.", param="response_format")


def _check_salt(body: dict[str, Any]) -> None:
    salt = body.get("cache_salt")
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise refused("Parameter 'cache_salt' must be a non-empty string if provided.", param="cache_salt")
    if len(salt) > _MAX_SALT or set(salt) & set("@/\\\0"):
        raise refused(
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL.",
            param="cache_salt",
        )


def _check_tools(body: dict[str, Any]) -> None:
    tools = body.get("tools")
    if tools == []:
        raise refused(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
            param="tools",
        )
    if "tool_choice" not in body and tools:
        body["tool_choice"] = "auto"
    choice = body.get("tool_choice")
    if choice is None or choice == "none":
        return
    if tools is None:
        raise refused("When using `tool_choice`, `tools` must be set.", param="tool_choice")
    if isinstance(choice, dict):
        _check_named(choice, tools)
    elif choice not in ("auto", "required"):
        raise refused(
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.',
            param="tool_choice",
        )


def _check_named(choice: dict[str, Any], tools: Any) -> None:  # noqa: ANN401 - not yet looked at
    function = choice.get("function")
    if not isinstance(function, dict):
        raise refused(
            f"Invalid value for `function`: `{function}` in `tool_choice`! {_USAGE}",
            param="tool_choice.function",
        )
    param = "tool_choice.function.name"
    if "name" not in function:
        raise refused(f"Expected field `name` in `function` in `tool_choice`! {_USAGE}", param=param)
    name = function["name"]
    if not isinstance(name, str) or not name:
        raise refused(f"Invalid `name` in `function`: `{name}` in `tool_choice`! {_USAGE}", param=param)
    try:
        known = any(tool["function"]["name"] == name for tool in tools)
    except KeyError as error:
        # A defect of the real one's.
        raise internal_error(str(error)) from error
    except TypeError as error:
        raise ApiError(str(error)) from error
    if not known:
        raise refused(
            "The tool specified in `tool_choice` does not match any of the specified `tools`",
            param="tool_choice",
        )


def _check_messages(messages: Any) -> None:  # noqa: ANN401 - not yet looked at
    if not isinstance(messages, list):
        return
    for message in messages:
        if not isinstance(message, dict):
            continue
        calls = message.get("tool_calls")
        if calls is not None and not isinstance(calls, (list, str, dict)):
            raise ApiError(f"'{type(calls).__name__}' object is not iterable")
        if isinstance(calls, (str, dict)):
            message["tool_calls"] = list(calls)
