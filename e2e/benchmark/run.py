"""Makes many resources at once and measures the operator while it builds and afterwards."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import psutil
from pydantic import BaseModel

from disagg.api.resource import parse
from disagg.build.objects import build
from disagg.build.pod_template import pod_templates
from disagg.decide.decide import decide
from disagg.decide.observed import Observed
from e2e.benchmark.accounting import Requests, count
from e2e.cluster import Cluster, WaitError
from e2e.cluster.api import ApiClient
from e2e.operator_process import OperatorProcess

NAMESPACES: Final = 10
_WRITERS: Final = 4
_POLL_SECONDS: Final = 1.0
_READY_POLL_SECONDS: Final = 5.0
_API: Final = "/apis/disagg.dev/v1alpha1"

Progress = Callable[[str, int, int], None]
"""Told what is waited for, how much of it is there, and how much there is to be."""


class Result(BaseModel):
    """What was measured."""

    resources: int
    pods_per_resource: int
    children_per_resource: int
    seconds_to_create: float
    """Until all resources were created."""
    seconds_to_converge: float
    """From the first creation until every child of every resource existed."""
    seconds_to_settle: float
    """From the first creation until every resource was Ready and the queue empty: that the Deployment controller
    bounds, which by default sends 20 requests a second."""
    cpu_ms_per_resource: float
    """CPU of the operator from the first creation until all was settled."""
    cpu_ms_per_resource_to_converge: float
    """Of that, until every child existed."""
    rss_mb: float
    """Most memory that was seen."""
    writes_per_resource: float
    status_updates_per_resource: float
    dry_runs_per_resource: float
    reads_per_resource: float
    failed_requests: int
    idle_seconds: float
    idle_cpu_percent: float
    """CPU of the operator when all was settled, in percent of a core."""
    idle_writes: int
    """Writes of the operator in that time."""
    requests: dict[str, int]
    """Requests by verb and kind until all was settled."""


@dataclass
class _Meter:
    """CPU and memory of a process."""

    process: psutil.Process
    peak: int = 0
    begun: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun = self._cpu()

    def cpu(self) -> float:
        """Seconds of CPU since the meter was made; looks at the memory too."""
        self.peak = max(self.peak, self.process.memory_info().rss)
        return self._cpu() - self.begun

    def _cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


def resource(number: int, *, replicas: int) -> dict[str, Any]:
    """The manifest of one resource.

    Args:
        number: Which one, from 0.
        replicas: Pods of each role; none of them takes a GPU.
    """
    return {
        "apiVersion": "disagg.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {"name": f"model-{number:04}", "namespace": f"bench-{number % NAMESPACES}"},
        "spec": {
            "model": {"uri": "hf://Qwen/Qwen3-0.6B"},
            "engine": {"image": "vllm/vllm-openai:v0.32.0"},
            "accelerator": {"perRank": 0},
            "prefill": {"replicas": replicas},
            "decode": {"replicas": replicas},
            "router": {"replicas": replicas},
        },
    }


def measure(  # noqa: PLR0913 - what is measured, and how much of it
    cluster: Cluster,
    operator: OperatorProcess,
    *,
    resources: int,
    replicas: int,
    idle_seconds: float,
    timeout: float,
    progress: Progress,
) -> Result:
    """Make resources and measure the operator.

    Args:
        cluster: A running cluster with an audit log.
        operator: The operator, ready.
        resources: How many to make.
        replicas: Pods of each role.
        idle_seconds: How long to measure after everything is settled.
        timeout: Seconds that it may take to settle.
        progress: Told how far it is.

    Raises:
        WaitError: If it is not settled in time.
    """
    for namespace in range(NAMESPACES):
        cluster.kubectl("create", "namespace", f"bench-{namespace}")
    manifests = [resource(number, replicas=replicas) for number in range(resources)]
    collections = _child_collections(manifests[0])
    api = ApiClient(cluster.layout, cluster.server)
    with api:
        before = {path: _size(api, path) for path in collections}
        meter = _Meter(psutil.Process(operator.pid))
        since, started = datetime.now(UTC), time.monotonic()
        deadline = started + timeout

        def wait(goal: str, total: int, done: Callable[[], int], pause: float) -> float:
            while (reached := done()) < total:
                progress(goal, reached, total)
                meter.cpu()
                if time.monotonic() > deadline:
                    raise WaitError(f"{goal}: {reached} of {total} after {timeout:.0f} s")
                time.sleep(pause)
            progress(goal, total, total)
            return time.monotonic() - started

        with _creating(cluster, manifests) as created:
            children = sum(collections.values())

            def existing() -> int:
                return sum(_size(api, path) - size for path, size in before.items())

            converged = wait("children", resources * children, existing, _POLL_SECONDS)
            cpu_converged = meter.cpu()
            create_seconds = created()
        settled = wait("resources ready", resources, lambda: _ready(api), _READY_POLL_SECONDS)
        wait("queue empty", 1, lambda: int(_queue(operator) == 0), _POLL_SECONDS)
        cpu_settled = meter.cpu()
        requests = count(cluster.audit().events(username=operator.username, since=since))
        idle_cpu, idle_writes = _idle(cluster, operator, meter, idle_seconds, progress)
    return Result(
        resources=resources,
        pods_per_resource=3 * replicas,
        children_per_resource=children,
        seconds_to_create=round(create_seconds, 2),
        seconds_to_converge=round(converged, 2),
        seconds_to_settle=round(settled, 2),
        cpu_ms_per_resource=round(1000 * cpu_settled / resources, 2),
        cpu_ms_per_resource_to_converge=round(1000 * cpu_converged / resources, 2),
        rss_mb=round(meter.peak / 1e6, 1),
        **_per_resource(requests, resources),
        failed_requests=requests.failed,
        idle_seconds=idle_seconds,
        idle_cpu_percent=round(idle_cpu, 3),
        idle_writes=idle_writes,
        requests=dict(requests.by_kind.most_common()),
    )


def _per_resource(requests: Requests, resources: int) -> dict[str, Any]:
    return {
        f"{name}_per_resource": round(getattr(requests, name) / resources, 2)
        for name in ("writes", "status_updates", "dry_runs", "reads")
    }


def _idle(
    cluster: Cluster, operator: OperatorProcess, meter: _Meter, seconds: float, progress: Progress
) -> tuple[float, int]:
    """CPU in percent of a core, and writes, while nothing happens."""
    since, started, before = datetime.now(UTC), time.monotonic(), meter.cpu()
    while (elapsed := time.monotonic() - started) < seconds:
        progress("idle seconds", int(elapsed), int(seconds))
        time.sleep(_POLL_SECONDS)
    cpu = 100 * (meter.cpu() - before) / elapsed
    writes = count(cluster.audit().events(username=operator.username, since=since))
    return cpu, writes.writes + writes.status_updates


@contextmanager
def _creating(cluster: Cluster, manifests: Sequence[dict[str, Any]]) -> Iterator[Callable[[], float]]:
    """Create the resources in the background; yields what waits for the end of it and tells how long it took."""
    started = time.monotonic()

    def create(part: Sequence[dict[str, Any]]) -> float:
        with ApiClient(cluster.layout, cluster.server) as api:
            for manifest in part:
                namespace = manifest["metadata"]["namespace"]
                api.create(f"{_API}/namespaces/{namespace}/disaggregatedinferences", manifest)
        return time.monotonic() - started

    with ThreadPoolExecutor(_WRITERS) as pool:
        writers = [pool.submit(create, manifests[writer::_WRITERS]) for writer in range(_WRITERS)]
        yield lambda: max(writer.result() for writer in writers)


def _child_collections(manifest: dict[str, Any]) -> dict[str, int]:
    """Path of each collection that children are in, with how many of them a resource has."""
    parsed = parse(manifest)
    rendered = pod_templates(parsed)
    paths: dict[str, int] = {}
    for child in build(parsed, decide(parsed, Observed(parsed.metadata.name), rendered)):
        root = "apis" if "/" in child["apiVersion"] else "api"
        path = f"/{root}/{child['apiVersion']}/{child['kind'].lower()}s"
        paths[path] = paths.get(path, 0) + 1
    return paths


def _size(api: ApiClient, path: str) -> int:
    """How many objects a collection has, for the price of one."""
    page = api.get(f"{path}?limit=1") or {}
    return len(page.get("items") or []) + int(page.get("metadata", {}).get("remainingItemCount", 0))


def _ready(api: ApiClient) -> int:
    """How many resources are ready in their present generation."""
    items = (api.get(f"{_API}/disaggregatedinferences") or {}).get("items", [])
    return sum(
        condition["type"] == "Ready" and condition["status"] == "True"
        for item in items
        if item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"]
        for condition in item["status"]["conditions"]
    )


def _queue(operator: OperatorProcess) -> float:
    return operator.metrics()["disagg_operator_queue_depth"]
