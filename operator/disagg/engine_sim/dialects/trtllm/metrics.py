"""Metrics of `/prometheus/metrics`, by release: before 1.3 there are few, and none tells the load.

Gauges come from what the engine says of its last iteration, which the server reads as requests end: before the first has
ended there are none. The real server reads a little later than this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from disagg.engine_sim.dialects.trtllm.config import Release
from disagg.engine_sim.dialects.trtllm.stats import IterationStats, RequestStats
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.request import Request
from disagg.engine_sim.scheduler import Step

_LONG = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_FIRST = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_PREFILL = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip

_HISTOGRAMS = {
    "e2e_request_latency_seconds": ("Histogram of end to end request latency in seconds.", _LONG),
    "time_to_first_token_seconds": ("Histogram of time to first token in seconds.", _FIRST),
    "time_per_output_token_seconds": ("Histogram of time per output token in seconds.", _TOKEN),
    "request_queue_time_seconds": ("Histogram of time spent in WAITING phase for request.", _LONG),
}
_LATER_HISTOGRAMS = {
    "request_prefill_time_seconds": ("Histogram of prefill (context) phase duration in seconds.", _PREFILL),
    "request_decode_time_seconds": ("Histogram of decode (generation) phase duration in seconds.", _LONG),
    "request_inference_time_seconds": ("Histogram of total inference duration in seconds.", _LONG),
}
_GAUGES = {
    "kv_cache_hit_rate": "KV cache hit rate",
    "kv_cache_utilization": "KV cache utilization",
}
_LATER_GAUGES = {
    "num_requests_running": "Number of active requests",
    "num_requests_waiting": "Number of queued requests",
    "num_context_requests": "Number of requests in the context phase",
    "num_generation_requests": "Number of requests in the generation phase",
    "num_paused_requests": "Number of paused requests",
    "kv_cache_max_blocks": "Blocks of the KV cache",
    "kv_cache_free_blocks": "Free blocks of the KV cache",
    "kv_cache_used_blocks": "Used blocks of the KV cache",
    "kv_cache_tokens_per_block": "Tokens of a block",
}
_LATER_COUNTERS = {
    "prompt_tokens": "Cumulative number of prompt (input) tokens processed.",
    "generation_tokens": "Cumulative number of generation (output) tokens produced.",
    "prompt_cached_tokens": "Cumulative number of prompt tokens found in the KV cache.",
    "kv_cache_reused_blocks": "Cumulative number of KV cache blocks reused (cache hits)",
    "kv_cache_missed_blocks": "Cumulative number of KV cache blocks missed (cache misses)",
    "request_error": "Count of requests that failed.",
}
# As the server sets them.
_LABELS = {"model_name": "undefined", "engine_type": "undefined"}
_FULL: Release = (1, 3)


class Registry:
    """The metrics of a process."""

    def __init__(self, release: Release, iterations: Sequence[IterationStats], *, gauges: bool) -> None:
        """All at 0, and no gauges.

        Args:
            release: Which ones there are.
            iterations: What iterations tell, by rank.
            gauges: Whether the engine tells of its iterations.
        """
        self.registry = CollectorRegistry()
        full = release >= _FULL
        self._engines: list[Engine] = []
        self._iterations = iterations
        self._gauges_wanted = gauges
        self._ended = False
        self._histograms = {
            name: self._made(Histogram, name, text, buckets=buckets)
            for name, (text, buckets) in (_HISTOGRAMS | (_LATER_HISTOGRAMS if full else {})).items()
        }
        self._gauges = {
            name: self._made(Gauge, name, text)
            for name, text in (_GAUGES | (_LATER_GAUGES if full else {})).items()
        }
        self._counters = {
            name: self._made(Counter, name, text) for name, text in (_LATER_COUNTERS if full else {}).items()
        }
        self._success = Counter(
            "trtllm_request_success",
            "Count of successfully processed requests.",
            [*_LABELS, "finished_reason"],
            registry=self.registry,
        )

    def watch(self, engine: Engine) -> None:
        """Tell the load of an engine."""
        self._engines.append(engine)

    def text(self) -> bytes:
        """The text that a scrape gets."""
        if self._gauges_wanted and self._ended:
            self._update()
        return generate_latest(self.registry)

    def finished(self, request: Request) -> None:
        """A request is over."""
        self._ended = True
        if request.finish_reason not in {"stop", "length"}:
            self._count("request_error", 1)
            return
        self._success.labels(*_LABELS.values(), request.finish_reason).inc()
        self._count("prompt_tokens", len(request.prompt))
        self._count("generation_tokens", len(request.output))
        self._count("prompt_cached_tokens", request.cached_tokens)
        scheduled, first, last = request.scheduled_at, request.first_token_at, request.finished_at
        if scheduled is None or first is None:
            return
        self._observe("e2e_request_latency_seconds", last - request.arrival)
        self._observe("time_to_first_token_seconds", first - request.arrival)
        self._observe("request_queue_time_seconds", scheduled - request.arrival)
        self._observe("request_prefill_time_seconds", first - scheduled)
        self._observe("request_decode_time_seconds", last - first)
        self._observe("request_inference_time_seconds", last - scheduled)
        if len(request.output) > 1:
            self._observe("time_per_output_token_seconds", (last - first) / (len(request.output) - 1))

    def looked_up(self, reused: int, missed: int) -> None:
        """The blocks of a prompt were looked up."""
        self._count("kv_cache_reused_blocks", reused)
        self._count("kv_cache_missed_blocks", missed)

    def _made(self, kind: Callable[..., Any], name: str, text: str, **how: Any) -> Any:  # noqa: ANN401 - of any kind
        return kind(f"trtllm_{name}", text, [*_LABELS], registry=self.registry, **how)

    def _count(self, name: str, amount: int) -> None:
        if name in self._counters:
            self._counters[name].labels(**_LABELS).inc(amount)

    def _observe(self, name: str, seconds: float) -> None:
        if name in self._histograms:
            self._histograms[name].labels(**_LABELS).observe(max(0.0, seconds))

    def _update(self) -> None:
        schedulers = [engine.scheduler for engine in self._engines]
        pools = [scheduler.pool for scheduler in schedulers]
        usable, free = sum(pool.count - 1 for pool in pools), sum(pool.free for pool in pools)
        running = [request for scheduler in schedulers for request in scheduler.running]
        contexts = sum(1 for request in running if not request.output)
        values = {
            "kv_cache_hit_rate": sum(each.hit_rate for each in self._iterations) / len(self._iterations),
            "kv_cache_utilization": (usable - free) / usable if usable else 0.0,
            "num_requests_running": len(running) + sum(len(scheduler.remote) for scheduler in schedulers),
            "num_requests_waiting": sum(scheduler.num_waiting for scheduler in schedulers),
            "num_context_requests": contexts,
            "num_generation_requests": len(running) - contexts,
            "num_paused_requests": 0,
            "kv_cache_max_blocks": usable,
            "kv_cache_free_blocks": free,
            "kv_cache_used_blocks": usable - free,
            "kv_cache_tokens_per_block": pools[0].block_size,
        }
        for name, gauge in self._gauges.items():
            gauge.labels(**_LABELS).set(values[name])


class WorkerObserver:
    """See `disagg.engine_sim.engine.Observer`."""

    def __init__(self, registry: Registry, iterations: IterationStats, requests: RequestStats) -> None:
        self._registry = registry
        self._iterations = iterations
        self._requests = requests
        self._engine: Engine | None = None

    def watch(self, engine: Engine) -> None:
        """The engine that is observed."""
        self._engine = engine
        self._registry.watch(engine)

    def admitted(self, request: Request) -> None:
        """Count its blocks."""
        if self._engine is None:
            return
        size = self._engine.scheduler.pool.block_size
        before = (self._iterations.reused, self._iterations.missed)
        self._iterations.admitted(request, size)
        self._registry.looked_up(self._iterations.reused - before[0], self._iterations.missed - before[1])

    def stepped(self, step: Step) -> None:
        """An iteration is over."""
        if self._engine is not None:
            self._iterations.stepped(self._engine, step)

    def token(self, request: Request, now: float) -> None:
        """Nothing is told of single tokens."""

    def finished(self, request: Request) -> None:
        """A request is over."""
        self._iterations.completed += 1
        self._registry.finished(request)
        if self._engine is not None:
            self._requests.add(request, self._engine.scheduler.pool.block_size)

    def refused(self, limit: str) -> None:
        """The queue has no end."""

    def transferred(self, *, seconds: float, posted: float, size: int, descriptors: int) -> None:
        """There are no metrics of transfers."""

    def transfer_failed(self) -> None:
        """As for `transferred`."""

    def notification_failed(self) -> None:
        """As for `transferred`."""

    def expired(self) -> None:
        """As for `transferred`."""

    def late(self) -> None:
        """As for `transferred`."""
