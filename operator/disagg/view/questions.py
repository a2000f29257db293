"""What to draw: the accelerator and the label of a level, found in the cluster, or an answer to why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from disagg.topology.claims import is_accelerator
from disagg.topology.levels import PRESETS, Level, LevelMap, PackLevel, level_map, resolve
from disagg.topology.nodes import Node
from disagg.view.signs import plural

ACCELERATORS = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "gpu.intel.com/xe",
    "gpu.intel.com/i915",
    "habana.ai/gaudi",
    "google.com/tpu",
    "aws.amazon.com/neuron",
)
"""Extended resources that are known to be accelerators, whatever else nodes offer."""

_SHOWN = 12
_FITTING = 3
_NO_TOPOLOGY = ("kubernetes.io/", "beta.kubernetes.io/", "node.kubernetes.io/", "node-role.kubernetes.io/")
"""Beginnings of labels that say something of a node, and nothing of where it is."""


class NothingToDrawError(ValueError):
    """The cluster has nothing of what was asked for. The message says what it has instead."""


def accelerators(nodes: Iterable[Node]) -> list[str]:
    """Accelerators that nodes have, the most frequent first."""
    offered = _offered(nodes)
    return sorted(
        (name for name in offered if name in ACCELERATORS or name.endswith("/gpu")),
        key=lambda name: (-offered[name], name),
    )


def accelerator(nodes: Iterable[Node], wanted: str | None) -> str:
    """The extended resource to draw.

    Args:
        nodes: The nodes.
        wanted: What the user has asked for, if anything.

    Raises:
        NothingToDrawError: No node has it.
    """
    offered = _offered(nodes := list(nodes))
    if wanted is not None:
        if wanted in offered:
            return wanted
        raise NothingToDrawError(f"no node has any {wanted}{_instead(offered)}")
    known = accelerators(nodes)
    if known:
        return known[0]
    hint = ": name one with --resource" if offered else ""
    raise NothingToDrawError(f"no node has an accelerator of a kind that is known{_instead(offered)}{hint}")


def pack_level(nodes: Iterable[Node], level: str, preset: str, levels: LevelMap) -> PackLevel:
    """The label whose values are the domains.

    Args:
        nodes: The nodes that matter.
        level: A level, or a label key.
        preset: Name of the level map.
        levels: The level map.

    Raises:
        NothingToDrawError: No node carries it.
    """
    found = resolve(level, levels)
    values = _values(nodes)
    if found is not None and found.key in values:
        return found
    if found is None:
        problem = f"topology preset {preset} has no label for level {level}"
    elif "/" in level:
        problem = f"no node carries the label {level}"
    else:
        problem = f"no node carries the label {found.key} ({level} of topology preset {preset})"
    raise NothingToDrawError("\n".join([problem, *_advice(values, level)]))


def _advice(values: dict[str, set[str]], level: str) -> list[str]:
    fitting = [name for name in PRESETS if (level_map(name, {}).get(level) or "") in values]
    if fitting:
        return [
            f"Nodes carry {level_map(name, {})[level]}: use --topology-preset {name}"
            for name in fitting[:_FITTING]
        ]
    wanted = {preset.get(level if level in list(Level) else Level.RACK) for preset in PRESETS.values()}
    known = {key for preset in PRESETS.values() for key in preset.values()}
    # Best what some preset knows for this level, or at all; then what divides the nodes.
    keys = sorted(
        (key for key in values if not key.startswith(_NO_TOPOLOGY)),
        key=lambda key: (
            key not in wanted,
            key not in known,
            "topology" not in key,
            len(values[key]) == 1,
            key,
        ),
    )
    if not keys:
        return [
            "Nodes carry no label that says where they are: label them, such as topology.kubernetes.io/rack=r1"
        ]
    shown = ", ".join(f"{key} ({plural(len(values[key]), 'value')})" for key in keys[:_SHOWN])
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    example = level if level in list(Level) else Level.RACK
    return [
        f"Nodes carry: {shown}{more}",
        f"Use one of these, as --level {keys[0]} or --topology-level {example}={keys[0]}",
    ]


def _offered(nodes: Iterable[Node]) -> Counter[str]:
    offered: Counter[str] = Counter()
    for node in nodes:
        offered.update(
            {name: amount for name, amount in node.allocatable.items() if is_accelerator(name) and amount}
        )
    return offered


def _instead(offered: Counter[str]) -> str:
    return f"; nodes have {', '.join(sorted(offered))}" if offered else "; nodes have no extended resources"


def _values(nodes: Iterable[Node]) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for node in nodes:
        for key, value in node.labels.items():
            if value:
                values.setdefault(key, set()).add(value)
    return values
