"""KV events in vLLM's wire format: a PUB socket that tells of the prefix cache, a ROUTER that tells again.

Frames are topic, sequence number (8 bytes, big-endian) and a msgpack batch. Releases up to 0.18 write events as arrays,
later ones as maps.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import msgspec
import zmq

from disagg.engine_sim.blocks import CacheEvent, Removed, Stored

_END = (-1).to_bytes(8, "big", signed=True)
_SEQUENCE = 8


@dataclass(frozen=True)
class EventsConfig:
    """The value of `--kv-events-config`, by vLLM's names and defaults."""

    enable_kv_cache_events: bool = False
    publisher: str = "zmq"
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    buffer_steps: int = 10_000
    hwm: int = 100_000
    max_queue_size: int = 100_000
    topic: str = ""


def encode_event(event: CacheEvent, block_size: int, *, as_map: bool) -> Any:  # noqa: ANN401 - JSON, or whatever is given
    """An event as it is on the wire.

    Args:
        event: What happened.
        block_size: Tokens of a block.
        as_map: Whether this release writes maps.
    """
    if isinstance(event, Stored):
        if as_map:
            return {
                "type": "BlockStored",
                "block_hashes": event.hashes,
                "parent_block_hash": event.parent,
                "token_ids": event.tokens,
                "block_size": block_size,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": event.lora,
                "group_idx": 0,
                "kv_cache_spec_kind": "full_attention",
            }
        return ["BlockStored", event.hashes, event.parent, event.tokens, block_size, None, "GPU", event.lora]
    if isinstance(event, Removed):
        if as_map:
            return {"type": "BlockRemoved", "block_hashes": event.hashes, "medium": "GPU", "group_idx": 0}
        return ["BlockRemoved", event.hashes, "GPU"]
    return {"type": "AllBlocksCleared"} if as_map else ["AllBlocksCleared"]


def offset_port(endpoint: str, rank: int) -> str:
    """An endpoint for a data-parallel rank."""
    head, colon, port = endpoint.rpartition(":")
    return f"{head}:{int(port) + rank}" if colon and port.isdecimal() else endpoint


class EventPublisher:
    """Publishes what happens to one engine's prefix cache."""

    def __init__(self, config: EventsConfig, rank: int, block_size: int, *, as_map: bool) -> None:
        """Open the sockets.

        Args:
            config: Where and how.
            rank: Of data parallelism.
            block_size: Tokens of a block.
            as_map: Whether this release writes maps.

        Raises:
            zmq.ZMQError: An address can't be bound.
        """
        self._rank = rank
        self._block_size = block_size
        self._as_map = as_map
        self._topic = config.topic.encode()
        self._pending: list[CacheEvent] = []
        self._sent: deque[tuple[int, bytes]] = deque(maxlen=config.buffer_steps)
        self._next = 0
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._pub = context.socket(zmq.PUB)
        self._pub.set_hwm(config.hwm)
        self._pub.setsockopt(zmq.LINGER, 0)
        endpoint = offset_port(config.endpoint, rank)
        # As in vLLM: a wildcard binds, an address connects to somebody who has bound it.
        if any(each in endpoint for each in ("*", "::", "0.0.0.0", "ipc://", "inproc://")):
            self._pub.bind(endpoint)
        else:
            self._pub.connect(endpoint)
        self._replay: zmq.Socket[bytes] | None = None
        if config.replay_endpoint:
            self._replay = context.socket(zmq.ROUTER)
            self._replay.setsockopt(zmq.LINGER, 0)
            self._replay.bind(offset_port(config.replay_endpoint, rank))

    def record(self, event: CacheEvent) -> None:
        """Remember an event for the next batch."""
        self._pending.append(event)

    def flush(self) -> None:
        """Send what was recorded as one batch, and answer who wants to hear again."""
        if self._pending:
            batch = [
                time.time(),
                [encode_event(event, self._block_size, as_map=self._as_map) for event in self._pending],
                self._rank,
            ]
            self._pending.clear()
            payload = msgspec.msgpack.encode(batch)
            self._pub.send_multipart([self._topic, self._next.to_bytes(_SEQUENCE, "big"), payload])
            self._sent.append((self._next, payload))
            self._next += 1
        if self._replay is not None:
            self._answer(self._replay)

    def close(self) -> None:
        """Close the sockets."""
        self._pub.close()
        if self._replay is not None:
            self._replay.close()

    def _answer(self, socket: zmq.Socket[bytes]) -> None:
        while socket.poll(0):
            frames = socket.recv_multipart()
            identity, start = frames[0], frames[-1]
            if len(start) != _SEQUENCE:
                continue
            first = int.from_bytes(start, "big")
            for sequence, payload in self._sent:
                if sequence >= first:
                    socket.send_multipart([identity, b"", sequence.to_bytes(_SEQUENCE, "big"), payload])
            socket.send_multipart([identity, b"", _END, b""])
