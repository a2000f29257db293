"""Which domain a group gets, of those that were surveyed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from disagg.topology.capacity import DomainFit

_BYTES = ("memory", "ephemeral-storage", "hugepages-")
_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_STEP = 1024


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice.

    Attributes:
        domain: The domain, or None if none holds the minimum.
        fit: How the group fits there.
        best: Without a domain, the one that lacks least.
    """

    domain: str | None
    fit: DomainFit | None
    best: DomainFit | None


def choose(fits: Mapping[str, DomainFit], current: str | None, *, avoid: Collection[str] = ()) -> Choice:
    """Keep the current domain while it holds the minimum, else take the one with most room to grow.

    Of domains with equal room the tightest is taken, so that whole racks stay free for others.

    Args:
        fits: The domains.
        current: The domain that the group has, or None.
        avoid: Domains that are taken only if no other holds the minimum.
    """
    if current is not None and (kept := fits.get(current)) is not None and kept.fits_minimum:
        return Choice(current, kept, None)
    suitable = [fit for fit in fits.values() if fit.fits_minimum]
    if suitable:
        fit = min(
            suitable,
            key=lambda fit: (fit.domain in avoid, not fit.fits_maximum, -fit.room, fit.spare, fit.domain),
        )
        return Choice(fit.domain, fit, None)
    best = min(
        fits.values(),
        key=lambda fit: (fit.missing, -fit.largest_free, -fit.free, fit.domain),
        default=None,
    )
    return Choice(None, None, best)


def describe(fit: DomainFit) -> str:
    """What a domain has of the resource that the group lacks, for people."""
    free, total, largest = (_text(fit.scarce, amount) for amount in (fit.free, fit.total, fit.largest_free))
    return (
        f"{fit.domain} has {free} of {total} {fit.scarce} free; "
        f"largest free block {largest} on node {fit.largest_node}"
    )


def _text(resource: str, thousandths: int) -> str:
    amount = thousandths / 1000
    if not resource.startswith(_BYTES):
        return f"{amount:.15g}"
    power = 0
    while amount >= _STEP and power < len(_UNITS) - 1:
        amount /= _STEP
        power += 1
    return f"{amount:.4g}{_UNITS[power]}"
