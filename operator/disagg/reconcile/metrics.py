"""The operator's own metrics, as Prometheus reads them at `/metrics`."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)


class Metrics:
    """Counters of reconciles and API requests, and gauges of the queue."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.reconciles = Counter(
            "disagg_operator_reconcile",
            "Passes over a resource, by what came of them.",
            ["result"],
            registry=self.registry,
        )
        self.duration = Histogram(
            "disagg_operator_reconcile_duration_seconds",
            "Time of a pass over a resource.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.requests = Counter(
            "disagg_operator_api_requests",
            "Requests to the API server, by verb and HTTP status (0: no answer).",
            ["verb", "code"],
            registry=self.registry,
        )
        self.request_duration = Histogram(
            "disagg_operator_api_request_duration_seconds",
            "Time of requests to the API server.",
            ["verb"],
            buckets=(0.005, 0.025, 0.1, 0.5, 2.5, 10, 30),
            registry=self.registry,
        )

    def request(self, verb: str, code: int, seconds: float) -> None:
        """Count a request to the API server."""
        self.requests.labels(verb, str(code)).inc()
        self.request_duration.labels(verb).observe(seconds)

    def reconcile(self, result: str, seconds: float) -> None:
        """Count a pass."""
        self.reconciles.labels(result).inc()
        self.duration.observe(seconds)

    def watch_queue(self, depth: Callable[[], float], oldest: Callable[[], float]) -> None:
        """Read the queue whenever the metrics are read."""
        Gauge(
            "disagg_operator_queue_depth", "Resources that are due or worked on.", registry=self.registry
        ).set_function(depth)
        Gauge(
            "disagg_operator_queue_oldest_seconds",
            "How long the resource that waits longest is overdue or worked on.",
            registry=self.registry,
        ).set_function(oldest)
