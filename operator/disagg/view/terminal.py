"""The picture in a terminal, as wide as that is; in plain characters where there is no colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.panel import Panel
from rich.rule import Rule
from rich.style import Style
from rich.table import Table
from rich.text import Text

from disagg.api.names import ENGINE_ROLES
from disagg.view.picture import Block, DomainView, NodeState, NodeView, Picture
from disagg.view.signs import (
    IN_A_LINE,
    OTHER,
    Shade,
    domain_name,
    group_name,
    headline,
    letter,
    listed,
    node_note,
    places,
    plural,
    room,
    shade,
    waiting,
)
from disagg.view.snapshot import Owner

_DIM = Style(dim=True)
_BOLD = Style(bold=True)
_WARNING = Style(color="yellow")
_PANEL_EDGE = 4


class Drawing:
    """What rich prints.

    Args:
        picture: The picture.
    """

    def __init__(self, picture: Picture) -> None:
        self._picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The picture for this console."""
        colour = console.color_system is not None and not console.no_color
        cells = _Cells(self._picture, colour=colour, ascii_only=options.ascii_only)
        yield self._head()
        sections = [
            (within, [_Card(domain, self._picture, cells) for domain in domains])
            for within, domains in self._picture.sections()
        ]
        # Of one width, so that they stand below each other.
        width = max((card.width for _, cards in sections for card in cards), default=0)
        width = min(width, options.max_width)
        for within, cards in sections:
            if within is not None:
                line = "-" if options.ascii_only else "─"
                yield Rule(Text(within, _BOLD), align="left", style="dim", characters=line)
            yield _grid(cards, width, columns=max(1, (options.max_width + 1) // (width + 1)))
        yield Text()
        yield _legend(self._picture, cells)

    def _head(self) -> Text:
        picture = self._picture
        text = Text.assemble((picture.resource, _BOLD), f": {headline(picture)}")
        if picture.left_out:
            text.append(f"; {plural(picture.left_out, 'node')} without any not shown", _DIM)
        if picture.others:
            text.append(f"; there is also {listed(picture.others)}: see --resource", _DIM)
        return text


class _Cells:
    """Draws accelerators, two columns each: those of one pod touch each other."""

    def __init__(self, picture: Picture, *, colour: bool, ascii_only: bool) -> None:
        self._numbers = picture.numbers
        self._colour = colour
        self.free = (".", Style()) if ascii_only else ("□", Style(color="green"))
        self.unused = ("x", Style(color="yellow") if colour else Style())
        self.other = ("#", self._style(OTHER))

    def row(self, node: NodeView) -> Text:
        """The accelerators of a node."""
        # Each with its sign, and whether the next one is the same pod's.
        cells: list[tuple[str, Style, bool]] = []
        for block in node.blocks:
            sign, style = self.block(block)
            cells += [(sign, style, index + 1 < block.size) for index in range(block.size)]
        sign, style = self.free if node.state is NodeState.READY else self.unused
        cells += [(sign, style, False)] * node.unused
        text = Text()
        for index, (sign, style, joined) in enumerate(cells):
            text.append(sign, style)
            end = (index + 1) % IN_A_LINE == 0
            if index + 1 == len(cells):
                break
            if end:
                text.append("\n")
            elif joined:
                text.append(" " if self._colour else "-", style)
            else:
                text.append(" ")
        return text

    def block(self, block: Block) -> tuple[str, Style]:
        """Letter and style of a pod's accelerators."""
        if block.owner is None:
            return self.other
        number, role = self._numbers[block.owner.group], block.owner.role
        return letter(number, role), self._style(shade(number, role))

    def _style(self, shade: Shade) -> Style:
        return Style(color=shade.ink, bgcolor=shade.fill, bold=True) if self._colour else Style()


class _Card:
    """A domain with its nodes."""

    def __init__(self, domain: DomainView, picture: Picture, cells: _Cells) -> None:
        self._title = Text.assemble((domain_name(domain, picture), _BOLD), f"  {room(domain)}")
        names = picture.names.short
        self._rows = [(Text(names[node.name]), cells.row(node), _note(node)) for node in domain.nodes]
        self._has_room = bool(domain.free)

    @property
    def width(self) -> int:
        """Columns that it needs."""
        columns = [
            max((max(map(len, row[index].plain.split("\n"))) for row in self._rows), default=0)
            for index in range(3)
        ]
        return max(sum(columns) + len(columns) - 1, len(self._title) + 2) + _PANEL_EDGE

    def panel(self, width: int) -> Panel:
        """It, drawn."""
        table = Table.grid(padding=(0, 1, 0, 0), pad_edge=False, expand=True)
        table.add_column(no_wrap=True, overflow="crop")
        table.add_column(no_wrap=True, overflow="crop")
        table.add_column(no_wrap=True, justify="right", ratio=1)
        for row in self._rows:
            table.add_row(*row)
        return Panel(
            table,
            title=self._title,
            title_align="left",
            border_style="" if self._has_room else "dim",
            width=width,
        )


def _note(node: NodeView) -> Text:
    text = node_note(node)
    quiet = _DIM if text == "-" else Style()
    return Text(text, quiet if node.state is NodeState.READY and node.used <= node.total else _WARNING)


def _grid(cards: Sequence[_Card], width: int, *, columns: int) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
    for start in range(0, len(cards), columns):
        grid.add_row(*(card.panel(width) for card in cards[start : start + columns]))
    return grid


def _legend(picture: Picture, cells: _Cells) -> Group:
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for _ in ENGINE_ROLES:
        table.add_column(no_wrap=True, overflow="crop")
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for group in picture.groups:
        roles = [
            Text.assemble(cells.block(Block(Owner(group.key, role), 1)), f" {role} {group.used[role]}")
            for role in ENGINE_ROLES
        ]
        where = Text(places(group), _WARNING if len(group.domains) > 1 else "")
        if note := waiting(group):
            where.append("; " if where else "").append(note, _WARNING)
        table.add_row(*roles, group_name(group.key), where)
    signs = [(cells.other, f"other pods {picture.foreign}"), (cells.free, f"free {picture.free}")]
    if picture.out_of_reach:
        signs.append((cells.unused, f"unused on nodes that take no pods {picture.out_of_reach}"))
    rest = Text("  ").join(Text.assemble(sign, f" {meaning}") for sign, meaning in signs)
    return Group(table, rest) if picture.groups else Group(rest)
