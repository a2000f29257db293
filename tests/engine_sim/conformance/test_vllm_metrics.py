"""Names, labels and buckets against those of a real pair."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine_sim.conformance.pairs import (
    MODEL,
    VllmPair,
    block_size,
    blocks_in_use,
    stepped_metric,
    vllm_pair,
)
from tests.engine_sim.processes import Engines, eventually

DATA = Path(__file__).parent / "data"
TEXTS = {role: (DATA / f"vllm-0.32.0-nixl-{role}.prom").read_text() for role in ("prefill", "decode")}

Shape = dict[str, tuple[str, str, dict[str, set[frozenset[str]]], dict[str, list[str]]]]


def shape(text: str) -> Shape:
    """Of each family: type, help, labels of its samples by their name, and values of labels that are of a fixed set."""
    found: Shape = {}
    for family in text_string_to_metric_families(text):
        if family.name.endswith("_created"):
            continue
        labels: dict[str, set[frozenset[str]]] = defaultdict(set)
        values: dict[str, list[str]] = defaultdict(list)
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            labels[sample.name].add(frozenset(sample.labels))
            for name in ("le", "source", "reason", "stage", "finished_reason", "sleep_state"):
                value = sample.labels.get(name)
                if value is not None and value not in values[name]:
                    values[name].append(value)
        found[family.name] = (family.type, family.documentation, dict(labels), dict(values))
    return found


@pytest.fixture(scope="module")
def pair(shared_engines: Engines) -> VllmPair:
    found = vllm_pair(shared_engines)
    assert found.complete("a prompt for all " * 20).status == 200
    return found


@pytest.mark.parametrize("role", TEXTS)
def test_every_family_of_the_real_one_is_there_as_it_is(pair: VllmPair, role: str) -> None:
    engine = {"prefill": pair.prefill, "decode": pair.decode}[role]
    real, ours = shape(TEXTS[role]), shape(engine.get("/metrics").body)
    if role == "prefill":
        # That one was a consumer, too.
        del real["vllm:num_requests_kv_fetch_by_stage"]
    assert [name for name in real if name not in ours] == []
    for name, expected in real.items():
        assert ours[name] == expected, name


def test_there_is_nothing_that_the_real_one_has_not(pair: VllmPair) -> None:
    real, ours = shape(TEXTS["decode"]), shape(pair.decode.get("/metrics").body)
    assert [name for name in ours if name not in real and not name.startswith(("process_", "python_"))] == []


def test_a_request_over_a_pair_is_counted_where_it_happens(pair: VllmPair) -> None:
    prefill, decode = pair.prefill, pair.decode
    sources = "vllm:prompt_tokens_by_source_total"
    before = decode.metric("vllm:generation_tokens_total")
    computed = decode.metric(sources, source="local_compute")
    pulled = decode.metric(sources, source="external_kv_transfer")
    transfers = decode.metric("vllm:nixl_xfer_time_seconds_count")
    reply = pair.complete("counted once, in the right place " * 5, ignore_eos=True, max_tokens=7)
    assert decode.metric("vllm:generation_tokens_total") == before + 7
    tokens = reply.body["usage"]["prompt_tokens"]
    assert decode.metric(sources, source="local_compute") == computed
    assert decode.metric(sources, source="external_kv_transfer") == pulled + tokens
    eventually(lambda: blocks_in_use(prefill) == 0)
    for engine in (prefill, decode):
        assert engine.metric("vllm:prompt_tokens_total") == engine.metric(
            "vllm:prompt_tokens_by_source_total"
        )
        assert engine.metric("vllm:prompt_tokens_total") >= tokens
        assert engine.metric("vllm:request_success_total", finished_reason="length") >= 1
        assert engine.metric("vllm:num_requests_running") == 0
        assert engine.metric("vllm:num_requests_waiting") == 0
    assert prefill.metric("vllm:nixl_xfer_time_seconds_count") == 0
    assert prefill.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer") == 0
    eventually(lambda: stepped_metric(decode, "vllm:nixl_xfer_time_seconds_count") == transfers + 1)
    assert decode.metric("vllm:nixl_xfer_time_seconds_sum") > 0
    cached = decode.metric("vllm:prompt_tokens_cached_by_source_total")
    hits = decode.metric("vllm:prefix_cache_hits_total") + decode.metric(
        "vllm:external_prefix_cache_hits_total"
    )
    assert cached == hits


def test_prefix_hits_are_counted_in_tokens(pair: VllmPair) -> None:
    body = {"model": MODEL, "prompt": [7] * 100, "max_tokens": 2}
    before = pair.alone.metric("vllm:prefix_cache_hits_total")
    for _ in range(2):
        pair.alone.post("/v1/completions", body)
    whole = 100 // block_size(pair.alone) * block_size(pair.alone)
    assert pair.alone.metric("vllm:prefix_cache_hits_total") == before + whole


@pytest.mark.stand_in_only("asks for a fault")
def test_metrics_can_be_lost(pair: VllmPair) -> None:
    engine = pair.alone
    engine.fault(metrics_lost=True)
    assert engine.get("/metrics").status == 500
    engine.fault(metrics_lost=False)
    assert engine.get("/metrics").status == 200
