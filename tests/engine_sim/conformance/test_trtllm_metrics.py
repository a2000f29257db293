"""What a worker of TensorRT-LLM tells of itself."""

from __future__ import annotations

import pytest

from tests.engine_sim.conformance.trtllm import SIM, completion, config, sample, start
from tests.engine_sim.processes import Engine, Engines

FEW = {
    "trtllm_request_success",
    "trtllm_e2e_request_latency_seconds",
    "trtllm_time_to_first_token_seconds",
    "trtllm_time_per_output_token_seconds",
    "trtllm_request_queue_time_seconds",
    "trtllm_kv_cache_hit_rate",
    "trtllm_kv_cache_utilization",
}
MORE = FEW | {
    f"trtllm_{name}"
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "num_context_requests",
        "num_generation_requests",
        "num_paused_requests",
        "kv_cache_max_blocks",
        "kv_cache_free_blocks",
        "kv_cache_used_blocks",
        "kv_cache_tokens_per_block",
        "kv_cache_reused_blocks",
        "kv_cache_missed_blocks",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
        "prompt_tokens",
        "generation_tokens",
        "prompt_cached_tokens",
        "request_error",
    )
}


@pytest.fixture(scope="module")
def engine(shared_engines: Engines) -> Engine:
    content = config(perf_metrics_max_requests=3, kv_cache_config={"event_buffer_max_size": 8})
    return start(shared_engines, content, "--sim-engine-version=1.3.0").ready()


def families(engine: Engine) -> set[str]:
    lines = engine.get("/prometheus/metrics").body.splitlines()
    names = {line.split()[2].removesuffix("_total") for line in lines if line.startswith("# TYPE")}
    return {name for name in names if not name.endswith("_created")}


def test_there_are_no_prometheus_metrics_unless_they_are_wanted(engines: Engines) -> None:
    engine = engines.start(*SIM, "org/model").ready()
    assert engine.get("/prometheus/metrics").status == 404
    engine.post("/v1/completions", completion("hi"))
    assert (engine.get("/metrics").body, engine.get("/perf_metrics").body) == ([], [])
    assert engine.post("/kv_cache_events", {}).body == []


def test_before_release_1_3_there_are_few(engines: Engines) -> None:
    engine = start(engines, config()).ready()
    engine.post("/v1/completions", completion("hi"))
    assert families(engine) == FEW
    assert sample(engine, "trtllm_num_requests_waiting") is None


def test_gauges_come_with_the_first_request_that_ends(engines: Engines) -> None:
    engine = start(engines, config(), "--sim-engine-version=1.3.0").ready()
    assert families(engine) == MORE
    assert sample(engine, "trtllm_num_requests_waiting") is None
    engine.post("/v1/completions", completion("hi"))
    assert sample(engine, "trtllm_num_requests_waiting") == 0


def test_without_iteration_stats_there_are_no_gauges(engines: Engines) -> None:
    engine = start(engines, config(enable_iter_perf_stats=False), "--sim-engine-version=1.3.0").ready()
    engine.post("/v1/completions", completion("hi"))
    assert sample(engine, "trtllm_kv_cache_utilization") is None
    assert sample(engine, "trtllm_request_success_total") == 1


def test_counters_and_labels(engine: Engine) -> None:
    engine.post("/v1/completions", completion([1000] * 70, max_tokens=5, ignore_eos=True))
    engine.post("/v1/completions", completion([1000] * 70, max_tokens=5, ignore_eos=True))
    labels = {"model_name": "undefined", "engine_type": "undefined"}
    assert sample(engine, "trtllm_prompt_tokens_total", **labels) == 140
    assert sample(engine, "trtllm_generation_tokens_total", **labels) == 10
    assert sample(engine, "trtllm_prompt_cached_tokens_total", **labels) == 64
    assert sample(engine, "trtllm_kv_cache_reused_blocks_total", **labels) == 2
    assert sample(engine, "trtllm_kv_cache_hit_rate", **labels) == pytest.approx(2 / 6)
    assert sample(engine, "trtllm_time_to_first_token_seconds_count", **labels) == 2


def test_metrics_are_json_and_told_once(engine: Engine) -> None:
    engine.get("/metrics")
    engine.post("/v1/completions", completion("hi", max_tokens=5, ignore_eos=True))
    found = engine.get("/metrics").body
    assert len(found) == 5
    first, last = found[0], found[-1]
    assert first["inflightBatchingStats"]["numContextRequests"] == 1
    assert last["inflightBatchingStats"]["numGenRequests"] == 1
    assert last["kvCacheStats"]["tokensPerBlock"] == 32
    assert last["numQueuedRequests"] == 0
    assert engine.get("/metrics").body == []


def test_metrics_of_requests_are_told_once_and_only_the_last(engine: Engine) -> None:
    engine.get("/perf_metrics")
    for _ in range(5):
        engine.post("/v1/completions", completion("hi", max_tokens=2))
    found = engine.get("/perf_metrics").body
    assert len(found) == 3
    times = found[0]["perf_metrics"]["timing_metrics"]
    assert times["arrival_time"] <= times["first_token_time"] <= times["last_token_time"]
    assert engine.get("/perf_metrics").body == []


def test_events_of_the_cache_are_told_once_and_only_the_last(engine: Engine) -> None:
    engine.post("/kv_cache_events", {})
    engine.post("/v1/completions", completion([2000] * 70, max_tokens=1))
    (stored,) = engine.post("/kv_cache_events", {}).body
    blocks = stored["data"]["blocks"]
    assert (stored["data"]["type"], stored["data"]["parent_hash"], len(blocks)) == ("stored", None, 2)
    assert [token["token_id"] for token in blocks[0]["tokens"]] == [2000] * 32
    assert engine.post("/kv_cache_events", {}).body == []
    for index in range(12):
        engine.post("/v1/completions", completion([3000 + index] * 40, max_tokens=1))
    found = engine.post("/kv_cache_events", {}).body
    assert [event["event_id"] for event in found] == list(
        range(found[-1]["event_id"] - 7, found[-1]["event_id"] + 1)
    )
    assert engine.get("/kv_cache_events").status == 405


def test_a_cache_tells_first_how_large_it_is(engines: Engines) -> None:
    content = config(kv_cache_config={"event_buffer_max_size": 8, "max_tokens": 3200})
    engine = start(engines, content).ready()
    (created,) = engine.post("/kv_cache_events", {}).body
    assert created == {"event_id": 0, "data": {"type": "created", "num_blocks_per_cache_level": [100, 0]}}


def test_metrics_that_are_lost(engines: Engines) -> None:
    engine = start(engines, config()).ready()
    engine.fault(metrics_lost=True)
    assert {engine.get(path).status for path in ("/metrics", "/prometheus/metrics")} == {500}
