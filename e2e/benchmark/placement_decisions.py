"""What a decision about a group costs the operator, by the size of the cluster. In this process, without a cluster."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from statistics import median, quantiles
from typing import Any, Final

from disagg.api.resource import parse
from disagg.build.objects import plan
from disagg.decide.environment import Environment
from disagg.decide.observed import Observed
from disagg.topology.inventory import Inventory
from e2e.benchmark.placement_methods import Method, manifests
from e2e.benchmark.placement_trials import Amount, Pods, Trial
from e2e.cluster.racks import NodeTemplate, Rack, Racks

PODS_PER_NODE: Final = 10
_NODES_PER_RACK: Final = 16
_DECISIONS: Final = 40


def decision_costs(nodes: int) -> dict[str, float]:
    """Measure decisions about a new group in a half-full cluster.

    Between two decisions a pod somewhere goes and another one comes, as it is in life.

    Args:
        nodes: Nodes of the cluster; each has ten pods.

    Returns:
        `cpu_ms_median`, `cpu_ms_p95` and `cpu_ms_first` of a decision; `put_node_us` and `put_pod_us`, the CPU to take
        over one; `memory_mb` of what is kept of all of them.
    """
    inventory, node_seconds, pod_seconds = _filled(nodes)
    # Only what is kept counts: the objects themselves are dropped one by one.
    gc.collect()
    tracemalloc.start()
    kept = _filled(nodes)
    gc.collect()
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    environment = Environment(inventory=inventory)
    group = Trial(0, (), Pods(8, Amount(2, 8, 64)), Pods(4, Amount(4, 16, 128)), ())
    raw = manifests(Method.OURS, group, 0)[0][1]
    for role in ("prefill", "decode"):
        del raw["spec"][role]["podTemplate"]
    raw["metadata"] |= {"uid": "0", "generation": 1}
    resource = parse(raw)
    random = Random(nodes)  # noqa: S311 - it is to be repeated
    costs = []
    for number in range(_DECISIONS):
        place = random.randrange(nodes)
        inventory.remove_pod(f"{place}-{number % PODS_PER_NODE}")
        inventory.put_pod(_pod(f"new-{number}", place, random))
        started = time.process_time()
        decisions = plan(resource, Observed(resource.metadata.name), environment, datetime.now(UTC))
        costs.append(1000 * (time.process_time() - started))
        if decisions.groups[0].placement is None or decisions.groups[0].placement.domain is None:
            raise AssertionError("a half-full cluster has a rack for a small group")
    return {
        "cpu_ms_median": round(median(costs), 2),
        "cpu_ms_p95": round(quantiles(costs[1:], n=20)[-1], 2),
        "cpu_ms_first": round(costs[0], 2),
        "put_node_us": round(1e6 * node_seconds / nodes, 1),
        "put_pod_us": round(1e6 * pod_seconds / nodes / PODS_PER_NODE, 1),
        "memory_mb": round(memory / 1e6, 1),
    }


def _filled(nodes: int) -> tuple[Inventory, float, float]:
    """An inventory, with the seconds of CPU that its nodes and its pods took."""
    inventory, random = Inventory(), Random(nodes)  # noqa: S311 - it is to be repeated
    node_seconds = pod_seconds = 0.0
    for number, node in enumerate(_nodes(nodes)):
        pods = [_pod(f"{number}-{pod}", number, random) for pod in range(PODS_PER_NODE)]
        started = time.process_time()
        inventory.put_node(node)
        between = time.process_time()
        for pod in pods:
            inventory.put_pod(pod)
        node_seconds += between - started
        pod_seconds += time.process_time() - between
    return inventory, node_seconds, pod_seconds


def _nodes(number: int) -> Iterator[dict[str, Any]]:
    template = NodeTemplate(capacity={"nvidia.com/gpu": 8, "cpu": 96, "memory": "768Gi"})
    for first in range(0, number, _NODES_PER_RACK):
        size = min(_NODES_PER_RACK, number - first)
        name = f"rack-{first // _NODES_PER_RACK}"
        rack = Rack(name=name, block=f"block-{first // 256}", zone="zone-0", nodes=size)
        for position, node in enumerate(Racks(node=template, racks=[rack]).nodes()):
            node["metadata"]["name"] = _node_name(first + position)
            node["metadata"]["labels"]["kubernetes.io/hostname"] = _node_name(first + position)
            node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            yield node


def _node_name(number: int) -> str:
    return f"node-{number}"


def _pod(uid: str, node: int, random: Random) -> dict[str, Any]:
    """A pod: four of ten take a GPU."""
    requests = {"cpu": f"{random.randrange(100, 4000, 100)}m", "memory": f"{random.randrange(1, 32)}Gi"}
    if random.random() < 0.4:  # noqa: PLR2004 - as said above
        requests["nvidia.com/gpu"] = "1"
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "default", "labels": {"app": "other"}},
        "spec": {
            "nodeName": _node_name(node),
            "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}],
        },
        "status": {"phase": "Running"},
    }
