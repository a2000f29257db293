"""What ranks of prefill and decode say to each other, and the sockets that it goes over.

Each side listens on a port of its own, and connects to the other's: decode tells prefill where it wants a request's KV
cache, prefill writes there. So either way must be open between pods, as with the real thing.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable

import msgspec

_HEAD = struct.Struct("!I")
_MAX_FRAME = 1 << 28
_CONNECT = 5.0


class Join(msgspec.Struct, tag="join"):
    """Decode has room for a request.

    Attributes:
        room: Of the request.
        ip: Where decode's rank is.
        port: As well.
        skip: Pages that decode has already.
    """

    room: int
    ip: str
    port: int
    skip: int = 0


class Abort(msgspec.Struct, tag="abort"):
    """Decode does not want a request any more."""

    room: int


class First(msgspec.Struct):
    """What comes with the last pages.

    Attributes:
        token: The first one of the answer.
        cached: Tokens of the prompt that prefill had in its cache.
    """

    token: int
    cached: int


class Pages(msgspec.Struct, tag="pages"):
    """KV cache of a request, with what ends it if it is the last of it."""

    room: int
    start: int
    content: list[bytes]
    first: First | None = None


class Failed(msgspec.Struct, tag="failed"):
    """Prefill could not write."""

    room: int
    reason: str


Message = Join | Abort | Pages | Failed

_decoder = msgspec.msgpack.Decoder(Message)


class Port:
    """Where a rank listens.

    Attributes:
        number: Of the port.
    """

    def __init__(self, take: Callable[[Message], None]) -> None:
        self._take = take
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.number = 0

    async def start(self, host: str, port: int = 0) -> None:
        """Listen; on any port, as the real one does, unless one is given."""
        self._server = await asyncio.start_server(self._serve, host, port)
        self.number = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Close the port and all connections to it."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                (size,) = _HEAD.unpack(await reader.readexactly(_HEAD.size))
                if size > _MAX_FRAME:
                    return
                self._take(_decoder.decode(await reader.readexactly(size)))
        except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError, asyncio.CancelledError):
            # The peer has gone, is somebody else, or the loop ends.
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


class Wires:
    """Connections to ports of peers, made when they are first needed."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], asyncio.StreamWriter] = {}
        self._turns: dict[tuple[str, int], asyncio.Lock] = {}
        self._watchers: set[asyncio.Task[None]] = set()

    async def send(self, ip: str, port: int, message: Message) -> None:
        """Send a message; it has left this process when this returns.

        Raises:
            OSError: The peer is gone.
        """
        where = (ip, port)
        async with self._turns.setdefault(where, asyncio.Lock()):
            writer = self._open.get(where)
            if writer is None or writer.transport.is_closing():
                async with asyncio.timeout(_CONNECT):
                    reader, writer = await asyncio.open_connection(ip, port)
                # Peers say nothing here: whatever is to be read is their end.
                watcher = asyncio.create_task(self._watch(reader, writer))
                self._watchers.add(watcher)
                watcher.add_done_callback(self._watchers.discard)
                writer.transport.set_write_buffer_limits(0)
                self._open[where] = writer
            data = msgspec.msgpack.encode(message)
            writer.write(_HEAD.pack(len(data)) + data)
            await writer.drain()

    def close(self) -> None:
        """Let go of all peers."""
        for writer in self._open.values():
            writer.close()
        self._open.clear()

    @staticmethod
    async def _watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
