"""Plays the demo against a local cluster: from nothing to a model that is ready."""

import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console
from rich.live import Live

from e2e.cluster import Cluster, ClusterError, WaitError, wait_until
from e2e.cluster.api import ApiClient
from e2e.cluster.cluster import REPOSITORY
from e2e.cluster.racks import Racks
from e2e.demo.picture import draw
from e2e.demo.scene import GPU, Scene, racks_of, scene
from e2e.demo.steps import step
from e2e.operator_process import OperatorProcess, install_chart, stop_recorded

EXAMPLE: Final = REPOSITORY / "examples" / "llama-3.3-70b.yaml"
NAMESPACE: Final = "inference"
RESOURCE: Final = "llama-70b"

OTHERS_NAMESPACE: Final = "other-teams"
OTHERS: Final = {0: (6, 6, 6, 6), 1: (4, 4, 8, 8), 2: (0, 4, 4, 0), 3: (2, 6, 4, 6)}
"""GPUs that are taken on each node, by rack. Racks 2 and 3 hold the smallest group, and only rack 2 the largest."""

POD_READY_DELAY: Final = 5.0
"""Seconds that a pod seems to load its model: long enough to watch."""

_POLL_SECONDS: Final = 0.2
_PATH: Final = f"/apis/disagg.dev/v1alpha1/namespaces/{NAMESPACE}/disaggregatedinferences/{RESOURCE}"


class Story:
    """The demo on one cluster.

    Args:
        cluster: Where it plays; it need not run yet.
        console: Where it is told; on a terminal as a moving picture, elsewhere as plain lines.
    """

    def __init__(self, cluster: Cluster, console: Console) -> None:
        self._cluster = cluster
        self._console = console

    def play(self, *, seconds: float) -> Scene:
        """Bring everything up, apply the example and watch until it is ready. All of it stays up.

        Args:
            seconds: How long the resource may take.

        Returns:
            What there is to see at the end.

        Raises:
            ClusterError: If something does not work, or the resource is not ready in time.
        """
        with step(self._console, "cluster", "control plane and nodes") as done:
            self._cluster.up()
            racks = self._cluster.record.options.racks
            done(f"{self._cluster.server}, {len(racks.nodes())} nodes in {len(racks.racks)} racks")
        with step(self._console, "chart", "helm install disagg charts/disagg") as done:
            install_chart(self._cluster)
            done("helm install disagg charts/disagg")
        with step(self._console, "operator", "disagg operator") as done:
            stop_recorded(self._cluster)
            operator = OperatorProcess(self._cluster)
            operator.start()
            done(f"process {operator.pid} with the chart's service account, {operator.url}")
        with step(self._console, "others", "pods of other teams") as done:
            self._fill()
            done(f"{sum(map(sum, OTHERS.values()))} of {_gpus(racks)} GPUs are other teams' already")
        with step(self._console, "plain", "kubectl apply, without topologyConstraint") as done:
            self._clear()
            done(f"without topologyConstraint the scheduler puts {self._place_plainly()}")
        with step(self._console, "resource", "kubectl apply") as done:
            self._clear()
            self._cluster.kubectl("apply", f"--filename={EXAMPLE}")
            done(f"kubectl apply -f {EXAMPLE.relative_to(REPOSITORY)}")
        return self._watch(seconds)

    def objects(self) -> str:
        """The objects, as kubectl shows them."""
        columns = {
            "NAME": ".metadata.name",
            "NODE": ".spec.nodeName",
            "PHASE": ".status.phase",
            "GPUS": r".spec.containers[0].resources.limits.nvidia\.com/gpu",
        }
        pods = ",".join(f"{name}:{path}" for name, path in columns.items())
        tables = (
            ("dinf", "--output=wide"),
            ("deployments",),
            ("services",),
            ("hpa",),
            ("pods", f"--output=custom-columns={pods}"),
        )
        return "\n".join(self._cluster.kubectl("get", f"--namespace={NAMESPACE}", *table) for table in tables)

    def _fill(self) -> None:
        pods = [
            _filler(node, gpus)
            for rack, nodes in OTHERS.items()
            for node, gpus in ((f"gpu-r{rack}-n{number}", gpus) for number, gpus in enumerate(nodes))
            if gpus
        ]
        kubectl = self._cluster.kubectl
        for namespace in (NAMESPACE, OTHERS_NAMESPACE):
            kubectl("apply", "--filename=-", input=_manifest("v1", "Namespace", namespace))
        # The account that pods run as comes a moment after its namespace.
        wait_until(
            "the namespace is complete",
            lambda: kubectl(
                "get", "serviceaccount", "default", f"--namespace={OTHERS_NAMESPACE}", "--ignore-not-found"
            ),
        )
        kubectl("apply", "--filename=-", input=yaml.safe_dump_all(pods))

    def _place_plainly(self) -> str:
        """Apply the example without its constraint, and tell where its pods go."""
        resource = yaml.safe_load(EXAMPLE.read_text())
        del resource["spec"]["topologyConstraint"]
        self._cluster.kubectl("apply", "--filename=-", input=yaml.safe_dump(resource))
        minimum = {
            role: resource["spec"][role]["autoscaling"]["minReplicas"] for role in ("prefill", "decode")
        }

        def placed() -> dict[str, dict[str, int]]:
            seen = _scene(api)
            found = {role: racks_of(seen, role) for role in minimum}
            done = all(sum(found[role].values()) >= count for role, count in minimum.items())
            return found if done else {}

        with self._api() as api:
            found = wait_until("all pods have a node", placed)
        return ", ".join(f"{role} in {' '.join(racks)}" for role, racks in found.items())

    def _clear(self) -> None:
        """Remove the resource, of this run or an earlier one, and wait until its pods are gone."""
        kubectl = self._cluster.kubectl
        kubectl("delete", "dinf", RESOURCE, f"--namespace={NAMESPACE}", "--ignore-not-found", "--wait")
        with self._api() as api:
            wait_until(
                "the pods of an earlier run are gone",
                lambda: not _items(api, f"/api/v1/namespaces/{NAMESPACE}/pods"),
            )

    def _watch(self, seconds: float) -> Scene:
        with self._api() as api:
            if self._console.is_terminal:
                seen = self._watch_live(api, seconds)
            else:
                seen = self._watch_lines(api, seconds)
                self._console.print(draw(seen, width=self._console.width))
        if seen.resource is None or not seen.resource.is_ready:
            conditions = seen.resource.conditions if seen.resource else ()
            lines = [f"  {found.kind}={found.status} {found.reason}: {found.message}" for found in conditions]
            raise WaitError("\n".join([f"{RESOURCE} is not ready after {seconds:.0f} s", *lines]))
        return seen

    def _watch_live(self, api: ApiClient, seconds: float) -> Scene:
        with Live(console=self._console, auto_refresh=False, vertical_overflow="visible") as live:
            for seen, elapsed in _scenes(api, seconds):
                live.update(draw(seen, width=self._console.width, seconds=elapsed), refresh=True)
        return seen

    def _watch_lines(self, api: ApiClient, seconds: float) -> Scene:
        told = ""
        for seen, elapsed in _scenes(api, seconds):
            line = seen.resource.summary() if seen.resource else "no resource yet"
            if line != told:
                self._say(f"{elapsed:5.1f} s  {line}")
            told = line
        return seen

    def _api(self) -> ApiClient:
        return ApiClient(self._cluster.layout, self._cluster.server)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def commands(cluster: str) -> dict[str, str]:
    """What to try next, as shell commands for the root of the repository.

    Args:
        cluster: Options that name the cluster, such as `--name demo`.

    Returns:
        Command by what it does.
    """
    kubectl = f"{python()} -m e2e.cluster kubectl {cluster} -n {NAMESPACE}"

    def patch(spec: dict[str, Any]) -> str:
        return (
            f"{kubectl} patch dinf {RESOURCE} --type merge --patch {shlex.quote(json.dumps({'spec': spec}))}"
        )

    return {
        "more prefill": patch({"prefill": {"autoscaling": {"minReplicas": 6}}}),
        "another engine image": patch({"engine": {"image": "vllm/vllm-openai:v0.32.1"}}),
        "delete it": f"{kubectl} delete dinf {RESOURCE}",
    }


