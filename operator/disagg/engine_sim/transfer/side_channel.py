"""The side channel: a ZMQ ROUTER that answers who this engine is, and the question to a peer's.

Both in threads, as in vLLM: a peer that does not answer must not keep the engine from its steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec
import zmq

from disagg.engine_sim.transfer.handshake import GET_META, HandshakeError

TIMEOUT_MS = 5000
_POLL_MS = 100


def address(host: str, port: int) -> str:
    """How ZMQ writes host and port."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


class SideChannel:
    """Answers peers until it is stopped."""

    def __init__(self, host: str, port: int, payload: Callable[[], bytes | None]) -> None:
        """Bind the socket.

        Args:
            host: Where to listen.
            port: As well.
            payload: The answer; None for no answer.

        Raises:
            zmq.ZMQError: The address can't be bound.
        """
        self._payload = payload
        self._stop = threading.Event()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        if ":" in host:
            self._socket.setsockopt(zmq.IPV6, 1)
        try:
            self._socket.bind(address(host, port))
        except zmq.ZMQError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="nixl_handshake_listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the socket."""
        self._stop.set()
        self._thread.join()

    def _serve(self) -> None:
        with self._socket as socket:
            while not self._stop.is_set():
                if not socket.poll(_POLL_MS):
                    continue
                frames = socket.recv_multipart()
                answer = self._answer(frames)
                if answer is not None:
                    socket.send_multipart(
                        [frames[0], b"", answer, msgspec.msgpack.encode(time.perf_counter())]
                    )

    def _answer(self, frames: list[bytes]) -> bytes | None:
        """The answer, if this is the question. The real listener dies of anything else; ours is silent."""
        try:
            message, _pp_rank, _tp_rank = msgspec.msgpack.decode(frames[-1])
        except (msgspec.DecodeError, ValueError, TypeError):
            return None
        return self._payload() if message == GET_META else None


def ask(host: str, port: int, tp_rank: int = 0, timeout_ms: int = TIMEOUT_MS) -> bytes:
    """What the engine behind a side channel says of itself; blocks.

    Raises:
        HandshakeError: It does not answer in time, or there can't be such an address.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    try:
        with context.socket(zmq.REQ) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            if ":" in host:
                socket.setsockopt(zmq.IPV6, 1)
            socket.setsockopt(zmq.RCVTIMEO, timeout_ms)
            socket.connect(address(host, port))
            socket.send(msgspec.msgpack.encode((GET_META, 0, tp_rank)))
            frames: list[bytes] = socket.recv_multipart()
    except zmq.ZMQError as error:
        raise HandshakeError(f"no answer from {host}:{port}: {error}") from error
    return frames[0]
