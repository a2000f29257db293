"""Draws a scene. Pure: from a scene to something that rich prints.

Colour never speaks alone: each GPU also has the letter of its role, small and hatched until its pod is ready.
"""

import re
from io import StringIO
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.terminal_theme import MONOKAI
from rich.text import Text

from e2e.demo.scene import Node, Pod, Rack, Resource, Scene

WIDTH: Final = 118
"""Columns with which racks and conditions fit side by side."""

_RACKS_IN_A_ROW: Final = 2
_CELL: Final = 3
_WAITING: Final = "grey62"

# By role: letter, colour of a pod that is not ready, and two shades that tell neighbours apart.
_ROLES: Final = {
    "prefill": ("P", "deep_sky_blue1", ("white on dodger_blue3", "white on deep_sky_blue4")),
    "decode": ("D", "dark_orange", ("white on dark_orange3", "white on orange4")),
}
_OTHER: Final = ("o", "grey62", ("white on grey42", "white on grey35"))
_STATUS: Final = {"True": "green", "False": "yellow", "Unknown": _WAITING}
# Of these, False is what one hopes for.
_NEGATIVE: Final = {"Reconciling", "Stalled", "Paused"}


def draw(scene: Scene, *, width: int = WIDTH, seconds: float | None = None) -> RenderableType:
    """The picture.

    Args:
        scene: What there is to see.
        width: Columns there are; below `WIDTH` the conditions stand under the racks.
        seconds: Time since the start, shown in the title.
    """
    racks = Group(_racks(scene.racks), _legend(scene))
    state = _state(scene.resource, seconds)
    if width < WIDTH:
        return Group(racks, state)
    side_by_side = Table.grid(expand=False, padding=(0, 1))
    side_by_side.add_column()
    side_by_side.add_column(ratio=1)
    side_by_side.add_row(racks, state)
    return side_by_side


def svg(scene: Scene, *, title: str, seconds: float | None = None) -> str:
    """The picture as an SVG that loads nothing from elsewhere.

    Args:
        scene: What there is to see.
        title: Title of the window.
        seconds: As for `draw`.
    """
    console = Console(
        record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(draw(scene, seconds=seconds))
    text = console.export_svg(title=title, theme=MONOKAI, unique_id="demo")
    text = re.sub(r"@font-face\s*\{.*?\}\s*", "", text, flags=re.DOTALL)
    # Without its web font, whatever fixed width the reader's system has.
    return text.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


def _racks(racks: tuple[Rack, ...]) -> Table:
    grid = Table.grid(padding=(0, 1))
    for start in range(0, len(racks), _RACKS_IN_A_ROW):
        grid.add_row(*map(_rack, racks[start : start + _RACKS_IN_A_ROW]))
    return grid


def _rack(rack: Rack) -> Panel:
    nodes = Table.grid(padding=(0, 1, 0, 0))
    for node in rack.nodes:
        # The part of the name that differs within a rack.
        nodes.add_row(Text(node.name.rpartition("-")[2], "bold" if node.pods else "dim"), _gpus(node))
    used = sum(pod.gpus for node in rack.nodes for pod in node.pods)
    total = sum(node.gpus for node in rack.nodes)
    return Panel(
        nodes,
        title=rack.name,
        title_align="left",
        subtitle=f"{used}/{total} GPUs",
        subtitle_align="right",
        border_style="white" if used else "grey42",
        expand=False,
    )


def _gpus(node: Node) -> Text:
    row = Text()
    for cell in node.cells():
        row.append(*((" · ", "grey42") if cell is None else _cell(*cell)))
    return row


def _cell(number: int, pod: Pod) -> tuple[str, str]:
    letter, colour, shades = _ROLES.get(pod.role, _OTHER)
    if pod.ready:
        return letter.center(_CELL), f"bold {shades[number % len(shades)]}"
    return f"░{letter.lower()}░", colour


def _legend(scene: Scene) -> Text:
    parts: list[str | tuple[str, str]] = []
    for role, (letter, _, shades) in _ROLES.items():
        parts += [(f" {letter} ", f"bold {shades[0]}"), f" {role}   "]
    parts += [(f" {_OTHER[0]} ", f"bold {_OTHER[2][0]}"), " others   "]
    parts += [("░p░", _ROLES["prefill"][1]), " starting   ", (" · ", "grey42"), " free GPU"]
    if scene.unbound:
        waiting = ", ".join(f"{count} {role}" for role, count in scene.unbound.items())
        parts.append((f"\n no node yet: {waiting}", "yellow"))
    return Text.assemble(" ", *parts)


def _state(resource: Resource | None, seconds: float | None) -> Panel:
    clock = None if seconds is None else f"{seconds:.0f} s"
    if resource is None:
        return Panel("no resource yet", title="waiting", title_align="left", subtitle=clock, width=None)
    facts = Table.grid(padding=(0, 1, 0, 0))
    facts.add_column(style=_WAITING, no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("model", resource.model.rpartition("/")[2])
    for role, count in resource.ready.items():
        ready, _, desired = count.partition("/")
        facts.add_row(role, Text(f"{count} ready", "green" if ready == desired else "yellow"))
    if resource.domains:
        facts.add_row("packed in", resource.domains)
    if resource.endpoint:
        facts.add_row("endpoint", resource.endpoint.removeprefix("http://"))
    conditions = Table.grid(padding=(0, 1, 0, 0))
    for condition in resource.conditions:
        good = condition.status == ("False" if condition.kind in _NEGATIVE else "True")
        style = "green" if good else _STATUS["Unknown" if condition.status == "Unknown" else "False"]
        conditions.add_row(condition.kind, Text(condition.status, style), Text(condition.reason, _WAITING))
    return Panel(
        Group(facts, "", conditions),
        title=f"dinf/{resource.name}",
        title_align="left",
        subtitle=clock,
        subtitle_align="right",
        border_style="green" if resource.is_ready else "yellow",
    )
