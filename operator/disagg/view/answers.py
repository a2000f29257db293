"""Answers of `fits` as a table, and in words what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.table import Table
from rich.text import Text

from disagg.topology.capacity import HEADROOM_LIMIT
from disagg.view.fits import Answer
from disagg.view.signs import group_name

_GOOD, _BAD = Style(color="green"), Style(color="red")


def answers_table(answers: Sequence[Answer]) -> Table:
    """What rich prints."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in ("RESOURCE", "GROUP", "LEVEL", "DOMAIN", "FITS NOW", "AT MAX", "ROOM FOR MORE"):
        table.add_column(title, overflow="fold")
    for answer in answers:
        key = answer.group
        name = f"{key.namespace}/{key.name}"
        if answer.level is None:
            table.add_row(name, "-", "-", "any", "-", "-", "-")
            continue
        table.add_row(
            name,
            str(key.group),
            answer.level,
            answer.domain or "-",
            _word(good=answer.now),
            _word(good=answer.maximum),
            _room(answer),
        )
    return table


def notes(answers: Sequence[Answer]) -> list[str]:
    """What is to be said in words, a line each."""
    return [
        f"{group_name(answer.group)}: {answer.message}"
        if answer.level is not None
        else f"{answer.group.namespace}/{answer.group.name}: {answer.message}"
        for answer in answers
        if answer.message
    ]


def _word(*, good: bool) -> Text:
    return Text("yes", _GOOD) if good else Text("no", _BAD)


def _room(answer: Answer) -> str:
    if not answer.now:
        return "-"
    counts = (
        f"{count}{'+' if count >= HEADROOM_LIMIT else ''} {role}" for role, count in answer.headroom.items()
    )
    return " or ".join(counts)
