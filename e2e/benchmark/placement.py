"""How often a group ends whole and in one rack, by the way in which it is placed.

Random half-full clusters live side by side in one local cluster as pools: each has nodes of its own, which the node
selector of its pods names. What fills the nodes is bound by hand; then each method places the same groups with the real
scheduler, one method after the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Final

from pydantic import BaseModel

from disagg.api.names import API_VERSION, PLURAL
from e2e.benchmark.placement_methods import (
    POD_GROUPS,
    Method,
    Object,
    fillers,
    group_name,
    group_of,
    manifests,
    node_name,
)
from e2e.benchmark.placement_trials import Trial
from e2e.benchmark.run import Progress
from e2e.cluster import Cluster, WaitError, wait_until
from e2e.cluster.api import ApiClient

FILLERS: Final = "placement-fillers"
QUIET_SECONDS: Final = 12.0
"""A group with pods that no node was found for is given up when nothing has happened to it for this long. The operator
looks again after ten seconds."""
_SILENT_SECONDS: Final = 45.0
"""As above for a group whose pods nobody has said anything about."""
_POLL_SECONDS: Final = 0.5
_REQUEST_SECONDS: Final = 60.0
"""A whole collection is deleted by one request."""
_WRITERS: Final = 4
_AT_ONCE: Final = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


class Miss(BaseModel):
    """A group that the operator has not packed, and what is to be known for asking why."""

    method: str
    trial: int
    suitable: list[str]
    """Racks that could have held it."""
    free: dict[str, list[tuple[int, int, int]]]
    """Free GPUs, cores and GiB of each node, by rack."""
    prefill: tuple[int, tuple[int, int, int]]
    """Number of pods, and what each takes."""
    decode: tuple[int, tuple[int, int, int]]
    pods: list[dict[str, str]]
    """Its pods in the order in which they were created: role, node, and what the scheduler says of them."""
    condition: str
    """What the operator says of it."""


class MethodResult(BaseModel):
    """How a method fared."""

    groups: int
    packed: int
    """Groups that ended whole and in one rack."""
    whole: int
    """Groups of which all pods have a node."""
    racks_average: float
    """Racks that a group's pods are in."""
    median_seconds_to_bound: float | None
    """From the creation of a group until all its pods had a node, of those that ended whole; all groups of a batch are
    created at once."""


class PlacementResult(BaseModel):
    """What was measured."""

    seed: int
    trials: int
    racks: int
    nodes_per_rack: int
    packed_percent: dict[str, float]
    """By method: groups that ended whole and in one rack. One rack could hold the group in every trial."""
    whole_percent: dict[str, float]
    racks_average: dict[str, float]
    methods: dict[str, MethodResult]
    decision_cpu_ms: dict[str, float] = {}
    """CPU of a decision about a group, by number of nodes with ten pods each: the median."""
    decisions: dict[str, dict[str, float]] = {}
    """More about that."""
    misses: list[Miss] = []


@dataclass
class _Group:
    """A group that is being placed."""

    trial: Trial
    pool: int
    created: float = 0.0
    seen: frozenset[tuple[str, str, bool]] = frozenset()
    changed: float = 0.0
    bound: float | None = None
    pods: list[Object] = field(default_factory=list)

    def look(self, pods: list[Object], now: float) -> None:
        """Take over its pods as they are now."""
        self.pods = pods
        seen = frozenset((pod["metadata"]["name"], _node(pod), _is_unschedulable(pod)) for pod in pods)
        if seen != self.seen:
            self.seen, self.changed = seen, now
        if self.is_whole and self.bound is None:
            self.bound = now

    @property
    def is_whole(self) -> bool:
        """Whether all its pods have a node."""
        return len(self.pods) == self.trial.pods and all(map(_node, self.pods))

    def is_over(self, now: float) -> bool:
        """Whether nothing is to be expected any more."""
        quiet = now - self.changed
        waits = len(self.pods) == self.trial.pods and any(map(_is_unschedulable, self.pods))
        return self.is_whole or quiet > (QUIET_SECONDS if waits else _SILENT_SECONDS)

    def racks(self) -> Counter[str]:
        """Pods by rack."""
        names = {
            node_name(self.trial, self.pool, rack, node): f"rack-{rack}"
            for rack, nodes in enumerate(self.trial.used)
            for node in range(len(nodes))
        }
        return Counter(names[node] for pod in self.pods if (node := _node(pod)))

    @property
    def is_packed(self) -> bool:
        """Whether it is whole and in one rack."""
        return self.is_whole and len(self.racks()) == 1


