"""What a command line says of a few flags, as an engine's own parser would read it.

The operator writes the first arguments of an engine and the user the last ones, also in an overlay of the pod template.
What the two say together is read here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

_NAME = re.compile(r"(--?[A-Za-z][\w-]*)(.*)", re.DOTALL)


def flags(args: Sequence[str], *names: str, aliases: Mapping[str, str] | None = None) -> dict[str, str]:
    """The last value of each named flag that is there.

    A switch has the value "true", its negation `--no-NAME` the value "false". `--x=v` and `--x v` are the same, and so are
    `--x_y` and `--x-y`: vLLM and SGLang read both, TensorRT-LLM has one of them only. What follows a switch without an
    equals sign and without a dash is taken for its value.

    Args:
        args: A container's arguments.
        names: Long names, such as `--kv-cache-dtype`.
        aliases: Another name -> one of `names`, such as `-tp` -> `--tensor-parallel-size`.

    Returns:
        Name, as asked for -> value.
    """
    return dict(_flags(tuple(args), names, tuple((aliases or {}).items())))


@lru_cache(maxsize=1024)
def _flags(
    args: tuple[str, ...], names: tuple[str, ...], aliases: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """The same. The pods of a resource are read in each pass over it, and a parser takes a millisecond to make."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in names:
        dashed = _dashed(name)
        parser.add_argument(
            dashed, f"--no-{dashed[2:]}", dest=name, nargs="?", action=_Last, default=argparse.SUPPRESS
        )
    other = {_dashed(alias): _dashed(name) for alias, name in aliases}
    found, _ = parser.parse_known_args([_renamed(arg, other) for arg in args])
    return {name: value for name, value in vars(found).items() if name in names}


class _Last(argparse.Action):
    """Keeps the last value. A flag without one is a switch."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 - argparse's own signature
        option_string: str | None = None,
    ) -> None:
        del parser
        if option_string != self.option_strings[0]:
            values = "false"
        setattr(namespace, self.dest, "true" if values is None else values)


def _renamed(arg: str, other: Mapping[str, str]) -> str:
    """An argument with dashes in its name, which is the long one."""
    if (found := _NAME.fullmatch(arg)) is None:
        return arg
    name, rest = _dashed(found[1]), found[2]
    return other.get(name, name) + rest


def _dashed(name: str) -> str:
    return name.replace("_", "-")
