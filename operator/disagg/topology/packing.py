"""Two sizes of pods on a few nodes: how many of the smaller fit beside the larger. Integers only, exact.

A node is a profile: `profile[k]` is the most smaller pods that fit there beside k larger ones. Over a domain the larger
pods are distributed, d = k1 + k2 + ..., and what fits beside them is the sum of `profile_i[k_i]`. Its maximum over all
distributions is what a perfect scheduler reaches, its minimum what the worst one leaves. Both are found by folding one
profile after the other into the result: out[d] = best over k of (result[d - k] + profile[k]).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import pairwise
from operator import add, itemgetter

Profile = tuple[int, ...]
Curve = Sequence[int]
"""Smaller pods by number of larger ones. It ends where no more larger ones fit, and never rises."""
Pick = Callable[[Iterable[int]], int]


def bounds(profiles: Iterable[Profile], limit: int) -> tuple[list[int], list[int]]:
    """A lower and an upper bound of `most`, in a fraction of its time.

    The upper bound lets larger pods be split: each node's profile is replaced by its concave hull, and the steps of all
    hulls are taken cheapest first. Where a step is taken as a whole the bound is reached. They are equal when each hull
    is the profile itself, as it is for sizes of which one divides the other.
    """
    total = 0
    steps: list[tuple[float, int, int]] = []
    for profile in profiles:
        total += profile[0]
        steps += _hull(profile)
    steps.sort(key=itemgetter(0))
    low, high = [total], [total]
    for _, width, loss in steps:
        if len(low) > limit:
            break
        high += [total + (-loss * part) // width for part in range(1, width + 1)]
        low += [total - loss] * width
        total -= loss
    del low[limit + 1 :], high[limit + 1 :]
    return low, high


def most(profiles: Iterable[Profile], limit: int) -> Curve:
    """The most smaller pods that fit beside each number of larger pods, up to `limit` of these."""
    return _fold(Counter(profiles), limit, max)


def fewest(profiles: Iterable[Profile], limit: int) -> Curve:
    """The fewest smaller pods that still fit, wherever the larger pods are put."""
    return _fold(Counter(profiles), limit, min)


def best_plan(options: Sequence[Mapping[int, int]], larger: int) -> tuple[int, ...] | None:
    """How to distribute the larger pods so that most smaller ones fit, or None if they cannot be.

    Args:
        options: For each node the numbers of larger pods it may get, with the smaller pods that fit beside them.
        larger: Larger pods to distribute.
    """
    best = {0: 0}
    trail: list[dict[int, int]] = []
    for option in options:
        reached: dict[int, int] = {}
        chosen: dict[int, int] = {}
        for before, value in best.items():
            for number, gain in option.items():
                now = before + number
                # Of equal plans the one that fills earlier nodes.
                if now <= larger and value + gain >= reached.get(now, 0):
                    reached[now] = value + gain
                    chosen[now] = number
        best = reached
        trail.append(chosen)
    if larger not in best:
        return None
    plan: list[int] = []
    for chosen in reversed(trail):
        plan.append(chosen[larger])
        larger -= plan[-1]
    return tuple(reversed(plan))


@lru_cache(maxsize=16384)
def _hull(profile: Profile) -> tuple[tuple[float, int, int], ...]:
    """Steps of the concave hull: loss per larger pod, larger pods, loss."""
    corners: list[int] = []
    for at in range(len(profile)):
        # One on the line stays: at each corner the bounds meet.
        while len(corners) > 1 and _slope(profile, *corners[-2:]) > _slope(profile, corners[-1], at):
            corners.pop()
        corners.append(at)
    return tuple(
        (_slope(profile, start, end), end - start, profile[start] - profile[end])
        for start, end in pairwise(corners)
    )


def _slope(profile: Profile, start: int, end: int) -> float:
    return (profile[start] - profile[end]) / (end - start)


def _fold(profiles: Counter[Profile], limit: int, pick: Pick) -> Curve:
    start: Curve = (0,)
    return reduce(
        lambda total, item: _convolve(total, _power(item[0], item[1], limit, pick), limit, pick),
        sorted(profiles.items()),
        start,
    )


@lru_cache(maxsize=4096)
def _power(profile: Profile, times: int, limit: int, pick: Pick) -> Curve:
    """`times` equal nodes, by doubling."""
    if times == 1:
        return profile
    half = _power(profile, times // 2, limit, pick)
    whole = _convolve(half, half, limit, pick)
    return _convolve(whole, profile, limit, pick) if times % 2 else whole


def _convolve(first: Curve, second: Curve, limit: int, pick: Pick) -> Curve:
    backwards = second[::-1]
    size = min(len(first) + len(second) - 1, limit + 1)
    out = []
    for total in range(size):
        low, high = max(0, total - len(second) + 1), min(total, len(first) - 1)
        start = len(second) - 1 - total + low
        out.append(pick(map(add, first[low : high + 1], backwards[start:])))
    return tuple(out)
