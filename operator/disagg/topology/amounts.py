"""Amounts of resources, and what a pod asks for: the unit that nodes, pods and claims are compared in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

Amounts = dict[str, int]
"""Resource name -> thousandths of its unit: cpu in millicores, memory in thousandths of a byte."""
Requests = tuple[tuple[str, int], ...]
"""Amounts that can be hashed and shared: sorted by name, without zeros."""

PODS = "pods"
"""A node holds a limited number of pods; each asks for one."""

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_POD_LEVEL = ("cpu", "memory", "hugepages-")
"""Beginnings of the resources that the API server lets a pod ask for as a whole."""


def parse(quantities: Mapping[str, str | int | float]) -> Amounts:
    """The amounts of a resource list, rounded up as the kube-scheduler does.

    Raises:
        ValueError: If a quantity is none.
    """
    return {name: _thousandths(quantity) for name, quantity in quantities.items()}


def freeze(amounts: Amounts) -> Requests:
    """`amounts` as a value that equal ones share."""
    return _shared(tuple(sorted(amounts.items())))


def add(total: Amounts, amounts: Iterable[tuple[str, int]], *, times: int = 1) -> None:
    """Add `amounts` to `total`, `times` over. What becomes 0 leaves it, so that equal sums are equal."""
    for name, amount in amounts:
        if left := total.get(name, 0) + amount * times:
            total[name] = left
        else:
            total.pop(name, None)


def pod_requests(spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> Amounts:
    """What a pod takes of a node, by the rule of the kube-scheduler.

    The rule is `PodRequests` in k8s.io/component-helpers/resource/helpers.go. The API server's defaults (a limit
    without a request) are applied here, because a template has not passed it yet.

    Args:
        spec: Spec of a pod or of a pod template.
        status: Status of the pod. While its containers are resized, the greater of old and new amount counts.
    """
    sizes = _resized(status) if status else {}
    infeasible = bool(sizes) and _is_resize_infeasible(status or {})
    total: Amounts = {}
    for container in spec["containers"]:
        _accumulate(total, _container(container, sizes, infeasible=infeasible))
    if inits := spec.get("initContainers"):
        peak: Amounts = {}
        sidecars: Amounts = {}
        for container in inits:
            wanted = _container(container, sizes, infeasible=infeasible)
            if container.get("restartPolicy") == "Always":
                _accumulate(total, wanted)
                _accumulate(sidecars, wanted)
                _raise(peak, sidecars)
            else:
                # It runs beside the sidecars that were started before it.
                _accumulate(wanted, sidecars)
                _raise(peak, wanted)
        _raise(total, peak)
    if resources := spec.get("resources"):
        _pod_level(total, resources)
    if overhead := spec.get("overhead"):
        _accumulate(total, parse(overhead))
    total[PODS] = 1000
    # The kube-scheduler does not look at a resource of which a pod asks for nothing, even where it is overcommitted.
    return {name: amount for name, amount in total.items() if amount > 0}


def _container(
    container: Mapping[str, Any], sizes: Mapping[str, list[Amounts]], *, infeasible: bool
) -> Amounts:
    wanted = _requests(container.get("resources") or {})
    if actual := sizes.get(container["name"]):
        if infeasible:
            wanted = {}
        for amounts in actual:
            _raise(wanted, amounts)
    return wanted


def _requests(resources: Mapping[str, Any]) -> Amounts:
    return parse((resources.get("limits") or {}) | (resources.get("requests") or {}))


def _pod_level(total: Amounts, resources: Mapping[str, Any]) -> None:
    """Let what the pod asks for as a whole replace the sum of its containers."""
    requests = resources.get("requests") or {}
    total |= {name: amount for name, amount in parse(requests).items() if name.startswith(_POD_LEVEL)}
    for name, limit in parse(resources.get("limits") or {}).items():
        if name.startswith(_POD_LEVEL):
            total.setdefault(name, limit)


def _resized(status: Mapping[str, Any]) -> dict[str, list[Amounts]]:
    """By container what the kubelet has set aside for it and what it runs with."""
    sizes: dict[str, list[Amounts]] = {}
    for kind in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(kind) or ():
            actual = (container.get("resources") or {}).get("requests")
            if amounts := [parse(found) for found in (actual, container.get("allocatedResources")) if found]:
                sizes[container["name"]] = amounts
    return sizes


def _is_resize_infeasible(status: Mapping[str, Any]) -> bool:
    return any(
        condition["type"] == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )


def _accumulate(total: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        if amount > total.get(name, 0):
            total[name] = amount


_MOST_DIGITS = 40
"""Kubernetes holds 2^63 at most. Far greater numbers cost time, and overflow elsewhere."""


@lru_cache(maxsize=16384)
def _thousandths(quantity: str | float) -> int:
    """A quantity, by the grammar of https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"{quantity!r} is not a quantity")
    number, exponent, suffix = match.groups()
    value = Decimal(number) * 1000
    if suffix in _BINARY:
        value *= Decimal(1024) ** _BINARY[suffix]
    elif suffix:
        value = value.scaleb(_DECIMAL[suffix])
    elif exponent:
        value = value.scaleb(int(exponent))
    if value.adjusted() > _MOST_DIGITS:
        raise ValueError(f"{quantity!r} is more than there is of anything")
    return int(value.to_integral_value(rounding=ROUND_CEILING))


@lru_cache(maxsize=4096)
def _shared(requests: Requests) -> Requests:
    return requests
