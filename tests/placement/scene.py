"""A scene: racks of its own, what fills them, a resource that is packed into them, and where its pods landed.

All scenes share a cluster. Each has nodes that only its own pods may run on, so they can act at once.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import Any, NamedTuple, TypeVar

from disagg.build.strategic_merge import merge
from e2e.cluster import wait_until
from tests.placement.rest import Object, Rest

RACK = "topology.kubernetes.io/rack"
BLOCK = "topology.kubernetes.io/block"
ZONE = "topology.kubernetes.io/zone"
POOL = "pool"
GPU = "nvidia.com/gpu"
DINF = "/apis/disagg.dev/v1alpha1/namespaces/{namespace}/disaggregatedinferences"

PATIENCE = 150.0
"""Many scenes share two cores."""

SLOW_END = {"pod-delete.stage.kwok.x-k8s.io/delay": "60s"}
"""A pod with this annotation takes a minute to end, and holds its GPUs meanwhile."""

_T = TypeVar("_T")


class AbandonedError(Exception):
    """Nobody waits for the scene any more."""


class Way(NamedTuple):
    """How a group is kept together: what the user asks for, and what the operator may use."""

    mode: str
    mechanism: str

    def __str__(self) -> str:
        return f"{self.mode}-{self.mechanism}"


PREFERRED = Way("Preferred", "PodAffinity")
AFFINITY = Way("Required", "PodAffinity")
POD_GROUP = Way("Required", "PodGroup")
REQUIRED = (AFFINITY, POD_GROUP)
EVERY = (PREFERRED, *REQUIRED)


class Pods(NamedTuple):
    """A role: how many pods, or None if somebody else says that, and what each takes."""

    number: int | None
    gpus: int
    requests: Mapping[str, str] = {}


@dataclass(eq=False)
class Scene:
    """A scene.

    Attributes:
        rest: The API server.
        name: Name of the resource, of the pool, and the beginning of the names of nodes and racks.
        namespace: Namespace, which scenes share.
        way: How groups are kept together.
        abandoned: Set when nobody waits for the scene any more.
    """

    rest: Rest
    name: str
    namespace: str
    way: Way
    abandoned: Event
    _nodes: dict[str, str] = field(default_factory=dict, init=False)
    """Node -> its rack, in short."""

    # The stage

    def rack(  # noqa: PLR0913 - the choices are all optional
        self,
        rack: str,
        *free: int,
        gpus: int = 8,
        cpu: int = 128,
        memory: str = "1Ti",
        labels: Mapping[str, str | None] | None = None,
        block: str = "b",
        priority: str | None = None,
    ) -> list[str]:
        """A rack with a node for each of `free`: the GPUs that fillers leave free there. Returns the nodes."""
        names = []
        for number, left in enumerate(free):
            name = f"{self.name}-{rack}-{number}"
            amounts = {GPU: str(gpus), "cpu": str(cpu), "memory": memory, "pods": "110"}
            wanted = {
                "kubernetes.io/hostname": name,
                POOL: self.name,
                RACK: f"{self.name}-{rack}",
                BLOCK: f"{self.name}-{block}",
                ZONE: f"{self.name}-z",
            } | dict(labels or {})
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {key: value for key, value in wanted.items() if value is not None},
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                },
                "status": {"capacity": amounts, "allocatable": amounts},
            }
            self.rest.create("/api/v1/nodes", node)
            self._nodes[name] = rack
            names.append(name)
            if left < gpus:
                self.fill(name, gpus - left, priority=priority)
        return names

    def nodes(self, *racks: str) -> list[str]:
        """Nodes of the racks as they were made."""
        return [
            node for node in self._nodes if node.removeprefix(f"{self.name}-").rpartition("-")[0] in racks
        ]

    def racks(self, **free: Sequence[int]) -> None:
        """Racks by name, each as the GPUs that are free on its nodes; wait until pods may run there."""
        for rack, nodes in free.items():
            self.rack(rack, *nodes)
        self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        """Wait until pods may run on all nodes."""

        def usable() -> bool:
            nodes = self.rest.items(f"/api/v1/nodes?labelSelector={POOL}%3D{self.name}")
            return len(nodes) >= len(self._nodes) and all(_is_usable(node) for node in nodes)

        self.wait("the nodes take pods", usable)
        # The operator hears of them when the scheduler does, give or take some moments.
        time.sleep(1)

    def fill(
        self,
        node: str,
        gpus: int,
        *,
        name: str | None = None,
        priority: str | None = None,
        requests: Mapping[str, str] | None = None,
    ) -> str:
        """A pod of somebody else on a node. Returns its name."""
        name = name or f"filler-{node}"
        amounts = ({GPU: str(gpus)} if gpus else {}) | dict(requests or {})
        spec: Object = {"nodeName": node, "containers": [_container(amounts)]}
        if priority:
            spec["priorityClassName"] = priority
        self.rest.create(
            f"/api/v1/namespaces/{self.namespace}/pods",
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec},
        )
        return name

    def foreign_pod(self, name: str, gpus: int, *, priority: str | None = None) -> None:
        """A pod of somebody else that the scheduler is to place."""
        spec: Object = {"nodeSelector": {POOL: self.name}, "containers": [_container({GPU: str(gpus)})]}
        if priority:
            spec["priorityClassName"] = priority
        self.rest.create(
            f"/api/v1/namespaces/{self.namespace}/pods",
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec},
        )

    def empty(self, node: str) -> None:
        """Take away what fills a node."""
        self.delete_pod(f"filler-{node}")

    def delete_pod(self, name: str) -> None:
        self.rest.delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def label(self, nodes: Iterable[str], **labels: str | None) -> None:
        """Set or remove labels; `rack`, `block` and `zone` stand for their keys."""
        keys = {"rack": RACK, "block": BLOCK, "zone": ZONE}
        patch = {
            keys.get(key, key): value and f"{self.name}-{value}" if key in keys else value
            for key, value in labels.items()
        }
        for node in nodes:
            self.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": patch}})
            if "rack" in labels:
                self._nodes[node] = labels["rack"] or ""

    def cordon(self, nodes: Iterable[str], *, cordoned: bool = True) -> None:
        for node in nodes:
            self.rest.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": cordoned or None}})

    def lose(self, nodes: Iterable[str]) -> None:
        """The nodes are gone. What Kubernetes does about their pods takes it a minute."""
        for node in nodes:
            del self._nodes[node]
            self.rest.delete(f"/api/v1/nodes/{node}")

    def break_down(self, node: str) -> None:
        """The node's kubelet is heard of no more."""
        self.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        said = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "silent"}
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        status = {"status": {"conditions": [said | times]}}
        self.rest.patch(f"/api/v1/nodes/{node}/status", status)

    def drain(self, nodes: Iterable[str]) -> None:
        """`kubectl drain`, of the resource's own pods."""
        gone = set(nodes)
        self.cordon(gone)
        for pod in self.pods():
            if pod["spec"].get("nodeName") in gone and not _ends(pod):
                self.delete_pod(pod["metadata"]["name"])

    # The resource

    def manifest(
        self,
        prefill: Pods,
        decode: Pods,
        /,
        *,
        slow_end: bool = False,
        suffix: str = "",
        pod: Object | None = None,
        **spec: object,
    ) -> Object:
        """A resource whose pods run in this scene, with `pod` in their specs and `spec` laid over its own."""
        overlay: Object = {"spec": {"nodeSelector": {POOL: self.name}} | (pod or {})}
        if slow_end:
            overlay["metadata"] = {"annotations": SLOW_END}
        usual = {
            "model": {"uri": "hf://org/llama"},
            "engine": {"image": "vllm/vllm-openai:v0.32.0"},
            "accelerator": {"perRank": 0},
            "prefill": _role(prefill, overlay),
            "decode": _role(decode, overlay),
            "router": {"kind": "none"},
            "topologyConstraint": {"packDomain": "rack", "mode": self.way.mode},
        }
        return {
            "apiVersion": "disagg.dev/v1alpha1",
            "kind": "DisaggregatedInference",
            "metadata": {"name": f"{self.name}{suffix}"},
            "spec": merge(usual, spec),
        }

    def apply(
        self,
        prefill: Pods,
        decode: Pods,
        /,
        *,
        slow_end: bool = False,
        suffix: str = "",
        pod: Object | None = None,
        **spec: object,
    ) -> None:
        """Create the resource."""
        body = self.manifest(prefill, decode, slow_end=slow_end, suffix=suffix, pod=pod, **spec)
        self.rest.create(DINF.format(namespace=self.namespace), body)

    def patch(self, **spec: object) -> None:
        """Merge `spec` into the spec of the resource."""
        self.rest.patch(f"{DINF.format(namespace=self.namespace)}/{self.name}", {"spec": spec})

    def resource(self, suffix: str = "") -> Object:
        return self.rest.get(f"{DINF.format(namespace=self.namespace)}/{self.name}{suffix}")

    def deployment(self, role: str, group: int = 0) -> Object:
        return self.rest.get(self._deployment(role, group))

    def scale(self, role: str, replicas: int, group: int = 0) -> None:
        """What an autoscaler does."""
        self.rest.patch(f"{self._deployment(role, group)}/scale", {"spec": {"replicas": replicas}})

    def restart(self, *roles: str) -> None:
        """`kubectl rollout restart`."""
        for role in roles or ("prefill", "decode"):
            stamp = {"kubectl.kubernetes.io/restartedAt": str(time.time())}
            template = {"metadata": {"annotations": stamp}}
            self.rest.patch(self._deployment(role), {"spec": {"template": template}})

    def _deployment(self, role: str, group: int = 0) -> str:
        number = f"-{group}" if group else ""
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.name}-{role}{number}"

    # What came of it

    def pods(self, suffix: str = "") -> list[Object]:
        """The pods of the resource, those that end among them."""
        selector = f"disagg.dev%2Fname%3D{self.name}{suffix}"
        return self.rest.items(f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={selector}")

    def landed(self, *, group: int | None = None, suffix: str = "") -> dict[str, Counter[str]]:
        """Pods that run and are to stay: rack -> role -> how many."""
        landed: dict[str, Counter[str]] = {}
        for pod in self.pods(suffix):
            labels = pod["metadata"]["labels"]
            node = pod["spec"].get("nodeName")
            if not node or _ends(pod) or group not in (None, int(labels["disagg.dev/group"])):
                continue
            landed.setdefault(self._nodes.get(node, "?"), Counter())[labels["disagg.dev/role"]] += 1
        return landed

    def waiting(self, suffix: str = "") -> int:
        """Pods without a node."""
        return sum(not pod["spec"].get("nodeName") and not _ends(pod) for pod in self.pods(suffix))

    def ending(self) -> int:
        return sum(map(_ends, self.pods()))

    def runs(self, prefill: int, decode: int, *, suffix: str = "", seconds: float = PATIENCE) -> set[str]:
        """Wait until exactly so many pods run, and none waits or ends. Returns the racks they landed in."""
        wanted = {"prefill": prefill, "decode": decode}

        def there() -> bool:
            pods = self.pods(suffix)
            roles = Counter(pod["metadata"]["labels"]["disagg.dev/role"] for pod in pods)
            return {role: roles[role] for role in wanted} == wanted and all(
                pod["spec"].get("nodeName") in self._nodes and not _ends(pod) and _is_ready(pod)
                for pod in pods
            )

        self.wait(f"{prefill} prefill and {decode} decode pods run", there, seconds=seconds)
        return set(self.landed(suffix=suffix))

    def rolled_out(self, *roles: str, seconds: float = 420.0) -> None:
        """Wait until each role's pods are all of its latest template, and those before are gone."""

        def done(role: str) -> bool:
            found = self.deployment(role)
            spec, status = found["spec"], found.get("status", {})
            return bool(
                status.get("observedGeneration", 0) >= found["metadata"]["generation"]
                and status.get("updatedReplicas", 0) == spec["replicas"]
                and status.get("readyReplicas", 0) == spec["replicas"]
                and status.get("replicas", 0) == spec["replicas"]
            )

        names = roles or ("prefill", "decode")
        self.wait("the rollout is over", lambda: all(map(done, names)) and not self.ending(), seconds=seconds)

    def condition(self, kind: str = "Packed", suffix: str = "") -> Object:
        """A condition at the present generation; empty until there is one."""
        resource = self.resource(suffix)
        generation = resource["metadata"]["generation"]
        for found in resource.get("status", {}).get("conditions", []):
            if found["type"] == kind and found["observedGeneration"] == generation:
                return dict(found)
        return {}

    def says(self, reason: str, *, suffix: str = "", seconds: float = PATIENCE) -> str:
        """Wait until the condition Packed has this reason. Returns its message."""

        def reached() -> Object:
            found = self.condition(suffix=suffix)
            return found if found.get("reason") == reason else {}

        return str(self.wait(f"Packed says {reason}", reached, seconds=seconds)["message"])

    def tells(self, *, number: int = 0, **fields: object) -> None:
        """Wait until the status says this of a group."""
        self.wait(
            f"the status tells {fields}",
            lambda: {key: self.group(number).get(key) for key in fields} == fields,
        )

    def group(self, number: int = 0, suffix: str = "") -> Object:
        """What the status says of a group, racks in short."""
        text = json.dumps(self.resource(suffix)["status"]["groups"][number])
        return dict(json.loads(text.replace(f"{self.name}-", "")))

    def column(self, suffix: str = "") -> list[str]:
        """The column Domains, racks in short."""
        return str(self.resource(suffix)["status"].get("domains", "")).replace(f"{self.name}-", "").split(",")

    def short(self, text: str) -> str:
        """Without the beginnings of names."""
        return text.replace(f"{self.name}-", "")

    def comes_together_in(self, rack: str, prefill: int, decode: int) -> None:
        """Wait until the pods, some of which may have begun elsewhere, are in one rack, and the status says so."""
        wanted = {rack: {"prefill": prefill, "decode": decode}}

        def there() -> bool:
            return {name: dict(roles) for name, roles in self.landed().items()} == wanted

        self.wait(f"the group is in {rack}", there, seconds=300)
        self.is_whole_in(rack, prefill, decode)

    def is_whole_in(
        self, rack: str, prefill: int, decode: int, *, suffix: str = "", mechanism: str | None = None
    ) -> None:
        """Wait for the pods, and assert that they and what the status says of them are in one rack."""
        assert self.runs(prefill, decode, suffix=suffix) == {rack}
        told = {
            "domain": rack,
            "mechanism": mechanism or self.way.mechanism,
            "prefill": {rack: prefill},
            "decode": {rack: decode},
        }

        def is_told() -> bool:
            group = self.group(suffix=suffix)
            return {key: group.get(key) for key in told} == told and self.column(suffix) == [rack]

        self.wait(f"the status tells of {rack}", is_told)
        self.says("Packed", suffix=suffix)

    def wait(self, goal: str, reached: Callable[[], _T], *, seconds: float = PATIENCE) -> _T:
        # A question costs the API server CPU that all scenes share.
        def asked() -> _T:
            if self.abandoned.is_set():
                raise AbandonedError(f"{self.name}: the run ends")
            answer = reached()
            if not answer:
                time.sleep(0.4)
            return answer

        return wait_until(f"{self.name}: {goal}", asked, seconds=seconds)

    def picture(self) -> str:
        """Everything that helps to understand a failure."""
        lines = [f"scene {self.name} ({self.way}) in {self.namespace}"]
        for node in self.rest.items(f"/api/v1/nodes?labelSelector={POOL}%3D{self.name}"):
            name = node["metadata"]["name"]
            flags = "cordoned" if node["spec"].get("unschedulable") else ""
            lines.append(f"  node {name} {node['metadata']['labels'].get(RACK)} {flags}")
        everything = self.rest.items(f"/api/v1/namespaces/{self.namespace}/pods")
        for pod in everything:
            metadata = pod["metadata"]
            if not metadata["name"].startswith((self.name, f"filler-{self.name}")):
                continue
            gpus = pod["spec"]["containers"][0].get("resources", {}).get("limits", {}).get(GPU)
            said = [
                c.get("message", "") for c in pod["status"].get("conditions", []) if c["status"] != "True"
            ]
            lines.append(
                f"  pod {metadata['name']} gpus={gpus} node={pod['spec'].get('nodeName')}"
                f" ends={_ends(pod)} {pod['status'].get('phase')} {said}"
            )
        for resource in self.rest.items(DINF.format(namespace=self.namespace)):
            if resource["metadata"]["name"].startswith(self.name):
                status = resource.get("status", {})
                packed = [c for c in status.get("conditions", []) if c["type"] in ("Packed", "Stalled")]
                lines.append(f"  {resource['metadata']['name']} {status.get('groups')} {packed}")
        selector = f"labelSelector=app.kubernetes.io%2Fpart-of%3D{self.name}"
        for found in self.rest.items(f"/apis/apps/v1/namespaces/{self.namespace}/deployments?{selector}"):
            metadata, status = found["metadata"], found.get("status", {})
            lines.append(
                f"  {metadata['name']} replicas={found['spec']['replicas']} of {status.get('replicas')}"
                f" updated={status.get('updatedReplicas')} {metadata['annotations'].get('disagg.dev/placement')}"
            )
        return "\n".join(lines)


def _role(pods: Pods, overlay: Object) -> Object:
    limits = {GPU: str(pods.gpus)} if pods.gpus else {}
    role: dict[str, Any] = {
        "podTemplate": overlay,
        "resources": {"limits": limits, "requests": dict(pods.requests)},
    }
    if pods.number is not None:
        role["replicas"] = pods.number
    return role


def _container(amounts: Mapping[str, str]) -> Object:
    return {"name": "main", "image": "other", "resources": {"limits": dict(amounts)}}


def _ends(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", [])
    )


def _is_usable(node: Object) -> bool:
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"].get("conditions", [])
    )
    return ready and not node["spec"].get("taints")
