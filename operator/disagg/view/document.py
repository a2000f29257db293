"""Picture and answers for scripts: plain data that JSON can hold. Keys are only ever added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from disagg.topology.groups import GroupKey
from disagg.view.fits import Answer
from disagg.view.picture import DomainView, GroupView, NodeView, Picture

Document = dict[str, Any]


def picture_document(picture: Picture) -> Document:
    """The picture."""
    return {
        "resource": picture.resource,
        "level": picture.level,
        "levelKey": picture.key,
        "total": picture.total,
        "free": picture.free,
        "unusable": picture.out_of_reach,
        "otherPods": picture.foreign,
        "domains": [_domain(domain) for domain in picture.domains],
        "groups": [_group(group) for group in picture.groups],
    }


def answers_document(answers: Iterable[Answer]) -> Document:
    """The answers."""
    found = list(answers)
    return {
        "fits": all(answer.is_good for answer in found),
        "groups": [
            _key(answer.group)
            | {
                "packDomain": answer.level,
                "domain": answer.domain,
                "fits": None if answer.level is None else {"now": answer.now, "atMaximum": answer.maximum},
                "headroom": {str(role): count for role, count in answer.headroom.items()},
                "message": answer.message,
            }
            for answer in found
        ],
    }


def _domain(domain: DomainView) -> Document:
    return {
        "name": domain.name,
        "within": domain.within,
        "total": domain.total,
        "used": domain.used,
        "free": domain.free,
        "largestFree": domain.largest_free,
        "nodes": [_node(node) for node in domain.nodes],
    }


def _node(node: NodeView) -> Document:
    used: Counter[tuple[GroupKey, str]] = Counter()
    other = 0
    for owner, size in node.blocks:
        if owner is None:
            other += size
        else:
            used[owner.group, str(owner.role)] += size
    return {
        "name": node.name,
        "state": str(node.state),
        "total": node.total,
        "used": node.used,
        "free": node.free,
        "otherPods": other,
        "groups": [_key(group) | {"role": role, "used": size} for (group, role), size in used.items()],
    }


def _group(group: GroupView) -> Document:
    return _key(group.key) | {
        "used": {str(role): size for role, size in group.used.items()},
        "domains": [{"name": name, "used": size} for name, size in group.domains.items()],
        "pending": {str(role): count for role, count in group.pending.items()},
    }


def _key(group: GroupKey) -> Document:
    return {"namespace": group.namespace, "name": group.name, "group": group.group}
