"""SGLang's metrics, of each rank. Prefill never observes a first token, nor the time between two."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from disagg.engine_sim.dialects.sglang import families
from disagg.engine_sim.dialects.sglang.arguments import Arguments
from disagg.engine_sim.dialects.sglang.decode import DecodeConnector
from disagg.engine_sim.dialects.sglang.places import place_of
from disagg.engine_sim.dialects.sglang.prefill import PrefillConnector
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.request import Request
from disagg.engine_sim.scheduler import Step

_WINDOW = 1.0
"""Seconds over which the rate of tokens is told."""


class Registry:
    """All metrics of a process."""

    def __init__(self, args: Arguments) -> None:
        """Metrics without ranks.

        Args:
            args: Say which labels there are.
        """
        self.registry = CollectorRegistry()
        self._args = args
        self._updates: list[Callable[[], None]] = []
        api = ["model_name", "engine_type"]
        rank = [*api, "tp_rank", "pp_rank", "moe_ep_rank", *(["dp_rank"] if args.dp_size > 1 else [])]
        self.families: dict[str, Any] = {}
        for name, text in families.GAUGES.items():
            self.families[name] = Gauge(f"sglang:{name}", text, rank, registry=self.registry)
        for name, text in families.COUNTERS.items():
            self.families[name] = Counter(f"sglang:{name}", text, rank, registry=self.registry)
        for name, (text, buckets) in families.HISTOGRAMS.items():
            self.families[name] = Histogram(
                f"sglang:{name}", text, rank, buckets=buckets, registry=self.registry
            )
        for name, (text, more) in families.API_COUNTERS.items():
            self.families[name] = Counter(f"sglang:{name}", text, [*api, *more], registry=self.registry)
        for name, (text, more, buckets) in families.API_HISTOGRAMS.items():
            self.families[name] = Histogram(
                f"sglang:{name}", text, [*api, *more], buckets=buckets, registry=self.registry
            )

    def of_rank(self, name: str, rank: int) -> Any:  # noqa: ANN401 - a metric of any kind
        """A metric of one rank."""
        more = [str(rank)] if self._args.dp_size > 1 else []
        return self.families[name].labels(
            self._args.served_model_name, self._args.engine_type, "0", "0", "0", *more
        )

    def of_api(self, name: str, *more: str) -> Any:  # noqa: ANN401 - a metric of any kind
        """A metric of the API."""
        return self.families[name].labels(self._args.served_model_name, self._args.engine_type, *more)

    def before_scrape(self, update: Callable[[], None]) -> None:
        """Call `update` before each scrape."""
        self._updates.append(update)

    def text(self) -> bytes:
        """The text that a scrape gets."""
        for update in self._updates:
            update()
        return generate_latest(self.registry)


class RankMetrics:
    """What one rank tells of itself. See `disagg.engine_sim.engine.Observer`."""

    def __init__(self, registry: Registry, args: Arguments, rank: int, streaming: Container[str]) -> None:
        """All series of a rank, at zero.

        Args:
            registry: Where they are.
            args: Of the process.
            rank: Of data parallelism.
            streaming: Ids of requests whose answers are streams.
        """
        self._registry, self._args, self._streaming = registry, args, streaming
        names = (*families.GAUGES, *families.COUNTERS, *families.HISTOGRAMS)
        self._one = {name: registry.of_rank(name, rank) for name in names}
        self.after_step: Callable[[], None] = lambda: None
        self._asked = self._hit = 0
        self._said, self._since, self._rate = 0, time.monotonic(), 0.0
        self._preemptions = 0
        # Of each token, so not looked up each time; prefill never has one, and no series of it.
        self._between: Callable[[float], None] = lambda _seconds: None
        if args.mode != "prefill":
            self._between = registry.of_api("inter_token_latency_seconds").observe

    def watch(self, engine: Engine) -> None:
        """Read a rank's state before each scrape."""
        self._registry.before_scrape(lambda: self._update(engine))

    def _update(self, engine: Engine) -> None:
        one, scheduler, size = self._one, engine.scheduler, self._args.page_size
        pool = scheduler.pool
        total = (pool.count - 1) * size
        used = total - pool.free * size
        waiting = list(scheduler.waiting())
        prealloc = sum(request.remote and not request.pulled for request in waiting)
        connector = engine.connector
        prefill = connector if isinstance(connector, PrefillConnector) else None
        values = {
            "num_running_reqs": len(scheduler.running),
            "num_queue_reqs": len(waiting) - prealloc,
            "token_usage": used / total,
            "full_token_usage": used / total,
            "num_used_tokens": used,
            "kv_used_tokens": used,
            "kv_available_tokens": total - used,
            "max_total_num_tokens": total,
            "page_size": size,
            "num_pages": pool.count - 1,
            "context_len": self._args.context_length or 0,
            "cache_hit_rate": self._hit / self._asked if self._asked else 0.0,
            "gen_throughput": self._throughput(),
            "num_decode_prealloc_queue_reqs": prealloc,
            "num_decode_transfer_queue_reqs": len(scheduler.remote)
            if isinstance(connector, DecodeConnector)
            else 0,
            "num_prefill_bootstrap_queue_reqs": prefill.bootstrapping if prefill else 0,
            "num_prefill_inflight_queue_reqs": prefill.inflight if prefill else 0,
            "num_retracted_reqs": scheduler.preemptions - self._preemptions,
            "pending_prealloc_token_usage": sum(len(each.prompt) for each in waiting if each.remote) / total,
            "lora_pool_slots_used": len({each.lora for each in scheduler.running if each.lora}),
            "lora_pool_slots_total": self._args.max_loras_per_batch,
        }
        values["lora_pool_utilization"] = values["lora_pool_slots_used"] / values["lora_pool_slots_total"]
        self._preemptions = scheduler.preemptions
        for name, value in values.items():
            one[name].set(value)

    def _throughput(self) -> float:
        now = time.monotonic()
        if now - self._since >= _WINDOW:
            self._rate = self._said / (now - self._since)
            self._said, self._since = 0, now
        return self._rate

    def admitted(self, request: Request) -> None:
        """Count what the radix cache had."""
        self._asked += request.total
        self._hit += request.computed

    def stepped(self, step: Step) -> None:
        """A step is over: chunks may go."""
        del step
        self.after_step()

    def token(self, request: Request, now: float) -> None:
        """Count a token."""
        self._said += 1
        if self._args.mode == "prefill" or _unseen(request):
            return
        if len(request.output) > 1:
            self._between(now - request.last_token_at)
            return
        self._registry.of_api("time_to_first_token_seconds", self._is_streaming(request)).observe(
            now - request.arrival
        )
        if request.scheduled_at is not None:
            self._one["queue_time_seconds"].observe(request.scheduled_at - request.arrival)

    def finished(self, request: Request) -> None:
        """Count a request that is over."""
        if _unseen(request):
            return
        api = self._registry.of_api
        if request.finish_reason == "abort":
            api("num_aborted_requests_total").inc()
        if request.finish_reason not in {"stop", "length"}:
            return
        tokens, streams = len(request.output), self._is_streaming(request)
        api("prompt_tokens_total", streams).inc(len(request.prompt))
        api("generation_tokens_total", streams).inc(tokens)
        api("num_requests_total", streams).inc()
        if request.cached_tokens:
            api("cached_tokens_total", "device").inc(request.cached_tokens)
        took = request.finished_at - request.arrival
        api("e2e_request_latency_seconds", streams).observe(took)
        if self._args.mode != "prefill" and tokens > 1 and request.first_token_at is not None:
            api("request_time_per_output_token_seconds", streams).observe(
                (request.finished_at - request.first_token_at) / (tokens - 1)
            )

    def _is_streaming(self, request: Request) -> str:
        return "true" if request.id in self._streaming else "false"

    def refused(self, limit: str) -> None:
        """Nothing is ever refused for a full queue."""

    def bootstrapped(self, seconds: float) -> None:
        """Count a request that has found its other half."""
        self._one["kv_transfer_bootstrap_ms"].observe(seconds * 1000)

    def bootstrap_failed(self) -> None:
        """Count one that has not."""
        self._one["num_bootstrap_failed_reqs_total"].inc()

    def transferred(self, *, seconds: float, posted: float, size: int, descriptors: int) -> None:
        """Count a transfer."""
        del posted, descriptors
        one = self._one
        one["kv_transfer_latency_ms"].observe(seconds * 1000)
        one["kv_transfer_total_mb"].observe(size / 1e6)
        if seconds > 0:
            one["kv_transfer_speed_gb_s"].observe(size / 1e9 / seconds)

    def transfer_failed(self) -> None:
        """Count a failure."""
        self._one["num_transfer_failed_reqs_total"].inc()

    def notification_failed(self) -> None:
        """There are none."""

    def expired(self) -> None:
        """Nothing expires: a room that nobody comes to has failed."""

    def late(self) -> None:
        """As above."""


def _unseen(request: Request) -> bool:
    """Whether a request is none of a client's."""
    place = place_of(request)
    return request.id.startswith("HEALTH_CHECK") or (place is not None and place.fake)