class Placement:
    """Places groups in a cluster of pools.

    Args:
        cluster: A running cluster whose racks are those of `placement_methods.pools`.
        pools: How many.
    """

    def __init__(self, cluster: Cluster, pools: int) -> None:
        self._cluster = cluster
        self._pools = pools
        self._groups: dict[Method, list[_Group]] = {}
        self.misses: list[Miss] = []

    def run(self, trials: Sequence[Trial], methods: Sequence[Method], progress: Progress) -> None:
        """Place the groups of all trials, by each method.

        Args:
            trials: The trials.
            methods: The methods, whose namespaces must exist, and the operators that work there.
            progress: Told how far it is.

        Raises:
            WaitError: If pods of a batch do not go away.
        """
        self._groups = {method: [] for method in methods}
        with self._api() as api:
            for first in range(0, len(trials), self._pools):
                batch = trials[first : first + self._pools]
                self._fill(api, batch)
                for method in methods:
                    groups = self._place(api, method, batch)
                    self._groups[method] += groups
                    if method.is_ours:
                        self.misses += [_miss(api, method, group) for group in groups if not group.is_packed]
                    _clear(api, method.namespace)
                    progress(method, len(self._groups[method]), len(trials))

    def results(self) -> dict[str, MethodResult]:
        """How the methods fared."""
        return {str(method): _result(groups) for method, groups in self._groups.items()}

    def _fill(self, api: ApiClient, batch: Sequence[Trial]) -> None:
        _delete_pods(api, FILLERS)
        path = f"/api/v1/namespaces/{FILLERS}/pods"
        pods = [fillers(trial, pool, FILLERS) for pool, trial in enumerate(batch)]
        self._create((path, pod) for pod in chain.from_iterable(pods))

    def _place(self, api: ApiClient, method: Method, batch: Sequence[Trial]) -> list[_Group]:
        groups = {group_name(trial): _Group(trial, pool) for pool, trial in enumerate(batch)}
        started = time.monotonic()
        for group in groups.values():
            group.created = group.changed = started
        self._create(item for group in groups.values() for item in manifests(method, group.trial, group.pool))
        while True:
            pods: dict[str, list[Object]] = {name: [] for name in groups}
            for pod in _items(api, f"/api/v1/namespaces/{method.namespace}/pods"):
                if (name := group_of(pod)) in groups and "deletionTimestamp" not in pod["metadata"]:
                    pods[name].append(pod)
            now = time.monotonic()
            for name, group in groups.items():
                group.look(pods[name], now)
            if all(group.is_over(now) for group in groups.values()):
                return list(groups.values())
            time.sleep(_POLL_SECONDS)

    def _api(self) -> ApiClient:
        return ApiClient(self._cluster.layout, self._cluster.server, timeout=_REQUEST_SECONDS)

    def _create(self, objects: Iterable[tuple[str, Object]]) -> None:
        items = list(objects)

        def create(part: Sequence[tuple[str, Object]]) -> None:
            with self._api() as api:
                for path, manifest in part:
                    api.create(path, manifest)

        with ThreadPoolExecutor(_WRITERS) as writers:
            list(writers.map(create, [items[writer::_WRITERS] for writer in range(_WRITERS)]))


def _result(groups: Sequence[_Group]) -> MethodResult:
    seconds = [group.bound - group.created for group in groups if group.bound is not None and group.is_whole]
    return MethodResult(
        groups=len(groups),
        packed=sum(group.is_packed for group in groups),
        whole=sum(group.is_whole for group in groups),
        racks_average=round(sum(len(group.racks()) for group in groups) / max(len(groups), 1), 2),
        median_seconds_to_bound=round(median(seconds), 1) if seconds else None,
    )


def _miss(api: ApiClient, method: Method, group: _Group) -> Miss:
    trial = group.trial
    path = f"/apis/{API_VERSION}/namespaces/{method.namespace}/{PLURAL}/{group_name(trial)}"
    status = (api.get(path) or {}).get("status", {})
    conditions = [found for found in status.get("conditions", []) if found["type"] == "Packed"]
    names = {
        node_name(trial, group.pool, rack, node): f"rack-{rack} node {node}"
        for rack, nodes in enumerate(trial.used)
        for node in range(len(nodes))
    }
    return Miss(
        method=method,
        trial=trial.number,
        suitable=[f"rack-{rack}" for rack in trial.suitable],
        free={f"rack-{rack}": [tuple(node) for node in nodes] for rack, nodes in enumerate(trial.free())},
        prefill=(trial.prefill.count, tuple(trial.prefill.each)),
        decode=(trial.decode.count, tuple(trial.decode.each)),
        pods=[
            {
                "name": pod["metadata"]["name"],
                "created": pod["metadata"]["creationTimestamp"],
                "node": names.get(_node(pod), ""),
                "scheduled": _scheduled(pod),
            }
            for pod in sorted(group.pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        ],
        condition="; ".join(f"{found['reason']}: {found['message']}" for found in conditions),
    )


def _clear(api: ApiClient, namespace: str) -> None:
    """Remove the groups of a namespace, and wait until their pods are gone."""
    for collection in (
        f"apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}",
        f"apis/apps/v1/namespaces/{namespace}/deployments",
        f"apis/apps/v1/namespaces/{namespace}/replicasets",
    ):
        api.delete(f"/{collection}", _AT_ONCE)
    _delete_pods(api, namespace)
    api.delete(f"/apis/{POD_GROUPS}/namespaces/{namespace}/podgroups", _AT_ONCE)


def _delete_pods(api: ApiClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"

    def gone() -> bool:
        # Again and again: whoever made them may not have heard yet that they are not wanted.
        api.delete(path, _AT_ONCE)
        return not _items(api, f"{path}?limit=1")

    wait_until(f"the pods in {namespace} are gone", gone)


def _items(api: ApiClient, path: str) -> list[Object]:
    answer = api.get(path)
    if answer is None:
        raise WaitError(f"the API server does not know {path}")
    items: list[Object] = answer.get("items") or []
    return items


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _scheduled(pod: Object) -> str:
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled":
            at, message = condition["lastTransitionTime"], condition.get("message", "")
            return f"{condition['status']} {at} {message}".rstrip()
    return "unknown"


def _is_unschedulable(pod: Object) -> bool:
    return not _node(pod) and any(
        condition["type"] == "PodScheduled" and condition["status"] == "False"
        for condition in pod.get("status", {}).get("conditions", [])
    )
