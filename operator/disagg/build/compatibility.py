"""Can prefill and decode exchange KV cache? Read from finished pod templates, so overlays and arguments of users count.

The engines compare these items when two pods meet, and refuse what differs, or worse, do not. A hash over them is a label of
both roles' pods: only pods with equal hashes are to be paired.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from disagg.api.engine import EngineKind
from disagg.api.names import ENGINE_ROLES, RoleName
from disagg.api.resource import DisaggregatedInference
from disagg.build.engine_template import engine_template
from disagg.build.engines.registry import ENGINES
from disagg.build.pod_shape import is_readable

_NONE = "none"


def items(kind: EngineKind, template: Mapping[str, Any]) -> dict[str, str]:
    """What the two ends of a transfer must share: item -> value. Empty where that is not known.

    Args:
        kind: The engine.
        template: A finished pod template.
    """
    return ENGINES[kind].compatibility(template) if is_readable(template) else {}


def hash_of(kind: EngineKind, template: Mapping[str, Any]) -> str | None:
    """Hash over what the two ends of a transfer must share, or None where that is not known."""
    found = items(kind, template)
    if not found:
        return None
    text = json.dumps({"engine": kind} | found, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def difference(kind: EngineKind, prefill: Mapping[str, Any], decode: Mapping[str, Any]) -> str | None:
    """In what two pod templates differ that must not, or None.

    Args:
        kind: The engine.
        prefill: Pod template of prefill.
        decode: Pod template of decode.
    """
    ours, theirs = items(kind, prefill), items(kind, decode)
    # A release compares what another does not know: that is no difference where it is none.
    pairs = {
        item: (ours.get(item) or _NONE, theirs.get(item) or _NONE)
        for item in sorted(ours.keys() | theirs.keys())
    }
    found = [
        f"{item} ({mine} in prefill, {other} in decode)"
        for item, (mine, other) in pairs.items()
        if mine != other
    ]
    return ", ".join(found) or None


def incompatibility(resource: DisaggregatedInference) -> str | None:
    """Why the roles could not exchange KV cache as the resource asks for them, or None.

    Overlays are left out: they have the last word, and what they break is reported, not refused.
    """
    prefill, decode = (engine_template(resource, role) for role in ENGINE_ROLES)
    found = difference(resource.spec.engine.kind, prefill, decode)
    if found is None:
        return None
    return (
        f"prefill and decode could not exchange KV cache, they differ in {found}:"
        f" set it in spec.engine, or the same in {RoleName.PREFILL} and {RoleName.DECODE}"
    )
