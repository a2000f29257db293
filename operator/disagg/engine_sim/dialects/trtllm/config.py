"""The configuration file of `trtllm-serve`. It is strict: what it does not know keeps the engine from starting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from disagg.engine_sim.dialects import StartError
from disagg.engine_sim.dialects.trtllm import options

Release = tuple[int, int]


def load_yaml(path: str) -> dict[str, Any]:
    """The mapping in a file; an empty file holds an empty one.

    Raises:
        StartError: There is no such file, or it holds something else.
    """
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise StartError(f"FileNotFoundError: {error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StartError(f"yaml: {path}: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise StartError(f"TypeError: {path}: a mapping is expected")
    return content


def check(values: Mapping[str, Any], release: Release) -> None:
    """Make sure that a release takes these options.

    Args:
        values: Content of the file.
        release: Of TensorRT-LLM.

    Raises:
        StartError: It does not.
    """
    wrong = [*_wrong(values, "", options.TOP, release)]
    for section, known in options.SECTIONS.items():
        inside = values.get(section)
        if isinstance(inside, Mapping):
            wrong += _wrong(inside, section + ".", known, release)
    if wrong:
        raise StartError(f"{len(wrong)} validation errors for TorchLlmArgs\n" + "\n".join(wrong))


def _wrong(values: Mapping[str, Any], before: str, known: frozenset[str], release: Release) -> Iterator[str]:
    for key, value in values.items():
        name = f"{before}{key}"
        listed = key in known or name in options.SINCE
        if not listed or release < options.SINCE.get(name, release):
            yield f"{name}\n  Extra inputs are not permitted [type=extra_forbidden, input_value={value!r}]"
        elif value is not None and (fault := _fault(name, value, release)):
            yield f"{name}\n  {fault}, input_value={value!r}"


def _fault(name: str, value: Any, release: Release) -> str | None:  # noqa: ANN401 - whatever the file holds
    if (name in options.SECTIONS or name in options.OPEN) and not isinstance(value, Mapping):
        return "Input should be a valid dictionary"
    choices = options.choices(name, release)
    if choices is not None and value not in choices:
        return f"Input should be {' or '.join(map(repr, choices))}"
    if name in options.BOOLEANS and not isinstance(value, bool):
        return "Input should be a valid boolean"
    least = 1 if name in options.INTEGERS else 0 if name in options.COUNTS else None
    if least is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        return "Input should be a valid integer"
    return f"Input should be greater than or equal to {least}" if value < least else None
