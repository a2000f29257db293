#!/usr/bin/env python3
"""Writes the table of values into the chart's README.

The table is made from `values.yaml`: a comment that begins with `# --`, right above a key, describes that key with all
that is below it. A key that no such comment describes, itself or through a parent, is refused.

    python .ci/chart_readme.py            writes the table
    python .ci/chart_readme.py --check    fails if the table is not what it would write
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent.parent / "charts" / "disagg"
BEGIN = "<!-- values: made by .ci/chart_readme.py -->"
END = "<!-- end of values -->"
_MARK = "# --"


@dataclass(frozen=True)
class Value:
    """A row of the table.

    Attributes:
        path: Keys from the top, joined by dots.
        default: What `values.yaml` says.
        description: The comment.
    """

    path: str
    default: Any
    description: str


def described_values(text: str) -> list[Value]:
    """The values that the comments of `text` describe, in its order.

    Args:
        text: Content of a `values.yaml`.

    Raises:
        ValueError: A value has no description.
    """
    node = yaml.compose(text, yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("values.yaml is not a mapping")  # noqa: TRY004 - the content is wrong, not a type
    return list(_walk(node, yaml.safe_load(text), text.splitlines(), ""))


def table(values: list[Value]) -> str:
    """The values as a Markdown table."""
    rows = [
        f"| `{value.path}` | {_cell(value.description)} | `{_cell(json.dumps(value.default))}` |"
        for value in values
    ]
    return "\n".join(["| Value | Meaning | Default |", "|---|---|---|", *rows])


def with_table(readme: str, rows: str) -> str:
    """`readme` with `rows` between its markers.

    Raises:
        ValueError: It has no markers.
    """
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the README has no lines '{BEGIN}' and '{END}'")
    return f"{head}{BEGIN}\n{rows}\n{END}{tail}"


def _walk(node: yaml.Node, data: dict[str, Any], lines: list[str], parent: str) -> Iterator[Value]:
    for key, value in node.value:
        path = f"{parent}{key.value}"
        default = data[key.value]
        description = _comment_above(lines, key.start_mark.line)
        if description:
            yield Value(path, default, description)
        elif default and isinstance(default, dict):
            yield from _walk(value, default, lines, f"{path}.")
        else:
            raise ValueError(f"values.yaml: {path} has no comment '{_MARK} ...' right above it")


def _comment_above(lines: list[str], line: int) -> str:
    """The comment that ends right above `line`, from its mark on. Empty if there is none."""
    comment: list[str] = []
    for above in reversed(lines[:line]):
        text = above.strip()
        if text.startswith(_MARK):
            return " ".join([text.removeprefix(_MARK).strip(), *comment])
        if not text.startswith("#"):
            break
        comment.insert(0, text.removeprefix("#").strip())
    return ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Writes or checks the README. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Write the table of values into the chart's README.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing, fail if the table is not up to date"
    )
    parser.add_argument("--chart", type=Path, default=CHART, help="folder of the chart")
    arguments = parser.parse_args()
    readme: Path = arguments.chart / "README.md"
    present = readme.read_text()
    try:
        wanted = with_table(present, table(described_values((arguments.chart / "values.yaml").read_text())))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if arguments.check and present != wanted:
        sys.stderr.write(f"{readme}: the table of values is out of date, run {Path(__file__).name}\n")
        return 1
    if present != wanted:
        readme.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
