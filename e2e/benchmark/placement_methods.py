"""The ways in which a group can be placed, as the objects that are created for it. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from disagg.api.names import API_VERSION, KIND, NAME_LABEL, PLURAL
from e2e.benchmark.placement_trials import Amount, Pods, Trial
from e2e.cluster.racks import RACK_LABEL, NodeTemplate, Rack, Racks

POOL_LABEL: Final = "benchmark.disagg.dev/pool"
"""Node label that keeps the clusters of trials apart which live side by side in one."""
GROUP_LABEL: Final = "benchmark.disagg.dev/group"
"""Label of the pods that are placed without the operator: the group they belong to."""
GPU: Final = "nvidia.com/gpu"
POD_GROUPS: Final = "scheduling.k8s.io/v1beta1"

Object = dict[str, Any]


class Method(StrEnum):
    """How a group is placed."""

    PLAIN = "plain"
    """Deployments, and nothing else."""
    AFFINITY = "affinity"
    """Deployments whose pods must be in one rack, by podAffinity on the group's label."""
    POD_GROUP = "podgroup"
    """A PodGroup with the rack as constraint: a gang of all pods."""
    POD_GROUP_BASIC = "podgroup_basic"
    """A PodGroup with the rack as constraint, placed pod by pod."""
    OURS = "ours"
    """The operator, mode Preferred."""
    OURS_REQUIRED = "ours_required"
    """The operator, mode Required, with PodGroups."""
    OURS_REQUIRED_AFFINITY = "ours_required_affinity"
    """The operator, mode Required, on a cluster without PodGroups."""

    @property
    def is_ours(self) -> bool:
        """Whether the operator places the group."""
        return self in (Method.OURS, Method.OURS_REQUIRED, Method.OURS_REQUIRED_AFFINITY)

    @property
    def namespace(self) -> str:
        """Namespace for its groups."""
        return f"placement-{self.replace('_', '-')}"


def pools(number: int, racks: int, nodes: int, capacity: Amount) -> Racks:
    """The racks of a cluster in which the clusters of several trials live side by side.

    Args:
        number: How many.
        racks: Racks of each.
        nodes: Nodes of each rack.
        capacity: What each node has.
    """
    return Racks(
        node=NodeTemplate(capacity=dict(_quantities(capacity))),
        racks=[
            Rack(
                name=f"p{pool}-rack-{rack}",
                block=f"p{pool}-block-{rack // 2}",
                zone="zone-0",
                nodes=nodes,
                labels={POOL_LABEL: str(pool)},
            )
            for pool in range(number)
            for rack in range(racks)
        ],
    )


def node_name(trial: Trial, pool: int, rack: int, node: int) -> str:
    """Name of a node of a pool, as the local cluster gives it.

    Args:
        trial: The trial that uses the pool.
        pool: The pool.
        rack: Rack in it.
        node: Node in the rack.
    """
    return f"gpu-r{pool * len(trial.used) + rack}-n{node}"


def fillers(trial: Trial, pool: int, namespace: str) -> list[Object]:
    """Pods that take what is taken already: one on each node that is not empty.

    Args:
        trial: The trial.
        pool: Where it is played.
        namespace: Namespace of the pods.
    """
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"filler-{pool}-{rack}-{node}", "namespace": namespace},
            "spec": {
                "nodeName": node_name(trial, pool, rack, node),
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "containers": [_container(amount)],
            },
        }
        for rack, nodes in enumerate(trial.used)
        for node, amount in enumerate(nodes)
        if any(amount)
    ]


def manifests(method: Method, trial: Trial, pool: int) -> list[tuple[str, Object]]:
    """The objects of a group, each with the path of its collection, in the order of their creation.

    Args:
        method: How the group is placed.
        trial: The trial.
        pool: Where it is played.
    """
    root = f"namespaces/{method.namespace}"
    if method.is_ours:
        return [(f"/apis/{API_VERSION}/{root}/{PLURAL}", _resource(method, trial, pool))]
    objects = []
    if method in (Method.POD_GROUP, Method.POD_GROUP_BASIC):
        objects.append((f"/apis/{POD_GROUPS}/{root}/podgroups", _pod_group(method, trial)))
    roles = {"prefill": trial.prefill, "decode": trial.decode}
    return objects + [
        (f"/apis/apps/v1/{root}/deployments", _deployment(method, trial, pool, role, pods))
        for role, pods in roles.items()
    ]


def group_name(trial: Trial) -> str:
    """Name of the group of a trial."""
    return f"group-{trial.number}"


def group_of(pod: Object) -> str | None:
    """Name of the group that a pod belongs to, whoever made it."""
    labels: dict[str, str] = pod["metadata"].get("labels", {})
    return labels.get(GROUP_LABEL) or labels.get(NAME_LABEL)


def _resource(method: Method, trial: Trial, pool: int) -> Object:
    def role(pods: Pods) -> Object:
        requests = {name: amount for name, amount in _quantities(pods.each) if name != GPU}
        return {
            "replicas": pods.count,
            "parallelism": {"tensor": pods.each.gpus},
            "resources": {"requests": requests},
            "podTemplate": {"spec": {"nodeSelector": {POOL_LABEL: str(pool)}}},
        }

    mode = "Preferred" if method is Method.OURS else "Required"
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": group_name(trial), "namespace": method.namespace},
        "spec": {
            "model": {"uri": "hf://Qwen/Qwen3-0.6B"},
            # Of vLLM's pods one role's size must divide the other's.
            "engine": {"kind": "custom", "image": "example.com/engine:1"},
            "prefill": role(trial.prefill),
            "decode": role(trial.decode),
            "router": {"kind": "none"},
            "topologyConstraint": {"packDomain": "rack", "mode": mode},
        },
    }


def _pod_group(method: Method, trial: Trial) -> Object:
    policy: Object = {"gang": {"minCount": trial.pods}} if method is Method.POD_GROUP else {"basic": {}}
    return {
        "apiVersion": POD_GROUPS,
        "kind": "PodGroup",
        "metadata": {"name": group_name(trial), "namespace": method.namespace},
        "spec": {
            "schedulingPolicy": policy,
            "schedulingConstraints": {"topology": [{"key": RACK_LABEL}]},
        },
    }


def _deployment(method: Method, trial: Trial, pool: int, role: str, pods: Pods) -> Object:
    group = group_name(trial)
    labels = {GROUP_LABEL: group, "role": role}
    spec: Object = {
        "nodeSelector": {POOL_LABEL: str(pool)},
        "terminationGracePeriodSeconds": 0,
        "containers": [_container(pods.each)],
    }
    if method is Method.AFFINITY:
        term = {"labelSelector": {"matchLabels": {GROUP_LABEL: group}}, "topologyKey": RACK_LABEL}
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if method in (Method.POD_GROUP, Method.POD_GROUP_BASIC):
        spec["schedulingGroup"] = {"podGroupName": group}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{group}-{role}", "namespace": method.namespace},
        "spec": {
            "replicas": pods.count,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _container(amount: Amount) -> Object:
    quantities = dict(_quantities(amount))
    resources: Object = {"requests": quantities}
    if amount.gpus:
        resources["limits"] = {GPU: quantities[GPU]}
    return {"name": "main", "image": "example.com/engine:1", "resources": resources}


def _quantities(amount: Amount) -> list[tuple[str, str]]:
    quantities = [(GPU, str(amount.gpus)), ("cpu", str(amount.cpu)), ("memory", f"{amount.memory}Gi")]
    return [(name, text) for (name, text), number in zip(quantities, amount, strict=True) if number]
