"""Which nodes of a domain the larger pods should prefer, so that the smaller ones find room beside them.

The kube-scheduler knows neither the group nor what is still to come. On two nodes of 8 GPUs, two pods of 3 leave room for
five pods of 2 if they share a node, and for four if they do not. Where that decides whether the group fits, the larger
pods are told which nodes to prefer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from disagg.topology.capacity import GroupDemand, Row, Sizes, Surveyor, pack
from disagg.topology.groups import GroupKey
from disagg.topology.inventory import Inventory
from disagg.topology.packing import best_plan, fewest


def planned_nodes(
    inventory: Inventory, key: str, domain: str, demand: GroupDemand, group: GroupKey
) -> tuple[str, ...]:
    """The nodes that pods of the larger role should prefer, sorted.

    The pods of the maximum are planned for if they fit, else those of the minimum.

    Args:
        inventory: The cluster.
        key: Node label whose values are the domains.
        domain: The domain that was chosen.
        demand: What the group needs.
        group: The group.

    Returns:
        Nodes on which the larger pods may be distributed in any way. Empty if that is true of the whole domain, or if
        the group does not fit. If there are no such nodes, those of a best distribution.
    """
    surveyor = Surveyor(inventory, demand, group, within=(key, domain))
    rows = surveyor.rows(inventory.domains(key).get(domain, ()))
    packed = pack([row.fit.profile for row in rows], surveyor.minimum, surveyor.maximum)
    if not packed.fits_minimum:
        return ()
    sizes = surveyor.maximum if packed.fits_maximum else surveyor.minimum
    if _is_harmless(rows, rows, sizes):
        return ()
    candidates = _candidates(rows, sizes, inventory.pods(group).bound[surveyor.larger.role])
    found = (
        _filled(candidates, rows, sizes)
        or _any_harmless(candidates, rows, sizes)
        or _in_order(candidates, rows, sizes)
        or _best(candidates, sizes)
    )
    return tuple(row.use.name for row in found)


def _is_harmless(chosen: Sequence[Row], rows: Sequence[Row], sizes: Sizes) -> bool:
    """Whether the smaller pods fit into `rows` wherever on `chosen` the larger ones are."""
    beside = fewest([row.fit.profile for row in chosen], sizes.larger)
    names = {row.use.name for row in chosen}
    elsewhere = sum(row.fit.profile[0] for row in rows if row.use.name not in names)
    return sizes.larger < len(beside) and beside[sizes.larger] + elsewhere >= sizes.smaller


def _candidates(rows: Sequence[Row], sizes: Sizes, running: Counter[str]) -> list[Row]:
    """Nodes for larger pods, those first that lose least by being filled; of equal ones no more than can be used.

    Nodes where such pods run come before equal ones, so that a plan does not turn away from what it has brought about.
    """
    seen: Counter[tuple[int, ...]] = Counter()
    candidates = []
    for row in sorted(rows, key=lambda row: (_loss(row), -running[row.use.name], row.use.name)):
        profile = row.fit.profile
        if len(profile) > 1 and seen[profile] < sizes.larger:
            seen[profile] += 1
            candidates.append(row)
    return candidates


def _loss(row: Row) -> float:
    profile = row.fit.profile
    return (profile[0] - profile[-1]) / max(len(profile) - 1, 1)


def _filled(candidates: Sequence[Row], rows: Sequence[Row], sizes: Sizes) -> list[Row]:
    """Nodes that the larger pods fill exactly: only one distribution is possible there."""
    ends = [(row, len(row.fit.profile) - 1) for row in candidates]
    plan = best_plan([{0: row.fit.profile[0], end: row.fit.profile[end]} for row, end in ends], sizes.larger)
    chosen = [row for row, number in zip(candidates, plan or (), strict=False) if number]
    return chosen if chosen and _is_harmless(chosen, rows, sizes) else []


def _in_order(candidates: Sequence[Row], rows: Sequence[Row], sizes: Sizes) -> list[Row]:
    """Nodes that the larger pods fill one after the other, the last of them not to its end."""
    names = {row.use.name for row in candidates}
    elsewhere = sum(row.fit.profile[0] for row in rows if row.use.name not in names)
    for index, last in enumerate(candidates):
        others = [*candidates[:index], *candidates[index + 1 :]]
        options = [{0: row.fit.profile[0], len(row.fit.profile) - 1: row.fit.profile[-1]} for row in others]
        for number in range(1, len(last.fit.profile) - 1):
            plan = best_plan(options, sizes.larger - number)
            if plan is None:
                continue
            beside = sum(option[chosen] for option, chosen in zip(options, plan, strict=True))
            if beside + last.fit.profile[number] + elsewhere >= sizes.smaller:
                return [*(row for row, chosen in zip(others, plan, strict=True) if chosen), last]
    return []


def _any_harmless(candidates: Sequence[Row], rows: Sequence[Row], sizes: Sizes) -> list[Row]:
    best = _best(candidates, sizes)
    if _is_harmless(best, rows, sizes):
        return best
    for end in range(1, len(candidates) + 1):
        if _is_harmless(candidates[:end], rows, sizes):
            return list(candidates[:end])
    return []


def _best(candidates: Sequence[Row], sizes: Sizes) -> list[Row]:
    plan = best_plan([dict(enumerate(row.fit.profile)) for row in candidates], sizes.larger)
    return [row for row, number in zip(candidates, plan or (), strict=False) if number]
