"""What the tests say to the cluster, in a line each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import yaml

from disagg.build.strategic_merge import merge
from e2e.cluster import Cluster, wait_until

Object = dict[str, Any]


def manifest(name: str = "llama", **spec: object) -> Object:
    """The smallest resource, without GPUs, with `spec` laid over its spec."""
    smallest = {
        "model": {"uri": "hf://org/llama"},
        "engine": {"image": "vllm/vllm-openai:v0.32.0"},
        "accelerator": {"perRank": 0},
    }
    return {
        "apiVersion": "disagg.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {"name": name},
        "spec": merge(smallest, spec),
    }


@dataclass(frozen=True)
class Kube:
    """A namespace of the cluster."""

    cluster: Cluster
    namespace: str

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """`kubectl --namespace NAMESPACE ARGUMENTS`."""
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, input=stdin)

    def apply(self, *objects: Object) -> None:
        """`kubectl apply`."""
        self.run("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str) -> Object:
        """The object."""
        return dict(json.loads(self.run("get", kind, name, "-o", "json")))

    def find(self, kind: str, name: str) -> Object | None:
        """The object, or None if there is none."""
        text = self.run("get", kind, name, "-o", "json", "--ignore-not-found")
        return dict(json.loads(text)) if text.strip() else None

    def names(self, kinds: str, *arguments: str) -> set[str]:
        """kind.group/name of all objects of `kinds`."""
        return set(self.run("get", kinds, "-o", "name", *arguments).split())

    def patch(self, name: str, spec: Object) -> None:
        """Merge `spec` into the spec of the resource."""
        self.run("patch", "dinf", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def replicas(self, deployment: str) -> int:
        """spec.replicas of a Deployment."""
        return int(self.get("deployment", deployment)["spec"]["replicas"])

    def condition(self, name: str, kind: str) -> Object:
        """A condition of the resource at its present generation; empty until there is one."""
        resource = self.get("dinf", name)
        for condition in resource.get("status", {}).get("conditions", []):
            if (
                condition["type"] == kind
                and condition["observedGeneration"] == resource["metadata"]["generation"]
            ):
                return dict(condition)
        return {}

    def wait_for(self, name: str, kind: str, status: str = "True", reason: str | None = None) -> Object:
        """Wait until a condition of the resource has this status (and reason) at its present generation."""

        def reached() -> Object:
            found = self.condition(name, kind)
            return found if found.get("status") == status and reason in (None, found["reason"]) else {}

        return wait_until(f"{name} to be {kind}={status} {reason or ''}", reached)

    def set_pod_status(self, pod: str, status: Object) -> None:
        """Write what a kubelet would say of a pod, `pod/NAME`."""
        patch = json.dumps({"status": status})
        wait_until(
            f"the status of {pod}",
            lambda: self.run("patch", pod, "--subresource=status", "--type=strategic", "-p", patch),
        )

    def ready(self, name: str = "llama") -> Object:
        """Wait until the resource is Ready."""
        return self.wait_for(name, "Ready")

    def templates(self, name: str = "llama") -> dict[str, str]:
        """Hash of each role's pod template, as the Deployment controller sees it: a new one restarts pods."""
        sets = json.loads(self.run("get", "replicasets", "-l", f"disagg.dev/name={name}", "-o", "json"))[
            "items"
        ]
        newest: dict[str, tuple[int, str]] = {}
        for item in sets:
            labels, annotations = item["metadata"]["labels"], item["metadata"]["annotations"]
            revision = int(annotations["deployment.kubernetes.io/revision"])
            role = labels["disagg.dev/role"]
            newest[role] = max(newest.get(role, (0, "")), (revision, labels["pod-template-hash"]))
        return {role: template for role, (_, template) in newest.items()}
