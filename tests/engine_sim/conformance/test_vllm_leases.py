"""How long prefill keeps blocks for decode."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine_sim.conformance.pairs import (
    LENGTH,
    MODEL,
    PROMPT,
    SCALE,
    VllmPair,
    blocks_in_use,
    decode,
    start_vllm,
    stepped_metric,
    vllm_pair,
)
from tests.engine_sim.processes import Engines, eventually


@pytest.fixture(scope="module")
def pair(shared_engines: Engines) -> VllmPair:
    return vllm_pair(shared_engines)


def test_after_the_lease_a_read_gives_other_bytes_without_a_word(pair: VllmPair, engines: Engines) -> None:
    short = VllmPair(
        start_vllm(
            engines, "kv_producer", LENGTH, kv_connector_extra_config={"kv_lease_duration": 6}
        ).ready(),
        pair.decode,
        pair.alone,
    )
    prompt = "expired " + PROMPT
    failed = pair.decode.metric("vllm:nixl_num_failed_transfers_total")
    params = short.leg(pair.body(prompt))
    assert blocks_in_use(short.prefill) > 0
    eventually(lambda: stepped_metric(short.prefill, "vllm:nixl_num_kv_expired_reqs_total") == 1)
    assert blocks_in_use(short.prefill) == 0
    # Somebody else's by now.
    taken = {"max_tokens": 1, "cache_salt": "another"}
    for number in range(40):
        short.prefill.post("/v1/completions", pair.body([10 + number] * 3000, **taken))
    reply = decode(pair.decode, params, prompt=prompt)
    assert (reply.status, reply.finish_reason) == (200, "length")
    assert reply.text != pair.single(prompt).text
    late = "vllm:nixl_num_notifications_after_expiry_total"
    eventually(lambda: stepped_metric(short.prefill, late) == 1)
    assert pair.decode.metric("vllm:nixl_num_failed_transfers_total") == failed


@pytest.mark.stand_in_only("asks for a fault that keeps requests in the queue")
def test_heartbeats_of_a_queued_request_keep_its_blocks(engines: Engines) -> None:
    prefill = start_vllm(engines, "kv_producer", kv_connector_extra_config={"kv_lease_duration": 30})
    consumer = start_vllm(
        engines,
        "kv_consumer",
        "--max-num-seqs=1",
        kv_connector_extra_config={"kv_lease_duration": 30},
    )
    pair = VllmPair(prefill.ready(), consumer.ready(), engines.start("serve", MODEL, *SCALE).ready())
    consumer.fault(slow=100.0)
    with ThreadPoolExecutor(2) as pool:
        body = {**pair.body("first"), "max_tokens": 700, "ignore_eos": True}
        first = pool.submit(consumer.post, "/v1/completions", body)
        eventually(lambda: consumer.state()["running"] == 1)
        params = pair.leg(pair.body(PROMPT))
        start = prefill.state()["time"]
        second = pool.submit(decode, consumer, params)
        # Longer than the lease.
        eventually(lambda: prefill.state()["time"] > start + 36)
        assert not first.done()
        assert prefill.state()["leases"] == 1
        consumer.fault(slow=1.0)
        assert second.result().text == pair.single(PROMPT).text
