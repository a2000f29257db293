"""vLLM's metrics, kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    Summary,
    generate_latest,
)

from disagg.engine_sim.dialects.vllm.families import (
    COUNTERS,
    GAUGES,
    HTTP_BUCKETS,
    REASONS,
    SLEEP,
    SOURCES,
    STAGES,
    TIERS,
    histograms,
    token_buckets,
)
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.request import Request
from disagg.engine_sim.scheduler import Step


class Registry:
    """All metrics of a process."""

    def __init__(self, model: str, max_model_len: int, *, is_consumer: bool) -> None:
        """Metrics without engines.

        Args:
            model: Name in the label.
            max_model_len: Longest context.
            is_consumer: Whether a connector may get KV of peers.
        """
        self.is_consumer = is_consumer
        self.registry = CollectorRegistry()
        self.model = model
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.counts = token_buckets(max_model_len)
        self._families: dict[str, Any] = {}
        self._declare()
        rejections = self._families["admission_rejections"]
        self.rejections = {
            reason: rejections.labels(model, reason)
            for reason in ("max_num_queued_reqs", "max_num_queued_tokens")
        }
        self._engines: list[Callable[[], None]] = []
        self._http()

    def child(self, name: str, engine: str, *more: str) -> Any:  # noqa: ANN401 - JSON, or whatever is given
        """A metric of one engine."""
        return self._families[name].labels(self.model, engine, *more)

    def before_scrape(self, update: Callable[[], None]) -> None:
        """Call `update` before each scrape."""
        self._engines.append(update)

    def text(self) -> bytes:
        """The text that a scrape gets."""
        for update in self._engines:
            update()
        return generate_latest(self.registry)

    def info(self, engine: str, values: dict[str, str]) -> None:
        """Set the metric that tells how the cache is configured."""
        found = self._families.get("cache_config_info")
        if found is None:
            found = Gauge(
                "vllm:cache_config_info",
                "Information of the LLMEngine CacheConfig",
                [*sorted(values), "engine"],
                registry=self.registry,
            )
            self._families["cache_config_info"] = found
        found.labels(**values, engine=engine).set(1)

    def lora_info(self, max_lora: int, running: str, waiting: str) -> None:
        """Tell which adapters are in use now."""
        found = self._families.get("lora_requests_info")
        if found is None:
            found = Gauge(
                "vllm:lora_requests_info",
                "Running stats on lora requests.",
                ["max_lora", "waiting_lora_adapters", "running_lora_adapters"],
                registry=self.registry,
            )
            self._families["lora_requests_info"] = found
        found.labels(str(max_lora), waiting, running).set(time.time())

    def observe_http(  # noqa: PLR0913, PLR0917 - the parts it is made of
        self, path: str, method: str, status: int, seconds: float, received: int, sent: int
    ) -> None:
        """Count a request, as prometheus-fastapi-instrumentator does."""
        if path in {"/metrics", "/health", "/load", "/ping", "/version"} or path.startswith("/sim/"):
            return
        self._requests.labels(path, method, f"{status // 100}xx").inc()
        self._received.labels(path).observe(received)
        self._sent.labels(path).observe(sent)
        self._duration.labels(path, method).observe(seconds)
        self._duration_highr.observe(seconds)

    def _http(self) -> None:
        to = self.registry
        self._requests = Counter(
            "http_requests_total",
            "Total number of requests by method, status and handler.",
            ["handler", "method", "status"],
            registry=to,
        )
        self._received = Summary(
            "http_request_size_bytes",
            "Content length of incoming requests by handler. Only value of header is respected. Otherwise ignored. No "
            "percentile calculated. ",
            ["handler"],
            registry=to,
        )
        self._sent = Summary(
            "http_response_size_bytes",
            "Content length of outgoing responses by handler. Only value of header is respected. Otherwise ignored. No "
            "percentile calculated. ",
            ["handler"],
            registry=to,
        )
        self._duration_highr = Histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
            buckets=HTTP_BUCKETS,
            registry=to,
        )
        self._duration = Histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
            ["handler", "method"],
            buckets=(0.1, 0.5, 1),
            registry=to,
        )

    def _declare(self) -> None:
        for name, text, buckets in histograms(self.counts):
            self._families[name] = Histogram(
                f"vllm:{name}", text, ["model_name", "engine"], buckets=buckets, registry=self.registry
            )
        for name, text, more in COUNTERS:
            labels = ["model_name", "engine", *more]
            if name == "admission_rejections":
                labels.remove("engine")
            self._families[name] = Counter(f"vllm:{name}", text, labels, registry=self.registry)
        for name, text, more in GAUGES:
            if name == "num_requests_kv_fetch_by_stage" and not self.is_consumer:
                continue
            self._families[name] = Gauge(
                f"vllm:{name}", text, ["model_name", "engine", *more], registry=self.registry
            )


class EngineMetrics:
    """What one engine tells of itself. See `disagg.engine_sim.engine.Observer`."""

    def __init__(self, registry: Registry, rank: int, *, connector: bool) -> None:
        """All series of an engine, at zero.

        Args:
            registry: Where they are.
            rank: Of data parallelism.
            connector: Whether there is a KV connector, so that cached tokens may come from a peer.
        """
        self._registry = registry
        self._connector = connector
        self._preemptions = 0
        name = str(rank)
        self._rank = name

        def child(family: str, *more: str) -> Any:  # noqa: ANN401 - JSON, or whatever is given
            return registry.child(family, name, *more)

        self._one = {
            family: child(family)
            for family, _text, more in (*COUNTERS, *GAUGES)
            if not more and family != "admission_rejections"
        }
        self._one |= {family: child(family) for family, _text, _buckets in histograms(registry.counts)}
        self._source = {each: child("prompt_tokens_by_source", each) for each in SOURCES}
        self._tier = {each: child("prompt_tokens_cached_by_source", each) for each in TIERS}
        self._success = {each: child("request_success", each) for each in REASONS}
        self._reason = {
            each: child("num_requests_waiting_by_reason", each) for each in ("capacity", "deferred")
        }
        stages = STAGES if registry.is_consumer else ()
        self._stage = {each: child("num_requests_kv_fetch_by_stage", each) for each in stages}
        sleep = {each: child("engine_sleep_state", each) for each in SLEEP}
        sleep["awake"].set(1)
        self._latency = self._one["inter_token_latency_seconds"].observe
        self._generated = self._one["generation_tokens"].inc

    def watch(self, engine: Engine) -> None:
        """Read an engine's state before each scrape."""
        self._registry.before_scrape(lambda: self._update(engine))

    def _update(self, engine: Engine) -> None:
        scheduler = engine.scheduler
        remote = len(scheduler.remote)
        ready = starting = 0
        for request in scheduler.waiting():
            ready += request.pulled
            starting += request.remote and not request.pulled
        waiting = scheduler.num_waiting + remote
        deferred = remote + scheduler.deferred_by_lora
        self._one["num_requests_running"].set(len(scheduler.running))
        self._one["num_requests_waiting"].set(waiting)
        self._reason["deferred"].set(deferred)
        self._reason["capacity"].set(waiting - deferred)
        found = {"waiting_to_start": starting, "in_progress": remote, "completed_waiting": ready}
        for stage, gauge in self._stage.items():
            gauge.set(found[stage])
        self._one["kv_cache_usage_perc"].set(scheduler.pool.usage)
        self._one["num_preemptions"].inc(scheduler.preemptions - self._preemptions)
        self._preemptions = scheduler.preemptions

    def admitted(self, request: Request) -> None:
        """Count what the prefix cache had, and what a peer is asked for."""
        one = self._one
        one["prefix_cache_queries"].inc(request.total)
        one["prefix_cache_hits"].inc(request.computed)
        if self._connector:
            one["external_prefix_cache_queries"].inc(request.total - request.computed)
            if request.remote:
                # The connector says that it has them all, whether they come or not.
                one["external_prefix_cache_hits"].inc(request.total - request.computed)

    def stepped(self, step: Step) -> None:
        """Count a step's tokens."""
        self._one["iteration_tokens_total"].observe(step.tokens)

    def token(self, request: Request, now: float) -> None:
        """Count a token, the first one with everything about its prompt."""
        self._generated()
        if len(request.output) > 1:
            self._latency(now - request.last_token_at)
            return
        one = self._one
        size = len(request.prompt)
        one["time_to_first_token_seconds"].observe(now - request.arrival)
        one["prompt_tokens"].inc(size)
        cached, external = request.cached_tokens, request.external_tokens
        self._source["local_cache_hit"].inc(cached)
        self._source["external_kv_transfer"].inc(external)
        self._source["local_compute"].inc(size - cached - external)
        one["prompt_tokens_cached"].inc(cached + external)
        self._tier["device"].inc(cached)
        self._tier["p2p"].inc(external)

    def finished(self, request: Request) -> None:
        """Count a request that is over; one whose client has gone is forgotten before anybody counts it."""
        one = self._one
        reason = request.finish_reason or "abort"
        if reason == "abort":
            return
        self._success[reason].inc()
        tokens = len(request.output)
        first = request.first_token_at
        started = request.scheduled_at
        end = request.finished_at
        one["e2e_request_latency_seconds"].observe(end - request.arrival)
        one["request_prompt_tokens"].observe(len(request.prompt))
        one["request_generation_tokens"].observe(tokens)
        one["request_params_max_tokens"].observe(request.sampling.max_tokens)
        if request.samples:
            one["request_params_n"].observe(request.samples)
            one["request_max_num_generation_tokens"].observe(tokens)
        one["request_num_preemptions"].observe(request.preemptions)
        if started is None:
            return
        one["request_queue_time_seconds"].observe(started - request.arrival)
        one["request_inference_time_seconds"].observe(end - started)
        if first is None:
            return
        one["request_prefill_time_seconds"].observe(first - started)
        one["request_decode_time_seconds"].observe(end - first)
        one["request_time_per_output_token_seconds"].observe((end - first) / max(1, tokens - 1))
        one["request_prefill_kv_computed_tokens"].observe(len(request.prompt) - request.told_cached_tokens)

    def refused(self, limit: str) -> None:
        """Count a request for which there was no room."""
        self._registry.rejections[limit].inc()

    def transferred(self, *, seconds: float, posted: float, size: int, descriptors: int) -> None:
        """Count a transfer."""
        one = self._one
        one["nixl_xfer_time_seconds"].observe(seconds)
        one["nixl_post_time_seconds"].observe(posted)
        one["nixl_bytes_transferred"].observe(size)
        one["nixl_num_descriptors"].observe(descriptors)

    def transfer_failed(self) -> None:
        """Count a failure."""
        self._one["nixl_num_failed_transfers"].inc()

    def notification_failed(self) -> None:
        """Count a failure, under both its names."""
        self._one["nixl_num_failed_notifications"].inc()
        self._one["nixl_num_failed_transfers"].inc()

    def expired(self) -> None:
        """Count blocks that nobody has read."""
        self._one["nixl_num_kv_expired_reqs"].inc()

    def late(self) -> None:
        """Count blocks that were read too late."""
        self._one["nixl_num_notifications_after_expiry"].inc()
