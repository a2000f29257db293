"""What released engines accept: flags, environment variables and configuration keys, as lists of each release.

`flags("vllm", "0.33.0").accepts("--port=8000")` tells whether that release's server would start with the argument.
The lists beside this file are made by `tests.engine_flags.extract`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent


class Takes(StrEnum):
    """How many values follow a flag."""

    NONE = "none"
    OPTIONAL = "optional"
    ONE = "one"
    MANY = "many"
    JSON = "json"
    """One, and vLLM's dotted form (`--kv-transfer-config.kv_role kv_both`) reaches into it."""


@dataclass(frozen=True)
class Flag:
    """A flag of an engine's server.

    Attributes:
        name: Its first name.
        takes: How many values follow.
        aliases: Its other names, `--no-x` included.
        choices: The values that it accepts; None if others may be.
        default: Its value where nobody sets it, as far as it is plain data.
    """

    name: str
    takes: Takes
    aliases: tuple[str, ...] = ()
    choices: tuple[str | int, ...] | None = None
    default: str | float | bool | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the flag."""
        return (self.name, *self.aliases)

    def takes_value(self, value: str) -> bool:
        """Whether a value may follow the flag."""
        if self.takes is Takes.NONE:
            return False
        return self.choices is None or value in map(str, self.choices)

    def to_json(self) -> dict[str, Any]:
        """What the list says of the flag; what is usual is left out."""
        content: dict[str, Any] = {"takes": str(self.takes)}
        if self.aliases:
            content["aliases"] = list(self.aliases)
        if self.choices is not None:
            content["choices"] = list(self.choices)
        if self.default is not None:
            content["default"] = self.default
        return content

    @classmethod
    def from_json(cls, name: str, content: Mapping[str, Any]) -> Flag:
        """The flag of one line of a list."""
        choices = content.get("choices")
        return cls(
            name=name,
            takes=Takes(content["takes"]),
            aliases=tuple(content.get("aliases", ())),
            choices=None if choices is None else tuple(choices),
            default=content.get("default"),
        )


@dataclass(frozen=True)
class FlagList:
    """What one release of an engine accepts.

    Attributes:
        engine: `vllm`, `sglang` or `trtllm`.
        version: Of the release.
        source: What the list was made from.
        flags: By first name.
        environment: Variables that the engine reads.
        extra: The other lists of that engine, such as `kv_connectors`.
    """

    engine: str
    version: str
    source: str
    flags: Mapping[str, Flag]
    environment: frozenset[str]
    extra: Mapping[str, Any] = field(default_factory=dict)

    def accepts(self, argument: str) -> bool:
        """Whether the engine's parser takes an argument that stands alone.

        A shortened name that the parser would complete counts as unknown: the next release may complete it
        differently.

        Args:
            argument: `--x`, `--x=v` or `--x v`.

        Returns:
            Whether the flag exists and takes what it is given: a value, one of its choices, or nothing.
        """
        name, separator, value = re.fullmatch(r"([^=\s]*)([=\s]?)(.*)", argument, re.DOTALL).groups()  # type: ignore[union-attr]
        flag = self._flag(name)
        if flag is None:
            return False
        if not separator:
            return flag.takes in {Takes.NONE, Takes.OPTIONAL}
        return flag.takes_value(value)

    def refused(self, arguments: Sequence[str]) -> list[str]:
        """The arguments of a command line that the engine's parser would stop at.

        Args:
            arguments: As in a container's `args`; a value may be an argument of its own, and words before the
                first flag are positional.

        Returns:
            Those that are unknown, lack a value or have a wrong one.
        """
        complete: list[str] = []
        for argument in arguments:
            flag = self._flag(complete[-1]) if complete else None
            if argument.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", argument):
                complete.append(argument)
            elif flag and flag.takes is not Takes.NONE:
                complete[-1] += f"={argument}"
            elif complete:
                # A flag of many values has had its first one.
                many = self._flag(complete[-1].partition("=")[0])
                if many is None or many.takes is not Takes.MANY or not many.takes_value(argument):
                    complete.append(argument)
        return [argument for argument in complete if not self.accepts(argument)]

    def reads(self, name: str) -> bool:
        """Whether the engine reads an environment variable."""
        return name in self.environment

    def unknown_options(self, options: Mapping[str, Any], under: str = "") -> list[str]:
        """The keys of a configuration file that TensorRT-LLM would stop at.

        Args:
            options: What the file sets.
            under: The dotted name of the section that it stands in.

        Returns:
            Dotted names. Nothing is said about the inside of a section that the list does not describe.
        """
        known: Mapping[str, Any] = self.extra["options"]
        unknown: list[str] = []
        for key, value in options.items():
            name = f"{under}{key}"
            if name not in known:
                unknown.append(name)
            elif isinstance(value, Mapping) and known[name].get("section") == "described":
                unknown += self.unknown_options(value, f"{name}.")
            elif (choices := known[name].get("choices")) and value not in choices:
                unknown.append(f"{name}: {value}")
        return unknown

    def _flag(self, name: str) -> Flag | None:
        if self.engine == "vllm" and name.startswith("--"):
            # vLLM's parser takes underscores for dashes in a name, but not in the keys behind its first dot.
            name, dot, _keys = name.partition(".")
            flag = self._by_name.get(name.replace("_", "-"))
            return flag if not dot or (flag and flag.takes is Takes.JSON) else None
        return self._by_name.get(name)

    @property
    def _by_name(self) -> dict[str, Flag]:
        return {name: flag for flag in self.flags.values() for name in flag.names}


@cache
def flags(engine: str, version: str) -> FlagList:
    """The list of a release.

    Args:
        engine: `vllm`, `sglang` or `trtllm`.
        version: Of a release that has a list here.

    Returns:
        The list.
    """
    content = json.loads(path(engine, version).read_text())
    return FlagList(
        engine=content.pop("engine"),
        version=content.pop("version"),
        source=content.pop("source"),
        flags={name: Flag.from_json(name, line) for name, line in content.pop("flags").items()},
        environment=frozenset(content.pop("environment")),
        extra=content,
    )


def path(engine: str, version: str) -> Path:
    """Where the list of a release is kept."""
    return FOLDER / f"{engine}-{version}.json"


def releases(engine: str) -> list[str]:
    """The versions of an engine that have a list, oldest first."""
    found = [file.stem.removeprefix(f"{engine}-") for file in FOLDER.glob(f"{engine}-*.json")]
    return sorted(found, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])
