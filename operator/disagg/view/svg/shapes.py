"""What the SVG is made of: rectangles and texts, their styles for light and dark pages, and their measures."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree as ET

from disagg.api.names import RoleName
from disagg.view.signs import OTHER, PALETTE

CELL: Final = 15
STEP: Final = CELL + 3
LINE: Final = 20

# Texts cannot be measured here, so this is how wide the characters of common fonts are, in parts of their size.
SANS: Final = 0.56
MONO: Final = 0.62

SIZE: Final = 12
MONO_SIZE: Final = 10.5
NAME_SIZE: Final = 13
SECTION_SIZE: Final = 14
TITLE_SIZE: Final = 20

_STYLE: Final = """
svg{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12px}
.page{fill:#f6f8fa}.card{fill:#fff;stroke:#d5dae1}.text{fill:#1c2530}.quiet{fill:#66707d}.warn{fill:#b54708}
.title{font-size:20px;font-weight:600}.name{font-weight:600;font-size:13px}.section{font-weight:600;font-size:14px}
.node,.number{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:10.5px}
.sign{font-size:9.5px;font-weight:700;text-anchor:middle}.end{text-anchor:end}
.free{fill:#fff;stroke:#2e9e5b;stroke-width:1.3}
.unused{fill:#eef0f3;stroke:#a0a7b1;stroke-dasharray:2.5 2}
.cut{stroke:#fff;stroke-opacity:.45}.track{fill:#e4e8ed}.bar{fill:#7b8794}
@media (prefers-color-scheme:dark){
.page{fill:#0e1319}.card{fill:#171e27;stroke:#2c3744}.text{fill:#e6ebf1}.quiet{fill:#93a0af}.warn{fill:#f4a259}
.free{fill:#171e27;stroke:#3fbf73}.unused{fill:#222b36;stroke:#66707d}.track{fill:#2c3744}.bar{fill:#93a0af}}
"""


def style() -> str:
    """The style sheet."""
    rules = [f".other{{fill:{OTHER.fill}}}"]
    for number, shades in enumerate(PALETTE):
        for role, shade in shades.items():
            name = fill(number, role)
            rules.append(f".{name}{{fill:{shade.fill}}}.{name}-ink{{fill:{shade.ink}}}")
    return _STYLE + "\n".join(rules) + "\n"


def fill(number: int, role: RoleName) -> str:
    """Class of what belongs to a role of the group with this number; with `-ink`, of the text on it."""
    return f"{role[0]}{number % len(PALETTE)}"


def rect(  # noqa: PLR0913, PLR0917 - the parts of a rectangle
    parent: ET.Element, x: float, y: float, width: float, height: float, name: str, *, radius: float = 3
) -> None:
    """A rectangle of class `name`."""
    numbers = {"x": x, "y": y, "width": width, "height": height, "rx": radius}
    attributes = {key: _number(value) for key, value in numbers.items() if value}
    ET.SubElement(parent, "rect", attributes | {"class": name})


def outline(parent: ET.Element, x: float, y: float, name: str) -> None:
    """A cell that nobody has. Its line stays within the cell."""
    rect(parent, x + 0.6, y + 0.6, CELL - 1.2, CELL - 1.2, name)


def text(parent: ET.Element, x: float, y: float, content: str, name: str) -> None:
    """A text of class `name` whose baseline is at `y`; none if it is empty."""
    if content:
        position = {"x": _number(x), "y": _number(y), "class": name}
        ET.SubElement(parent, "text", position).text = content


def cut(parent: ET.Element, x: float, y: float) -> None:
    """A line between two accelerators of one pod."""
    ends = {"x1": _number(x), "x2": _number(x), "y1": _number(y), "y2": _number(y + CELL)}
    ET.SubElement(parent, "line", ends | {"class": "cut"})


def _number(value: float) -> str:
    return f"{round(value, 2):g}"
