"""Which nodes a pod may run on: the kube-scheduler's filters that look at a node alone, as far as pods use them here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from disagg.topology.amounts import Requests, freeze, pod_requests
from disagg.topology.levels import HOSTNAME
from disagg.topology.nodes import Node, Taint

_NAME_FIELD = "metadata.name"
_CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class Requirement(NamedTuple):
    """An expression on a label, or on the node's name if `field`. An operator that is not known holds nowhere."""

    key: str
    operator: str
    values: tuple[str, ...]
    field: bool = False


Term = tuple[Requirement, ...]
"""Requirements that must all hold. One without any holds nowhere."""


class Toleration(NamedTuple):
    """A toleration. An empty key or effect stands for each."""

    key: str
    operator: str
    value: str
    effect: str


NodeRules = tuple[tuple[tuple[str, str], ...], tuple[Term, ...] | None, tuple[Toleration, ...]]
"""The fields of a shape that choose among nodes, whatever is free there."""


@dataclass(frozen=True, slots=True)
class PodShape:
    """What a pod needs of a node. Pods of one template have one shape.

    Attributes:
        requests: What it takes.
        node_selector: Labels that the node must have.
        affinity: Required node affinity, of which one term must hold; None without one.
        tolerations: Taints that it can stand.
        one_per_node: Whether it keeps others of its kind away from its node.
    """

    requests: Requests
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    one_per_node: bool = False

    @property
    def node_rules(self) -> NodeRules:
        """What `is_eligible` depends on."""
        return self.node_selector, self.affinity, self.tolerations


def shape_of(template: Mapping[str, Any]) -> PodShape:
    """The shape of the pods of a template.

    Args:
        template: Metadata and spec of a pod.
    """
    spec = template["spec"]
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    apart = (affinity.get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    labels = (template.get("metadata") or {}).get("labels") or {}
    return PodShape(
        requests=freeze(pod_requests(spec)),
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        affinity=None
        if required is None
        else tuple(_term(term) for term in required.get("nodeSelectorTerms") or ()),
        tolerations=tuple(
            Toleration(
                toleration.get("key") or "",
                toleration.get("operator") or "Equal",
                toleration.get("value") or "",
                toleration.get("effect") or "",
            )
            for toleration in spec.get("tolerations") or ()
        ),
        one_per_node=any(
            term["topologyKey"] == HOSTNAME and _selects(term.get("labelSelector"), labels)
            for term in apart or ()
        ),
    )


def is_eligible(node: Node, shape: PodShape) -> bool:
    """Whether a pod of `shape` may run on `node` if there is room."""
    if not node.ready:
        return False
    labels = node.labels
    if any(labels.get(key) != value for key, value in shape.node_selector):
        return False
    if shape.affinity is not None and not any(_holds(term, node) for term in shape.affinity):
        return False
    if node.unschedulable and not _tolerates(shape.tolerations, _CORDONED):
        return False
    return all(_tolerates(shape.tolerations, taint) for taint in node.taints)


def _term(term: Mapping[str, Any]) -> Term:
    return (
        *_requirements(term.get("matchExpressions") or (), field=False),
        *_requirements(term.get("matchFields") or (), field=True),
    )


def _requirements(expressions: Sequence[Mapping[str, Any]], *, field: bool) -> Term:
    return tuple(
        Requirement(item["key"], item["operator"], tuple(item.get("values") or ()), field)
        for item in expressions
    )


def _holds(term: Term, node: Node) -> bool:
    names = {_NAME_FIELD: node.name}
    return bool(term) and all(
        _matches(requirement, names if requirement.field else node.labels) for requirement in term
    )


def _matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(requirement.operator, value, requirement.values)
        case _:
            return False


def _compares(operator: str, value: str, bounds: tuple[str, ...]) -> bool:
    try:
        found, bound = int(value), int(bounds[0])
    except (ValueError, IndexError):
        return False
    return found > bound if operator == "Gt" else found < bound


def _tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    return any(
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (
            toleration.operator == "Exists"
            or (toleration.operator == "Equal" and toleration.value == taint.value)
        )
        for toleration in tolerations
    )


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches. No selector matches nothing, an empty one everything."""
    if selector is None:
        return False
    return all(
        labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()
    ) and all(
        _matches(requirement, labels)
        for requirement in _requirements(selector.get("matchExpressions") or (), field=False)
    )
