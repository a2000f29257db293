"""What values of flags of `vllm serve` may be, and the ways around the flags: a file, and keys of JSON by themselves."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from disagg.engine_sim.dialects import StartError
from disagg.engine_sim.dialects.vllm import flags
from disagg.engine_sim.dialects.vllm.kv_transfer import read_kv_transfer
from disagg.engine_sim.kv_events import EventsConfig

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_EVENTS = TypeAdapter(EventsConfig)


def reader_of(name: str, release: tuple[int, int]) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind
    """What a parser must be told of a flag with a value.

    Args:
        name: The flag.
        release: Of vLLM.
    """
    if name in flags.CHOICES:
        return {"choices": flags.CHOICES[name]}
    if name == "max-lora-rank" and release >= (0, 18):
        return {"type": int, "choices": flags.LORA_RANKS}
    if name in flags.INTEGERS:
        return {"type": int}
    if name in flags.FLOATS:
        return {"type": float}
    if name in flags.JSON:
        return {"type": _json}
    if name in flags.HUMAN:
        return {"type": _length if name == "max-model-len" else _human}
    if name == "kv-transfer-config":
        return {"type": _told(lambda text: read_kv_transfer(text, release))}
    if name == "kv-events-config":
        return {"type": _told(_events)}
    return {}


def expanded(arguments: Sequence[str]) -> list[str]:
    """A command line with names of flags as the parser knows them, and JSON for flags that are keys of it.

    Raises:
        StartError: It names a file that can't be read.
    """
    found: list[str] = []
    configs: dict[str, dict[str, Any]] = {}
    pending = [_level(_dashes(each)) for each in _with_file(list(arguments))]
    while pending:
        argument = pending.pop(0)
        name, equals, value = argument.partition("=")
        flag, dot, path = name.partition(".")
        if not (argument.startswith("--") and dot):
            found.append(argument)
            continue
        if not equals:
            value = pending.pop(0) if pending else ""
        _put(configs.setdefault(flag, {}), path.split("."), value)
    for flag, config in configs.items():
        found += [flag, json.dumps(config)]
    return found


def _with_file(arguments: list[str]) -> list[str]:
    """The arguments with those of a file before them, if there is one."""
    for index, argument in enumerate(arguments):
        name, equals, path = argument.partition("=")
        if name != "--config":
            continue
        rest = arguments[index + 1 :]
        if not equals:
            path, rest = (rest[0], rest[1:]) if rest else ("", rest)
        before = arguments[:index]
        model = before[:1] if before and not before[0].startswith("-") else []
        return model + _of_file(path) + before[len(model) :] + rest
    return arguments


def _of_file(path: str) -> list[str]:
    kind = Path(path).suffix[1:]
    if kind not in {"yaml", "yml"}:
        raise StartError(f"ValueError: Config file must be of a yaml/yml type. {kind} provided")
    try:
        config = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise StartError(f"FileNotFoundError: {error}") from error
    except yaml.YAMLError as error:
        raise StartError(str(error)) from error
    found: list[str] = []
    for key, value in (config or {}).items():
        if value is True:
            found.append(f"--{key}")
        elif isinstance(value, list):
            found += [f"--{key}", *map(str, value)]
        elif value is not False:
            found += [f"--{key}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return found


def _put(config: dict[str, Any], keys: list[str], text: str) -> None:
    *outer, last = keys
    for key in outer:
        config = config.setdefault(key.replace("-", "_"), {})
    try:
        config[last.replace("-", "_")] = json.loads(text)
    except ValueError:
        config[last.replace("-", "_")] = text


def _dashes(argument: str) -> str:
    """vLLM takes underscores in names of flags; in keys after a point they stay."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    flag, dot, key = name.partition(".")
    return flag.replace("_", "-") + dot + key + equals + value


def _level(argument: str) -> str:
    """-O and a level, or a key of the compilation's, is short."""
    if re.fullmatch(r"-O\d", argument):
        return f"--optimization-level={argument[2:]}"
    return argument.replace("-O.", "--compilation-config.", 1) if argument.startswith("-O.") else argument


def _length(text: str) -> int | None:
    return None if text in {"auto", "-1"} else _human(text)


def _human(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text)
    if match is None:
        return int(text)
    number, unit = match.groups()
    if unit in _DECIMAL:
        return int(float(number) * _DECIMAL[unit])
    if "." in number:
        raise argparse.ArgumentTypeError(
            f"Decimals are not allowed with binary suffixes like {unit}. Did you mean to use {number}{unit.lower()} instead?"
        )
    return int(number) * _BINARY[unit]


_human.__name__ = "human_readable_int"


def _json(text: str) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to JSON.") from error
    return text


def _told(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def reader(text: str) -> Any:  # noqa: ANN401 - JSON, or whatever is given
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return reader


def _events(text: str) -> EventsConfig:
    value = json.loads(text)
    if not isinstance(value, dict) or (unknown := set(value) - set(EventsConfig.__dataclass_fields__)):
        raise ValueError(
            f"Unexpected keyword argument in KVEventsConfig: {text if not isinstance(value, dict) else unknown}"
        )
    if value.get("publisher", "zmq") not in {"zmq", "null"}:
        raise ValueError(f"publisher: Input should be 'null' or 'zmq', not {value['publisher']!r}")
    try:
        config = _EVENTS.validate_python(value)
    except ValidationError as error:
        raise ValueError(str(error)) from error
    return EventsConfig(**{**vars(config), "topic": os.path.expandvars(config.topic)})
