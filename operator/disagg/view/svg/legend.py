"""What letters and colours mean: groups in columns, below them what is no group's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from disagg.api.names import ENGINE_ROLES
from disagg.view.picture import GroupView, Picture
from disagg.view.signs import group_name, letter, places, waiting
from disagg.view.svg.layout import MARGIN
from disagg.view.svg.shapes import CELL, SANS, SIZE, fill, outline, rect, text

_LINE: Final = 26
_ROLE: Final = 92
_ROLES: Final = _ROLE * len(ENGINE_ROLES) + 8
_BETWEEN: Final = 30
_LETTER: Final = SIZE * SANS


@dataclass(frozen=True)
class Legend:
    """The legend of a picture."""

    picture: Picture

    @property
    def width(self) -> float:
        """Width of its widest entry."""
        places = max((len(_rest(group)) for group in self.picture.groups), default=0)
        return _ROLES + self._names + places * _LETTER

    @property
    def _names(self) -> float:
        return max((len(group_name(group.key)) for group in self.picture.groups), default=0) * _LETTER + 16

    def height(self, width: float) -> float:
        """Height in a picture of this width."""
        return (self._rows(width) + 1) * _LINE

    def _rows(self, width: float) -> int:
        columns = max(1, int((width - 2 * MARGIN + _BETWEEN) // (self.width + _BETWEEN)))
        return math.ceil(len(self.picture.groups) / columns)

    def draw(self, root: ET.Element, top: float, width: float) -> None:
        """Draw it."""
        rows = self._rows(width)
        for index, group in enumerate(self.picture.groups):
            column, row = divmod(index, rows)
            self._entry(root, group, MARGIN + column * (self.width + _BETWEEN), top + row * _LINE)
        self._rest(root, top + rows * _LINE)

    def _entry(self, root: ET.Element, group: GroupView, x: float, y: float) -> None:
        for place, role in enumerate(ENGINE_ROLES):
            left, name = x + place * _ROLE, fill(group.number, role)
            rect(root, left, y, CELL, CELL, name)
            text(root, left + CELL / 2, y + 11, letter(group.number, role), f"sign {name}-ink")
            text(root, left + CELL + 6, y + 12, f"{role} {group.used[role]}", "quiet")
        warns = len(group.domains) > 1 or bool(waiting(group))
        text(root, x + _ROLES, y + 12, group_name(group.key), "text")
        text(root, x + _ROLES + self._names, y + 12, _rest(group), "warn" if warns else "quiet")

    def _rest(self, root: ET.Element, y: float) -> None:
        picture, x = self.picture, float(MARGIN)
        meanings = {
            "other": f"other pods {picture.foreign}",
            "free": f"free {picture.free}",
            "unused": f"unused on nodes that take no pods {picture.out_of_reach}",
        }
        for name, meaning in meanings.items():
            if name == "unused" and not picture.out_of_reach:
                continue
            if name == "other":
                rect(root, x, y, CELL, CELL, name)
            else:
                outline(root, x, y, name)
            text(root, x + CELL + 6, y + 12, meaning, "quiet")
            x += CELL + 30 + len(meaning) * _LETTER


def _rest(group: GroupView) -> str:
    return "; ".join(part for part in (places(group), waiting(group)) if part)