def python() -> str:
    """This interpreter, as one types it in the root of the repository."""
    path = Path(sys.executable)
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else shlex.quote(str(path))


def _scenes(api: ApiClient, seconds: float) -> Iterator[tuple[Scene, float]]:
    """What there is to see, again and again until the resource is ready or the time is over."""
    started = time.monotonic()
    while True:
        seen = _scene(api)
        elapsed = time.monotonic() - started
        yield seen, elapsed
        if (seen.resource and seen.resource.is_ready) or elapsed > seconds:
            return
        time.sleep(_POLL_SECONDS)


def _scene(api: ApiClient) -> Scene:
    return scene(_items(api, "/api/v1/nodes"), _items(api, "/api/v1/pods"), api.get(_PATH))


def _gpus(racks: Racks) -> int:
    return sum(int(node["status"]["capacity"][GPU]) for node in racks.nodes())


def _filler(node: str, gpus: int) -> dict[str, Any]:
    """A pod of somebody else, which takes some GPUs of a node."""
    container = {"name": "main", "image": "training", "resources": {"limits": {GPU: gpus}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"training-{node}", "namespace": OTHERS_NAMESPACE},
        "spec": {"nodeName": node, "containers": [container]},
    }


def _items(api: ApiClient, path: str) -> list[dict[str, Any]]:
    answer = api.get(path)
    if answer is None:
        raise ClusterError(f"the API server does not know {path}")
    items: list[dict[str, Any]] = answer.get("items") or []
    return items


def _manifest(api_version: str, kind: str, name: str) -> str:
    return json.dumps({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
