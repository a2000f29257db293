"""What there is to see: racks of nodes of GPUs, the pods on them, the resource. Pure, from API objects."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from e2e.cluster.racks import RACK_LABEL

GPU: Final = "nvidia.com/gpu"
ROLE_LABEL: Final = "disagg.dev/role"
ROLES: Final = ("prefill", "decode", "router")

Object = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """A pod that takes GPUs, or waits for some.

    Attributes:
        name: Its name.
        role: `prefill`, `decode`, `router`, or empty if it is of another workload.
        gpus: How many GPUs it takes.
        ready: Whether it is ready and not on its way out.
    """

    name: str
    role: str
    gpus: int
    ready: bool


@dataclass(frozen=True)
class Node:
    """A node.

    Attributes:
        name: Its name.
        gpus: GPUs that it has.
        pods: Pods that take some of them, the oldest first.
    """

    name: str
    gpus: int
    pods: tuple[Pod, ...]

    def cells(self) -> Iterator[tuple[int, Pod] | None]:
        """Its GPUs, each with the pod that takes it and that pod's position on the node, or None."""
        taken = [(number, pod) for number, pod in enumerate(self.pods) for _ in range(pod.gpus)]
        yield from taken[: self.gpus]
        yield from (None for _ in range(self.gpus - len(taken)))


@dataclass(frozen=True)
class Rack:
    """A rack.

    Attributes:
        name: Value of the rack label.
        nodes: The nodes in it, by name.
    """

    name: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Condition:
    """A condition of the resource, as in its status."""

    kind: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class Resource:
    """The resource.

    Attributes:
        name: Its name.
        model: The model's URI.
        endpoint: URL that clients call, empty until the operator has written it.
        domains: Where it is packed, empty until the operator has written it.
        ready: Ready of desired pods by role, such as `2/4`; roles with no status yet are absent.
        conditions: Those of its present generation.
    """

    name: str
    model: str
    endpoint: str
    domains: str
    ready: dict[str, str]
    conditions: tuple[Condition, ...]

    @property
    def is_ready(self) -> bool:
        """Whether the operator says so of the present generation."""
        return any(condition.kind == "Ready" and condition.status == "True" for condition in self.conditions)

    def summary(self) -> str:
        """One line: pods by role, and why it is not ready."""
        counts = ", ".join(f"{role} {count}" for role, count in self.ready.items())
        ready = next((condition for condition in self.conditions if condition.kind == "Ready"), None)
        state = f"Ready={ready.status} {ready.reason}: {ready.message}" if ready else "no status yet"
        return f"{counts}; {state}" if counts else state


@dataclass(frozen=True)
class Scene:
    """Everything at one moment.

    Attributes:
        racks: By name.
        unbound: Pods that no node has yet, by role.
        resource: The resource; None before it exists.
    """

    racks: tuple[Rack, ...]
    unbound: dict[str, int]
    resource: Resource | None


def racks_of(seen: Scene, role: str) -> dict[str, int]:
    """Pods of a role by the rack that they run in."""
    counts = {
        rack.name: sum(pod.role == role for node in rack.nodes for pod in node.pods) for rack in seen.racks
    }
    return {name: count for name, count in counts.items() if count}


def scene(nodes: Iterable[Object], pods: Iterable[Object], resource: Object | None) -> Scene:
    """What there is to see.

    Args:
        nodes: Node objects.
        pods: Pod objects.
        resource: The DisaggregatedInference, if it exists.
    """
    living = [pod for pod in pods if pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}]
    living.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
    by_rack = groupby(sorted(nodes, key=_place), key=_rack_name)
    racks = tuple(Rack(name, tuple(_node(node, living) for node in group)) for name, group in by_rack)
    roles = [_role(pod) for pod in living if "nodeName" not in pod["spec"]]
    return Scene(
        racks=racks,
        unbound={role: roles.count(role) for role in ROLES if role in roles},
        resource=None if resource is None else _resource(resource),
    )


def _place(node: Object) -> tuple[str, list[tuple[int, str]]]:
    """Racks by name, and in them nodes by name, n10 after n9."""
    parts = re.split(r"(\d+)", node["metadata"]["name"])
    return _rack_name(node), [(int(part) if part.isdigit() else 0, part) for part in parts]


def _rack_name(node: Object) -> str:
    return str(node["metadata"].get("labels", {}).get(RACK_LABEL, ""))


def _node(node: Object, pods: list[Object]) -> Node:
    name = node["metadata"]["name"]
    here = [_pod(pod) for pod in pods if pod["spec"].get("nodeName") == name]
    gpus = int(node["status"].get("allocatable", {}).get(GPU, 0))
    return Node(name, gpus, tuple(pod for pod in here if pod.gpus))


def _pod(pod: Object) -> Pod:
    limits = [container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]]
    conditions = {
        condition["type"]: condition["status"] for condition in pod.get("status", {}).get("conditions", [])
    }
    leaving = "deletionTimestamp" in pod["metadata"]
    return Pod(
        name=pod["metadata"]["name"],
        role=_role(pod),
        gpus=sum(int(limit.get(GPU, 0)) for limit in limits),
        ready=conditions.get("Ready") == "True" and not leaving,
    )


def _role(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get(ROLE_LABEL, ""))


def _resource(resource: Object) -> Resource:
    status = resource.get("status", {})
    # What was said of an earlier generation is not shown: it would look ready for a moment after each change.
    current = status.get("observedGeneration") == resource["metadata"]["generation"]
    roles = status.get("roles", {})
    return Resource(
        name=resource["metadata"]["name"],
        model=resource["spec"]["model"]["uri"],
        endpoint=status.get("endpoint", ""),
        domains=status.get("domains", ""),
        ready={role: roles[role]["ready"] for role in ROLES if role in roles},
        conditions=tuple(
            Condition(entry["type"], entry["status"], entry["reason"], entry["message"])
            for entry in (status.get("conditions", []) if current else [])
        ),
    )
