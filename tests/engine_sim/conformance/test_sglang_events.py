"""SGLang's KV events, as an index of prefixes hears them."""

from __future__ import annotations

import time

import msgspec
import zmq

from tests.engine_sim.conformance.sglang_pair import MODEL, start_sglang
from tests.engine_sim.processes import Engines, free_port


def test_each_page_is_told_with_its_tokens(engines: Engines) -> None:
    port = free_port()
    config = f'{{"publisher":"zmq","endpoint":"tcp://*:{port}","topic":"kv-events"}}'
    engine = start_sglang(engines, "null", f"--kv-events-config={config}", "--page-size=16").ready()
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    try:
        socket.connect(f"tcp://127.0.0.1:{port}")
        socket.setsockopt(zmq.SUBSCRIBE, b"kv-events")
        time.sleep(0.5)
        tokens = list(range(1000, 1050))
        engine.post("/v1/completions", {"model": MODEL, "prompt": tokens, "max_tokens": 1})
        assert socket.poll(10_000)
        topic, sequence, payload = socket.recv_multipart()
    finally:
        socket.close(0)
        context.term()
    _time, events, rank = msgspec.msgpack.decode(payload)
    assert (topic, int.from_bytes(sequence, "big"), rank) == (b"kv-events", 0, 0)
    assert [event["type"] for event in events] == ["BlockStored"] * 3
    assert [event["token_ids"] for event in events] == [tokens[:16], tokens[16:32], tokens[32:48]]
    hashes = [event["block_hashes"][0] for event in events]
    assert [event["parent_block_hash"] for event in events] == [None, *hashes[:2]]
    assert all(-(1 << 63) <= each < 1 << 63 for each in hashes)
    assert {(event["block_size"], event["medium"]) for event in events} == {(16, "GPU")}
