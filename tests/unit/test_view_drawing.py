"""The picture as people get it: plain text as goldens, colours and the SVG by what is in them."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from disagg.api.names import ENGINE_ROLES
from disagg.topology.groups import GroupKey
from disagg.view.document import picture_document
from disagg.view.picture import Picture
from disagg.view.signs import PALETTE, letter, shade
from disagg.view.svg.sheet import svg
from disagg.view.terminal import Drawing
from tests.unit.racks import GROUP, OTHER, node, pod
from tests.unit.test_view_picture import BLOCK, drawn


def cordoned(raw: dict[str, Any]) -> dict[str, Any]:
    raw["spec"]["unschedulable"] = True
    return raw


def half_full() -> Picture:
    return drawn(
        node("n1", "r1", {BLOCK: "b1"}, gpu=8),
        node("n2", "r1", {BLOCK: "b1"}, gpu=8),
        node("n3", "r2", {BLOCK: "b1"}, gpu=8),
        cordoned(node("n4", "r3", {BLOCK: "b2"}, gpu=4)),
        node("n5", None, gpu=2),
        node("n6", cpu=4),
        pod("a", "n1", group=GROUP, role="decode", gpu=4),
        pod("b", "n1", group=GROUP, role="prefill", gpu=1),
        pod("c", "n1", group=GROUP, role="prefill", gpu=1),
        pod("d", "n2", gpu=3),
        pod("e", "n3", group=OTHER, role="decode", gpu=8),
        pod("f", "n4", group=OTHER, role="prefill", gpu=1),
        pod("g", None, group=OTHER, role="prefill", gpu=1),
        pod("h", "n5", gpu=4),
    )


def text(picture: Picture, width: int = 90, **options: Any) -> str:  # noqa: ANN401 - rich's
    file = StringIO()
    Console(file=file, width=width, highlight=False, legacy_windows=False, **options).print(Drawing(picture))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


WIDE = """\
example.com/gpu: 7 of 30 free, 3 more unused on nodes that take no pods, 3 racks, 5 nodes,
example.com/rack; 1 node without any not shown; there is also amd.com/gpu: see --resource
b1 ───────────────────────────────────────────────────────────────────────────────────────
╭─ r1  7 of 16 free ───────────╮ ╭─ r2  0 of 8 free ────────────╮
│ n1 A A a-a-a-a □ □         2 │ │ n3 b-b-b-b-b-b-b-b         - │
│ n2 #-#-# □ □ □ □ □         5 │ ╰──────────────────────────────╯
╰──────────────────────────────╯
b2 ───────────────────────────────────────────────────────────────────────────────────────
╭─ r3  0 of 4 free ────────────╮
│ n4 B x x x          cordoned │
╰──────────────────────────────╯
╭─ no rack label  0 of 2 free ─╮
│ n5 #-#-#-#        2 too many │
╰──────────────────────────────╯

A prefill 2  a decode 4  default/chat group 0   r1
B prefill 1  b decode 8  default/other group 0  r2 (8), r3 (1); 1 prefill without a node
# other pods 7  □ free 7  x unused on nodes that take no pods 3"""


def test_without_colour_every_accelerator_has_a_sign() -> None:
    assert text(half_full()) == WIDE


NARROW = """\
b1 ----------------------------------
+- r1  7 of 16 free -----------+
| n1 A A a-a-a-a . .         2 |
| n2 #-#-# . . . . .         5 |
+------------------------------+
+- r2  0 of 8 free ------------+
| n3 b-b-b-b-b-b-b-b         - |
+------------------------------+"""


def test_a_narrow_terminal_without_unicode_shows_the_same() -> None:
    class Ascii(StringIO):
        encoding = "ascii"

    file = Ascii()
    Console(file=file, width=37, highlight=False, legacy_windows=False).print(Drawing(half_full()))
    found = file.getvalue()
    assert NARROW in "\n".join(line.rstrip() for line in found.splitlines())
    assert found.isascii()


def test_with_colour_pods_are_bars() -> None:
    found = text(half_full(), force_terminal=True, color_system="truecolor", no_color=False)
    assert "#-#" not in found
    assert "\x1b[1;38;2;255;255;255;48;2;29;95;208mA\x1b[0m" in found
    plain = re.sub(r"\x1b\[[0-9;]*m", "", found)
    assert plain == re.sub(r"(?<=[ab#])-(?=[ab#])", " ", WIDE)


