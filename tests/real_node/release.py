"""The operator as people install it: the chart, by helm, with its image."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster, wait_until
from e2e.images import Image
from e2e.operator_process import CHART, RELEASE, RELEASE_NAMESPACE, install_operator

OPERATOR = f"system:serviceaccount:{RELEASE_NAMESPACE}:{RELEASE}"
SELECTOR = "--selector=app.kubernetes.io/component=operator"

Object = dict[str, Any]


@dataclass
class Release:
    """The chart in its namespace, where pods must keep to the strictest standard."""

    cluster: Cluster
    image: Image
    chart: Path = CHART

    def install(self) -> None:
        install_operator(self.cluster, self.image, chart=self.chart)

    def uninstall(self) -> None:
        self.cluster.helm(
            "uninstall", RELEASE, f"--namespace={RELEASE_NAMESPACE}", "--wait", "--ignore-not-found"
        )

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl(f"--namespace={RELEASE_NAMESPACE}", *arguments)

    def pods(self) -> list[Object]:
        found: list[Object] = json.loads(self.kubectl("get", "pods", SELECTOR, "--output=json"))["items"]
        return found

    def pod(self) -> Object:
        """The pod, where one is ready and no other is left."""
        return wait_until("one operator pod is ready", self._only_ready_pod)

    def _only_ready_pod(self) -> Object:
        pods = self.pods()
        return pods[0] if len(pods) == 1 and is_ready(pods[0]) else {}

    def run(self, *command: str) -> str:
        return self.kubectl("exec", self.pod()["metadata"]["name"], "--", *command)


def is_ready(pod: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", [])
    )


def name_of(pod: Object) -> str:
    name: str = pod["metadata"]["name"]
    return name
