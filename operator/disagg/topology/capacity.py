"""Which domains can hold a group: the pods of one or two roles, on nodes that share the value of a label.

The kube-scheduler places one pod at a time and never looks ahead, so a rack that its first pods choose may be too small
for the rest. Whether a rack is large enough is answered here exactly, over all resources and node by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from disagg.api.names import RoleName
from disagg.topology.amounts import PODS, Amounts
from disagg.topology.claims import is_accelerator, weight
from disagg.topology.eligibility import PodShape
from disagg.topology.groups import GroupKey
from disagg.topology.inventory import Inventory, NodeUse
from disagg.topology.packing import Curve, Profile, bounds, most

HEADROOM_LIMIT = 100


@dataclass(frozen=True, slots=True)
class RoleDemand:
    """What a role of a group needs.

    Attributes:
        role: The role.
        shape: Shape of its pods.
        minimum: Pods that must find room.
        maximum: Pods that it may grow to.
    """

    role: RoleName
    shape: PodShape
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class GroupDemand:
    """What a group needs: one or two roles."""

    roles: tuple[RoleDemand, ...]


@dataclass(frozen=True, slots=True)
class DomainFit:
    """How a group fits into a domain. Its own pods count as free, other groups' claims as taken.

    Amounts are in thousandths of the unit of `scarce`.

    Attributes:
        domain: Value of the node label.
        nodes: Nodes that at least one role may run on.
        fits_minimum: Whether all roles' minimum fits at once.
        fits_maximum: Whether all roles' maximum fits at once.
        room: How far all roles can grow at once on the way from minimum to maximum: 0 to 1.
        headroom: Pods that fit in addition to those that run now, of each role alone.
        scarce: The resource that the demand lacks first.
        free: What is free of it.
        total: What there is of it.
        largest_free: The most of it that is free on one node.
        largest_node: That node.
        missing: What the pods of the minimum that find no room would take of the demand's scarce resource.
        spare: What is left of the demand's scarce resource beside the maximum, or the minimum if only that fits.
    """

    domain: str
    nodes: int
    fits_minimum: bool
    fits_maximum: bool
    room: float
    headroom: dict[RoleName, int]
    scarce: str
    free: int
    total: int
    largest_free: int
    largest_node: str
    missing: int
    spare: int


class Row(NamedTuple):
    """A node as the demand sees it.

    Attributes:
        use: The node.
        free: What is free of each resource that the demand asks for.
        fit: How pods fit there.
    """

    use: NodeUse
    free: tuple[int, ...]
    fit: NodeFit


class NodeFit(NamedTuple):
    """How pods fit on a node.

    Attributes:
        larger: Pods of the larger role alone.
        smaller: Pods of the smaller role alone.
        profile: Smaller pods beside each number of larger ones, none above the maximum.
    """

    larger: int
    smaller: int
    profile: Profile


class Sizes(NamedTuple):
    """The two roles as counts: of larger pods and of smaller pods."""

    larger: int
    smaller: int


class _Packed(NamedTuple):
    fits_minimum: bool
    fits_maximum: bool
    room: float
    lacking: Sizes


def survey(  # noqa: PLR0913 - two of them are options
    inventory: Inventory,
    key: str,
    demand: GroupDemand,
    group: GroupKey,
    *,
    only: str | None = None,
    limit: int = HEADROOM_LIMIT,
) -> dict[str, DomainFit]:
    """How a group fits into each domain that has nodes for it.

    Args:
        inventory: The cluster.
        key: Node label whose values are the domains.
        demand: What the group needs.
        group: The group: its own pods are no obstacle to it, nor is its own claim.
        only: The one domain to look at.
        limit: Headroom that is enough to know.
    """
    domains = inventory.domains(key)
    names = domains if only is None else [only] if only in domains else []
    within = None if only is None else (key, only)
    surveyor = Surveyor(inventory, demand, group, within=within, limit=limit)
    order = surveyor.scarcest(use for name in names for use in domains[name])
    # One domain after the other: rows of a whole cluster at once would have the garbage collector look at everything.
    return {name: surveyor.fit(name, rows, order) for name in names if (rows := surveyor.rows(domains[name]))}


class Surveyor:
    """A demand, made ready to be compared with many nodes: all of them, or those `within` a domain."""

    def __init__(
        self,
        inventory: Inventory,
        demand: GroupDemand,
        group: GroupKey,
        *,
        within: tuple[str, str] | None = None,
        limit: int = HEADROOM_LIMIT,
    ) -> None:
        # All nodes must agree on which role is the larger, so no amount that is free plays a part.
        roles = sorted(demand.roles, key=lambda role: weight(role.shape.requests), reverse=True)
        self.larger = roles[0]
        self.smaller = roles[1] if len(roles) > 1 else None
        self.minimum = Sizes(roles[0].minimum, self.smaller.minimum if self.smaller else 0)
        self.maximum = Sizes(roles[0].maximum, self.smaller.maximum if self.smaller else 0)
        self._resources = sorted({name for role in roles for name, _ in role.shape.requests})
        self._wants = [
            tuple(dict(role.shape.requests).get(name, 0) for name in self._resources) for role in roles
        ]
        self._eligible = [inventory.eligible(role.shape) for role in roles]
        self._roles = roles
        self._limit = limit
        self._held = inventory.held(group)
        self._taken = inventory.taken(group, within)
        self._pods = inventory.pods(group)
        self._fits: dict[tuple[tuple[int, ...], bool, bool], NodeFit] = {}
        self._packed: dict[tuple[Profile, ...], _Packed] = {}

    def rows(self, uses: Iterable[NodeUse]) -> list[Row]:
        """The nodes that at least one role may run on."""
        resources, fits, held, taken = self._resources, self._fits, self._held, self._taken
        larger = self._eligible[0]
        smaller = self._eligible[1] if self.smaller else set[str]()
        rows = []
        for use in uses:
            name = use.name
            sorts = (name in larger, name in smaller)
            if use.node is None or sorts == (False, False):
                continue
            allocatable, used = use.node.allocatable, use.used
            free = tuple([allocatable.get(item, 0) - used.get(item, 0) for item in resources])
            if name in held or name in taken:
                free = self._shift(free, taken.get(name, {}), -1)
                free = self._shift(free, held.get(name, {}), 1)
            case = (free, *sorts)
            if (fit := fits.get(case)) is None:
                fit = fits[case] = self._node_fit(*case)
            rows.append(Row(use, free, fit))
        return rows

    def scarcest(self, uses: Iterable[NodeUse]) -> list[int]:
        """The resources of the demand, as indexes, the scarcest first: devices, then by share of what there is.

        Args:
            uses: Nodes, of which those count that at least one role may run on.
        """
        resources = self._resources
        wanted = [
            sum(
                max(role.maximum, 1) * wants[index]
                for role, wants in zip(self._roles, self._wants, strict=True)
            )
            for index in range(len(resources))
        ]
        # One kind of device needs no comparison.
        totals = [1] * len(resources)
        if sum(map(is_accelerator, resources)) != 1:
            suitable = set[str]().union(*self._eligible)
            nodes = [use.node for use in uses if use.node is not None and use.name in suitable]
            totals = [sum(node.allocatable.get(name, 0) for node in nodes) for name in resources]
        return sorted(
            range(len(resources)),
            key=lambda index: (
                not is_accelerator(resources[index]),
                resources[index] == PODS,
                -wanted[index] / max(totals[index], 1),
            ),
        )

    def fit(self, domain: str, rows: Sequence[Row], order: Sequence[int]) -> DomainFit:
        """How the group fits into a domain.

        Args:
            domain: Its name.
            rows: Its nodes.
            order: The resources, the scarcest first.
        """
        packed = self._pack(rows)
        main = order[0]
        scarce = main if packed.fits_minimum else self._lacking(rows, order)
        sizes = self.maximum if packed.fits_maximum else self.minimum
        largest = max(rows, key=lambda row: row.free[scarce])
        name = self._resources[scarce]
        left = sum(max(row.free[main], 0) for row in rows)
        return DomainFit(
            domain=domain,
            nodes=len(rows),
            fits_minimum=packed.fits_minimum,
            fits_maximum=packed.fits_maximum,
            room=packed.room,
            headroom=self._headroom(rows),
            scarce=name,
            free=left if scarce == main else sum(max(row.free[scarce], 0) for row in rows),
            total=sum(row.use.node.allocatable.get(name, 0) for row in rows if row.use.node),
            largest_free=max(largest.free[scarce], 0),
            largest_node=largest.use.name,
            missing=self._amount(packed.lacking, main),
            spare=left - self._amount(sizes, main) if packed.fits_minimum else left,
        )

    def _pack(self, rows: Sequence[Row]) -> _Packed:
        profiles = tuple(sorted([row.fit.profile for row in rows]))
        packed = self._packed.get(profiles)
        if packed is None:
            packed = self._packed[profiles] = pack(profiles, self.minimum, self.maximum)
        return packed

    def _headroom(self, rows: Sequence[Row]) -> dict[RoleName, int]:
        counts = [0, 0]
        for row in rows:
            fit = row.fit
            if row.use.name in self._held:
                fit = self._beside_own(row)
            counts[0] += fit.larger
            counts[1] += fit.smaller
        return {
            role.role: min(number, self._limit) for role, number in zip(self._roles, counts, strict=False)
        }

    def _beside_own(self, row: Row) -> NodeFit:
        """The node with the group's pods on it."""
        name = row.use.name
        sorts = [
            name in eligible and not (role.shape.one_per_node and self._pods.on(name, role.role))
            for role, eligible in zip(self._roles, self._eligible, strict=True)
        ]
        free = self._shift(row.free, self._held[name], -1)
        return self._node_fit(free, sorts[0], len(sorts) > 1 and sorts[1])

    def _node_fit(self, free: tuple[int, ...], larger: bool, smaller: bool) -> NodeFit:
        cap = max(self._limit, *self.maximum)
        wants = self._wants[0]
        number = _capacity(free, wants, 1 if self.larger.shape.one_per_node else cap) if larger else 0
        beside = 0
        top = min(number, self.maximum.larger)
        if self.smaller is None or not smaller:
            return NodeFit(number, 0, (0,) * (top + 1))
        small = self._wants[1]
        beside = _capacity(free, small, 1 if self.smaller.shape.one_per_node else cap)
        profile = [min(beside, self.maximum.smaller)]
        left: Sequence[int] = free
        for _ in range(top):
            left = [amount - want for amount, want in zip(left, wants, strict=True)]
            profile.append(_capacity(left, small, profile[-1]) if profile[-1] else 0)
        return NodeFit(number, beside, tuple(profile))

    def _lacking(self, rows: Sequence[Row], order: Sequence[int]) -> int:
        """The resource to name when the minimum does not fit: the scarcest that alone would be too little."""
        for whole in (True, False):
            for index in order:
                amounts = [row.free[index] for row in rows if row.free[index] > 0]
                if whole and sum(amounts) < self._amount(self.minimum, index):
                    return index
                if not whole and any(
                    wants[index] and sum(amount // wants[index] for amount in amounts) < role.minimum
                    for role, wants in zip(self._roles, self._wants, strict=True)
                ):
                    return index
        return order[0]

    def _amount(self, sizes: Sizes, index: int) -> int:
        return sum(number * wants[index] for number, wants in zip(sizes, self._wants, strict=False))

    def _shift(self, free: tuple[int, ...], amounts: Amounts, sign: int) -> tuple[int, ...]:
        return tuple(
            amount + sign * amounts.get(name, 0) for amount, name in zip(free, self._resources, strict=True)
        )


def pack(profiles: Sequence[Profile], minimum: Sizes, maximum: Sizes) -> _Packed:
    """Whether minimum and maximum fit, and how far the way between them goes."""
    low: Curve
    high: Curve
    low, high = bounds(profiles, maximum.larger)
    sure_minimum, sure_maximum = _holds(low, minimum), _holds(low, maximum)
    if low != high and not sure_maximum and _holds(high, minimum):
        # The bounds leave open how much fits.
        low = high = most(profiles, maximum.larger)
        sure_minimum, sure_maximum = _holds(low, minimum), _holds(low, maximum)
    return _Packed(
        fits_minimum=sure_minimum,
        fits_maximum=sure_maximum,
        room=1.0 if sure_maximum else _room(low, minimum, maximum) if sure_minimum else 0.0,
        lacking=Sizes(0, 0) if sure_minimum else _missing(high, minimum),
    )


def _holds(curve: Curve, sizes: Sizes) -> bool:
    return sizes.larger < len(curve) and curve[sizes.larger] >= sizes.smaller


def _room(curve: Curve, minimum: Sizes, maximum: Sizes) -> float:
    return max(
        min(
            _share(larger, minimum.larger, maximum.larger),
            _share(curve[larger], minimum.smaller, maximum.smaller),
        )
        for larger in range(minimum.larger, len(curve))
        if curve[larger] >= minimum.smaller
    )


def _share(number: int, minimum: int, maximum: int) -> float:
    return 1.0 if number >= maximum else (number - minimum) / (maximum - minimum)


def _missing(curve: Curve, minimum: Sizes) -> Sizes:
    """The pods that stay out if as few larger ones as possible do."""
    larger = min(minimum.larger, len(curve) - 1)
    return Sizes(minimum.larger - larger, max(minimum.smaller - curve[larger], 0))


def _capacity(free: Sequence[int], wants: Sequence[int], cap: int) -> int:
    for amount, want in zip(free, wants, strict=True):
        if want:
            if amount < want:
                return 0
            if cap * want > amount:
                cap = amount // want
    return cap