def test_no_color_means_plain_signs_in_a_terminal_too() -> None:
    assert "#-#" in text(half_full(), force_terminal=True, color_system="truecolor", no_color=True)


def test_many_accelerators_of_a_node_take_several_lines() -> None:
    lines = text(drawn(node("n1", gpu=40), pod("a", "n1", gpu=18))).splitlines()
    assert [line.count("□") for line in lines[3:6]] == [0, 14, 8]
    assert [line.count("#") for line in lines[3:6]] == [16, 2, 0]


def test_neighbouring_groups_have_different_letters_and_colours() -> None:
    for number in range(26):
        assert letter(number, ENGINE_ROLES[0]) == letter(number, ENGINE_ROLES[1]).upper()
        assert shade(number, ENGINE_ROLES[0]) != shade(number + 1, ENGINE_ROLES[0])
    # What shares a colour has another letter, and the other way round.
    signs = {(letter(number, role), shade(number, role)) for number in range(234) for role in ENGINE_ROLES}
    assert len(signs) == 2 * 26 * len(PALETTE)


def parsed(picture: Picture) -> ET.Element:
    return ET.fromstring(svg(picture))  # noqa: S314 - our own


def classes(root: ET.Element, name: str) -> int:
    return sum(name in (element.get("class") or "").split() for element in root.iter())


def test_the_svg_shows_the_same() -> None:
    root = parsed(half_full())
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"b1", "r1", "r2", "r3", "no rack label", "n1", "cordoned", "default/chat group 0"} <= set(texts)
    # Each with one more in the legend.
    assert (classes(root, "free"), classes(root, "unused")) == (7 + 1, 3 + 1)
    # A pod is one bar: with one cut less than it has accelerators.
    assert (classes(root, "p0"), classes(root, "d0"), classes(root, "cut")) == (2 + 1, 1 + 1, 3 + 2 + 7 + 3)


def test_the_svg_loads_nothing() -> None:
    assert not re.findall(r"href|url\(|@import|<image|<script", svg(half_full()))


def test_names_cannot_break_out_of_the_svg() -> None:
    odd = GroupKey("a<b", '"&', 0)
    found = parsed(drawn(node("n<1>&", gpu=2), pod("a", "n<1>&", group=odd, gpu=1)))
    assert 'a<b/"& group 0' in [element.text for element in found.iter()]


@pytest.mark.parametrize("racks", [1, 2, 7, 40])
def test_nothing_in_the_svg_stands_outside(racks: int) -> None:
    picture = drawn(
        *(node(f"n{number}", f"rack-{number}", {BLOCK: f"b{number // 3}"}, gpu=8) for number in range(racks)),
        *(
            pod(f"p{number}", "n0", group=GroupKey("ns", f"model-{number}", 0), gpu=1)
            for number in range(min(racks, 8))
        ),
    )
    root = parsed(picture)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for element in root:
        if (move := element.get("transform")) is not None:
            x, y = map(float, re.findall(r"[\d.]+", move))
            card = element.find("{*}rect")
            assert card is not None
            assert x + float(card.get("width", 0)) <= width
            assert y + float(card.get("height", 0)) <= height


def test_the_document_has_all_numbers() -> None:
    found = picture_document(half_full())
    assert {key: found[key] for key in ("total", "free", "unusable", "otherPods", "levelKey")} == {
        "total": 30,
        "free": 7,
        "unusable": 3,
        "otherPods": 7,
        "levelKey": "example.com/rack",
    }
    assert found["domains"][0] == {
        "name": "r1",
        "within": "b1",
        "total": 16,
        "used": 9,
        "free": 7,
        "largestFree": 5,
        "nodes": [
            {
                "name": "n1",
                "state": "ready",
                "total": 8,
                "used": 6,
                "free": 2,
                "otherPods": 0,
                "groups": [
                    {"namespace": "default", "name": "chat", "group": 0, "role": "prefill", "used": 2},
                    {"namespace": "default", "name": "chat", "group": 0, "role": "decode", "used": 4},
                ],
            },
            {
                "name": "n2",
                "state": "ready",
                "total": 8,
                "used": 3,
                "free": 5,
                "otherPods": 3,
                "groups": [],
            },
        ],
    }
    assert found["groups"][1] == {
        "namespace": "default",
        "name": "other",
        "group": 0,
        "used": {"decode": 8, "prefill": 1},
        "domains": [{"name": "r2", "used": 8}, {"name": "r3", "used": 1}],
        "pending": {"prefill": 1, "decode": 0},
    }
