"""What vLLM looks at in values of requests whose types are right.

`check_values` is what it says before a stream begins; `check_model` comes from the engine, in a stream as its first event.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from disagg.engine_sim.api.errors import ApiError, refused
from disagg.engine_sim.api.parts import ResponseFormat, StructuredOutputsParams
from disagg.engine_sim.api.protocol import Common
from disagg.engine_sim.request import MAX_SAMPLES
from disagg.engine_sim.text import VOCABULARY

_MAX_BAD_WORDS = 128
_MAX_TEMPERATURE = 2.0


def check_values(request: Common, max_tokens: int) -> None:
    """Refuse values that sampling can't have.

    Args:
        request: The request.
        max_tokens: Tokens that its answer may have.

    Raises:
        ApiError: There is one.
    """
    _check_samples(request)
    if request.use_beam_search:
        return
    _check_schema(request)
    _check_bias(request)
    _check_integers(request.kv_transfer_params, request.vllm_xargs)
    _check_penalties(request)
    _check_temperature(request)
    _check_lengths(request, max_tokens)
    if any(not each for each in request.stops):
        raise ApiError("stop cannot contain an empty string.")
    if any(not each for each in request.bad_words):
        raise ApiError(f"bad_words cannot contain an empty string. Got bad_words={request.bad_words}")
    if request.choices > 1 and request.temperature == 0:
        raise ApiError(f"n must be 1 when using greedy sampling, got {request.choices}.")


def check_model(request: Common, most: int) -> None:
    """Refuse values that the model, or the engine as it was started, can't have.

    Args:
        request: The request.
        most: Log probabilities that the engine gives; -1 for all.

    Raises:
        ApiError: There is one.
    """
    if request.use_beam_search:
        return
    ids = request.logprob_token_ids
    _check_logprobs("sample", None if ids else request.alternatives, most)
    if ids:
        _check_known("logprob_token_ids", ids)
    _check_logprobs("prompt", request.of_prompt, most)
    _check_known("logit_bias", [int(token) for token in request.logit_bias or {}])
    _check_known("stop_token_ids", request.stop_token_ids or ())
    allowed = request.allowed_token_ids
    if allowed is not None:
        if not allowed:
            raise ApiError(
                "allowed_token_ids is not None and empty! (parameter=allowed_token_ids, value=[])",
                param="allowed_token_ids",
            )
        if strangers := _strangers(allowed):
            raise refused(
                "allowed_token_ids contains out-of-vocab token id!",
                param="allowed_token_ids",
                value=strangers,
            )
    _check_outputs(request.structured_outputs)
    if request.thinking_token_budget is not None:
        raise ApiError(
            "thinking_token_budget is set but reasoning_config is not configured. Please set --reasoning-parser and/or "
            "--reasoning-config to use thinking_token_budget."
        )
    if len(request.bad_words) > _MAX_BAD_WORDS:
        raise refused(
            f"Too many bad words after tokenization: {_MAX_BAD_WORDS + 1}. The max number is {_MAX_BAD_WORDS}.",
            param="bad_words",
            value=list(dict.fromkeys(request.bad_words)),
        )


def _check_schema(request: Common) -> None:
    wanted = request.response_format
    if isinstance(wanted, ResponseFormat) and wanted.json_schema and wanted.json_schema.json_schema is None:
        StructuredOutputsParams()


def _check_samples(request: Common) -> None:
    name = "beam_width" if request.use_beam_search else "n"
    count = request.choices
    if count < 1:
        raise ApiError(f"{name} must be at least 1, got {count}.")
    if count > MAX_SAMPLES:
        raise ApiError(
            f"{name} must be at most {MAX_SAMPLES}, got {count}. To increase this limit, set the "
            "VLLM_MAX_N_SEQUENCES environment variable."
        )


def _check_integers(*extras: object) -> None:
    """Integers of what goes to the engine as it is must fit into its messages."""
    pending = list(extras)
    while pending:
        value = pending.pop()
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise refused("extra_args integers must be between -2**63 and 2**64 - 1.", param="extra_args")
        if isinstance(value, dict):
            pending += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            pending += value


def _check_penalties(request: Common) -> None:
    for name, value in (
        ("presence_penalty", request.presence_penalty),
        ("frequency_penalty", request.frequency_penalty),
    ):
        if value is not None and not -2 <= value <= 2:  # noqa: PLR2004 - OpenAI's
            raise ApiError(f"{name} must be in [-2, 2], got {value}.")
    repetition = request.repetition_penalty
    if repetition is None:
        return
    if not math.isfinite(repetition):
        raise ApiError(f"repetition_penalty must be a finite number, got {repetition}.")
    if repetition <= 0:
        raise ApiError(f"repetition_penalty must be greater than zero, got {repetition}.")


def _check_temperature(request: Common) -> None:
    temperature = request.temperature
    if temperature is not None:
        wrong = ""
        if not math.isfinite(temperature):
            wrong = "a finite number"
        elif temperature < 0:
            wrong = "non-negative"
        elif temperature > _MAX_TEMPERATURE:
            wrong = "in [0, 2]"
        if wrong:
            raise refused(
                f"temperature must be {wrong}, got {temperature}.", param="temperature", value=temperature
            )
    if request.top_p is not None and not 0 < request.top_p <= 1:
        raise refused(f"top_p must be in (0, 1], got {request.top_p}.", param="top_p", value=request.top_p)
    if request.top_k is not None and request.top_k < -1:
        raise ApiError(f"top_k must be 0 (disable), or at least 1, got {request.top_k}.")
    if request.min_p is not None and not 0 <= request.min_p <= 1:
        raise ApiError(f"min_p must be in [0, 1], got {request.min_p}.")


def _check_lengths(request: Common, max_tokens: int) -> None:
    least = request.min_tokens
    if max_tokens < 1:
        raise refused(
            f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens", value=max_tokens
        )
    if least < 0:
        raise ApiError(f"min_tokens must be greater than or equal to 0, got {least}.")
    if least > max_tokens:
        raise ApiError(f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {least}.")


def _check_outputs(outputs: StructuredOutputsParams | None) -> None:
    if outputs is None:
        return
    if outputs.choice is not None and not outputs.choice:
        raise ApiError("Choice '[]' cannot be an empty list")
    for name, value in (("grammar", outputs.grammar), ("json", outputs.json)):
        if isinstance(value, str) and not value.strip():
            raise ApiError(f"structured_outputs.{name} cannot be an empty string")
    if isinstance(outputs.json, str):
        try:
            json.loads(outputs.json)
        except ValueError as error:
            raise ApiError("Invalid JSON grammar specification.") from error
    if outputs.json_object is False:
        raise ApiError(
            "structured_outputs.json_object must be True if set; omit structured_outputs to disable structured outputs"
        )
    if outputs.regex and "\0" in outputs.regex:
        raise ApiError("structured_outputs.regex must not contain a NUL character ('\\x00')")


def _check_logprobs(kind: str, wanted: int | None, most: int) -> None:
    if not wanted:
        return
    wanted = VOCABULARY if wanted == -1 else wanted
    most = VOCABULARY if most == -1 else most
    if wanted > most:
        raise refused(
            f"Requested {kind} logprobs of {wanted}, which is greater than max allowed: {most}",
            param="logprobs" if kind == "sample" else "prompt_logprobs",
            value=wanted,
        )


def _check_bias(request: Common) -> None:
    wrong = [token for token in request.logit_bias or {} if not _is_integer(token)]
    if wrong:
        raise refused(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: {wrong!r}",
            param="logit_bias",
            value=wrong,
        )


def _is_integer(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _strangers(tokens: Iterable[int]) -> list[int]:
    return [token for token in tokens if not 0 <= token < VOCABULARY]


def _check_known(name: str, tokens: Iterable[int]) -> None:
    if strangers := _strangers(tokens):
        raise refused(
            f"token_id(s) {strangers} in {name} contain out-of-vocab token ids. Vocabulary size: {VOCABULARY}",
            param=name,
            value=strangers,
        )
