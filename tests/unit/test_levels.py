"""Levels and their node labels."""

from __future__ import annotations

import re

import pytest

from disagg.topology.levels import HOSTNAME, PRESETS, ZONE, Level, PackLevel, level_map, resolve

KEY = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_has_a_host_a_rack_and_a_zone(preset: str) -> None:
    levels = level_map(preset, {})
    assert levels.keys() >= {"host", "rack", "zone"}
    assert levels.keys() <= set(Level)
    assert all(KEY.fullmatch(key) for key in levels.values())
    assert len(set(levels.values())) == len(levels)


def test_hosts_and_zones_are_kubernetes_own_unless_a_preset_knows_better() -> None:
    assert level_map("generic", {}) == {
        "host": HOSTNAME,
        "zone": ZONE,
        "rack": "topology.kubernetes.io/rack",
        "block": "topology.kubernetes.io/block",
    }
    assert level_map("gke", {})["host"] == "cloud.google.com/gce-topology-host"


def test_overrides_win() -> None:
    levels = level_map("gke", {"rack": "example.com/rack"})
    assert levels == level_map("gke", {}) | {"rack": "example.com/rack"}


def test_a_level_that_a_preset_lacks_may_be_added() -> None:
    assert "block" not in level_map("gpu-operator", {})
    assert level_map("gpu-operator", {"block": "example.com/row"})["block"] == "example.com/row"


@pytest.mark.parametrize(
    ("preset", "overrides", "message"),
    [
        ("azure", {}, "topology preset 'azure' is unknown: use one of coreweave, eks, generic, gke, "),
        ("gke", {"row": "a/b"}, "topology level 'row' is unknown: use one of host, rack, block, zone"),
        ("gke", {"": "a/b"}, "topology level '' is unknown: use one of host, rack, block, zone"),
    ],
)
def test_what_is_unknown_is_named(preset: str, overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        level_map(preset, overrides)


@pytest.mark.parametrize(
    ("pack_domain", "levels", "level"),
    [
        ("rack", {"rack": "a/rack", "block": "a/block", "zone": "a/zone"}, PackLevel("a/rack", "a/block")),
        ("rack", {"rack": "a/rack", "zone": "a/zone"}, PackLevel("a/rack", "a/zone")),
        ("rack", {"host": "a/host", "rack": "a/rack"}, PackLevel("a/rack")),
        ("host", {"host": "a/host", "rack": "a/rack"}, PackLevel("a/host", "a/rack")),
        ("zone", {"rack": "a/rack", "zone": "a/zone"}, PackLevel("a/zone")),
        ("block", {"rack": "a/rack"}, None),
        ("rack", {}, None),
        ("example.com/cell", {"rack": "a/rack", "zone": "a/zone"}, PackLevel("example.com/cell")),
    ],
)
def test_a_level_is_found_with_the_next_wider_one(
    pack_domain: str, levels: dict[str, str], level: PackLevel | None
) -> None:
    assert resolve(pack_domain, levels) == level
