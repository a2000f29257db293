"""KV events on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import zmq

from tests.engine_sim.conformance.pairs import MODEL, SCALE, block_size
from tests.engine_sim.processes import DEADLINE, Engine, Engines, eventually, free_port


@contextmanager
def socket_to(kind: int, port: int) -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context:
        socket: zmq.Socket[bytes] = context.socket(kind)
        with socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVTIMEO, int(DEADLINE * 1000))
            if kind == zmq.SUB:
                socket.setsockopt(zmq.SUBSCRIBE, b"kv@")
            socket.connect(f"tcp://127.0.0.1:{port}")
            yield socket


def start(engines: Engines, *more: str) -> tuple[Engine, int, int]:
    port, replay = free_port(), free_port()
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{port}",
        "replay_endpoint": f"tcp://*:{replay}",
        "topic": "kv@$POD@m",
    }
    flag = "--kv-events-config=" + msgspec.json.encode(config).decode()
    return engines.start("serve", MODEL, *SCALE, flag, *more, POD="p1").ready(), port, replay


def complete(engine: Engine, prompt: list[int]) -> None:
    reply = engine.post("/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 1})
    assert reply.status == 200


def subscribed(engine: Engine, socket: zmq.Socket[bytes]) -> None:
    """Make prompts until one of them is heard of: a subscription takes its time."""
    number = iter(range(100, 10000))

    def look() -> int:
        # Numbers of two digits to the base of what is a token of small vocabularies, too.
        high, low = divmod(next(number), 60)
        complete(engine, [30 + high, 30 + low] * 16)
        return socket.poll(20)

    eventually(look)
    while socket.poll(200):
        socket.recv_multipart()


def receive(socket: zmq.Socket[bytes]) -> tuple[int, list[Any]]:
    topic, sequence, payload = socket.recv_multipart()
    assert topic == b"kv@p1@m"
    _time, events, rank = msgspec.msgpack.decode(payload)
    assert rank == 0
    return int.from_bytes(sequence, "big"), events


def test_blocks_that_are_stored_are_told_with_their_tokens(engines: Engines) -> None:
    engine, port, _replay = start(engines)
    with socket_to(zmq.SUB, port) as socket:
        subscribed(engine, socket)
        size = block_size(engine)
        complete(engine, [11] * size + [12] * size + [13] * 5)
        first, (event,) = receive(socket)
        assert event["type"] == "BlockStored"
        assert event["token_ids"] == [11] * size + [12] * size
        assert (event["block_size"], event["parent_block_hash"], event["medium"]) == (size, None, "GPU")
        assert len(event["block_hashes"]) == 2
        complete(engine, [11] * size + [12] * size + [14] * size)
        second, (more,) = receive(socket)
        assert second == first + 1
        assert more["parent_block_hash"] == event["block_hashes"][1]
        assert more["token_ids"] == [14] * size


def test_blocks_that_are_evicted_are_told(engines: Engines) -> None:
    engine, port, _replay = start(engines, "--num-gpu-blocks-override=9", "--max-model-len=128")
    with socket_to(zmq.SUB, port) as socket:
        subscribed(engine, socket)
        complete(engine, [11] * 100)
        seen: list[Any] = []
        complete(engine, [12] * 100)
        while not any(event["type"] == "BlockRemoved" and event["block_hashes"] for event in seen):
            seen += receive(socket)[1]


def test_what_was_missed_is_told_again(engines: Engines) -> None:
    engine, _port, replay = start(engines)
    size = block_size(engine)
    for index in range(3):
        complete(engine, [11 + index] * size)
    with socket_to(zmq.REQ, replay) as socket:
        socket.setsockopt(zmq.REQ_RELAXED, 1)
        socket.send((1).to_bytes(8, "big"))
        sequence, payload = socket.recv_multipart()
        assert int.from_bytes(sequence, "big") == 1
        assert msgspec.msgpack.decode(payload)[1][0]["token_ids"] == [12] * size
    with socket_to(zmq.DEALER, replay) as socket:
        socket.send_multipart([b"", (1).to_bytes(8, "big")])
        sequences = [int.from_bytes(socket.recv_multipart()[1], "big", signed=True) for _ in range(3)]
        assert sequences == [1, 2, -1]


@pytest.mark.stand_in_only("is of older releases")
@pytest.mark.parametrize("version", ["0.11.0", "0.18.0"])
def test_older_releases_write_arrays(engines: Engines, version: str) -> None:
    engine, port, _replay = start(engines, f"--sim-engine-version={version}")
    with socket_to(zmq.SUB, port) as socket:
        subscribed(engine, socket)
        complete(engine, [1] * 16)
        _sequence, ((tag, hashes, parent, tokens, size, *_rest),) = receive(socket)
        assert (tag, len(hashes), parent, tokens, size) == ("BlockStored", 1, None, [1] * 16, 16)
