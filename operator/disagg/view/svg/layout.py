"""Where everything stands in the SVG: domains are cards of one width, in a row or several for each wider domain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from disagg.view.picture import DomainView, NodeView, Picture
from disagg.view.signs import IN_A_LINE, domain_name, node_note, room
from disagg.view.svg.shapes import LINE, MONO, MONO_SIZE, NAME_SIZE, SANS, SECTION_SIZE, SIZE, STEP

MARGIN: Final = 28
EDGE: Final = 14
"""Between the border of a card and what is in it."""
CARD_HEAD: Final = 40
HEAD: Final = 78
_GAP: Final = 14
_CARD_FOOT: Final = 10
_SECTION_HEAD: Final = 26
_SHAPE: Final = 1.6
"""Width to height that the picture tries to have: that of a screen or a slide."""


@dataclass(frozen=True)
class Form:
    """Measures that all cards share.

    Attributes:
        names: What nodes are called here.
        cells: Where the accelerators begin.
        width: Width of a card.
        lines: Lines that a node takes, by its name.
    """

    names: Mapping[str, str]
    cells: float
    width: float
    lines: Mapping[str, int]

    @classmethod
    def of(cls, picture: Picture) -> Form:
        """The measures with which all of a picture can be read."""
        nodes = [node for domain in picture.domains for node in domain.nodes]
        names = picture.names.short
        cells = round(EDGE + _widest(names.values()) * MONO_SIZE * MONO + 8)
        across = min(max(map(_number, nodes), default=0), IN_A_LINE) * STEP
        notes = _widest(map(node_note, nodes)) * MONO_SIZE * MONO + 6
        title = max(
            (
                len(domain_name(domain, picture)) * NAME_SIZE + len(room(domain)) * SIZE
                for domain in picture.domains
            ),
            default=0,
        )
        width = max(cells + across + notes + EDGE, title * SANS + 2 * EDGE + 24)
        lines = {node.name: -(-max(_number(node), 1) // IN_A_LINE) for node in nodes}
        return cls(names, cells, math.ceil(width), lines)

    def height(self, domain: DomainView) -> float:
        """Height of a card."""
        return CARD_HEAD + sum(self.lines[node.name] for node in domain.nodes) * LINE + _CARD_FOOT


@dataclass
class Section:
    """A wider domain, or what is in none.

    Attributes:
        name: Its name.
        domains: What is in it.
        columns: Cards side by side.
        x: Where it begins.
        y: As above.
    """

    name: str | None
    domains: list[DomainView]
    columns: int
    x: float = MARGIN
    y: float = HEAD

    def cards(self, form: Form) -> Iterable[tuple[DomainView, float, float]]:
        """Each domain with its place."""
        y = self.y + (_SECTION_HEAD if self.name is not None else 0)
        for start in range(0, len(self.domains), self.columns):
            row = self.domains[start : start + self.columns]
            for index, domain in enumerate(row):
                yield domain, self.x + index * (form.width + _GAP), y
            y += max(map(form.height, row)) + _GAP

    def right(self, form: Form) -> float:
        """Where it ends."""
        across = min(self.columns, len(self.domains)) * (form.width + _GAP) - _GAP
        return self.x + max(across, len(self.name or "") * SECTION_SIZE * SANS)

    def bottom(self, form: Form) -> float:
        """As above."""
        return max(y + form.height(domain) for domain, _, y in self.cards(form))


def arranged(picture: Picture, form: Form) -> list[Section]:
    """The sections with their places: side by side while there is room."""
    area = sum((form.width + _GAP) * (form.height(domain) + _GAP) for domain in picture.domains)
    columns = max(1, round(math.sqrt(area * _SHAPE) / (form.width + _GAP)))
    limit = MARGIN + columns * (form.width + _GAP)
    sections: list[Section] = []
    x, y, low = float(MARGIN), float(HEAD), float(HEAD)
    for name, domains in picture.sections():
        section = Section(name, domains, min(columns, len(domains)), x, y)
        if x > MARGIN and section.right(form) > limit:
            section.x, section.y = x, y = float(MARGIN), low
        low = max(low, section.bottom(form) + _GAP)
        x = section.right(form) + _GAP
        sections.append(section)
    return sections


def _widest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


def _number(node: NodeView) -> int:
    return max(node.total, node.used)
