"""The picture as an SVG that loads nothing from elsewhere, for light and dark pages."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from xml.etree import ElementTree as ET

from disagg.view.picture import Block, DomainView, NodeState, NodeView, Picture
from disagg.view.signs import IN_A_LINE, domain_name, group_name, headline, letter, node_note, room
from disagg.view.svg.layout import CARD_HEAD, EDGE, MARGIN, Form, arranged
from disagg.view.svg.legend import Legend
from disagg.view.svg.shapes import (
    CELL,
    LINE,
    SANS,
    SIZE,
    STEP,
    TITLE_SIZE,
    cut,
    fill,
    outline,
    rect,
    style,
    text,
)


def svg(picture: Picture) -> str:
    """The picture as the text of an SVG file."""
    return _Sheet(picture, Form.of(picture)).draw()


@dataclass(frozen=True)
class _Sheet:
    picture: Picture
    form: Form

    def draw(self) -> str:
        """All of it."""
        picture, form = self.picture, self.form
        title, facts = f"{picture.resource} by {picture.level}", headline(picture)
        sections, legend = arranged(picture, form), Legend(picture)
        bottom = max((section.bottom(form) for section in sections), default=0) + 22
        inner = max(len(title) * TITLE_SIZE * SANS, len(facts) * SIZE * SANS, legend.width)
        width = max([MARGIN + inner, *(section.right(form) for section in sections)]) + MARGIN
        height = bottom + legend.height(width) + MARGIN / 2
        size = {
            "width": f"{width:.0f}",
            "height": f"{height:.0f}",
            "viewBox": f"0 0 {width:.0f} {height:.0f}",
        }
        root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"} | size)
        ET.SubElement(root, "title").text = f"{title}: {facts}"
        ET.SubElement(root, "style").text = style()
        rect(root, 0, 0, width, height, "page", radius=10)
        text(root, MARGIN, 40, title, "text title")
        text(root, MARGIN, 61, facts, "quiet")
        for section in sections:
            text(root, section.x, section.y + 15, section.name or "", "text section")
            for domain, x, y in section.cards(form):
                self._card(_moved(root, x, y), domain)
        legend.draw(root, bottom, width)
        ET.indent(root, " ")
        return ET.tostring(root, encoding="unicode") + "\n"

    def _card(self, card: ET.Element, domain: DomainView) -> None:
        form = self.form
        rect(card, 0, 0, form.width, form.height(domain), "card", radius=7)
        colour = "text" if domain.name is not None else "warn"
        text(card, EDGE, 20, domain_name(domain, self.picture), f"{colour} name")
        text(card, form.width - EDGE, 20, room(domain), "quiet end")
        full = form.width - 2 * EDGE
        rect(card, EDGE, 28, full, 3, "track", radius=1.5)
        if share := min(domain.used / max(domain.total, 1), 1):
            rect(card, EDGE, 28, full * share, 3, "bar", radius=1.5)
        y = CARD_HEAD
        for node in domain.nodes:
            self._node(_moved(card, 0, y), node)
            y += form.lines[node.name] * LINE

    def _node(self, group: ET.Element, node: NodeView) -> None:
        form, ready = self.form, node.state is NodeState.READY
        ET.SubElement(group, "title").text = f"{node.name}: {node.free} of {node.total} free, {node.state}"
        text(group, EDGE, 11.5, form.names[node.name], "text node" if ready else "quiet node")
        index = 0
        for block in node.blocks:
            self._block(ET.SubElement(group, "g"), block, index)
            index += block.size
        for free in range(index, index + node.unused):
            row, column = divmod(free, IN_A_LINE)
            outline(group, form.cells + column * STEP, row * LINE, "free" if ready else "unused")
        text(group, form.width - EDGE, 11.5, node_note(node), f"{'quiet' if ready else 'warn'} number end")

    def _block(self, group: ET.Element, block: Block, start: int) -> None:
        """A pod: one bar, cut into its accelerators."""
        name, sign = "other", ""
        meaning = f"another pod: {block.size}"
        if block.owner is not None:
            key, role = block.owner
            number = self.picture.numbers[key]
            name, sign = fill(number, role), letter(number, role)
            meaning = f"{group_name(key)} {role}: {block.size}"
        ET.SubElement(group, "title").text = meaning
        for row, cells in groupby(range(start, start + block.size), key=lambda index: index // IN_A_LINE):
            columns = [index % IN_A_LINE for index in cells]
            x, y = self.form.cells + columns[0] * STEP, row * LINE
            width = len(columns) * STEP - (STEP - CELL)
            rect(group, x, y, width, CELL, name)
            for place in range(1, len(columns)):
                cut(group, x + place * STEP - (STEP - CELL) / 2, y)
            # In a cell: in the middle of the bar a cut would strike it out.
            text(group, x + CELL / 2, y + 11, sign, f"sign {name}-ink")


def _moved(parent: ET.Element, x: float, y: float) -> ET.Element:
    return ET.SubElement(parent, "g", transform=f"translate({x:g} {y:g})")
