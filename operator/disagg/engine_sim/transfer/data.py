"""The data port: what a peer's memory is in the real thing. Blocks are read over it, and notifications come in.

A read names blocks and gets what they hold, as RDMA would: nobody asks whether the reader may.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence

import msgspec

from disagg.engine_sim.transfer.connector import TransferError

_HEAD = struct.Struct("!I")
_MAX_FRAME = 1 << 28


class Read(msgspec.Struct, tag="read"):
    """Ask for blocks.

    Attributes:
        blocks: Their ids.
        request_id: For whom they were computed: tells the other side when they are no longer what they were.
    """

    blocks: list[int]
    request_id: str


class Notify(msgspec.Struct, tag="notify"):
    """A notification, as NIXL carries them beside transfers."""

    message: str


class Content(msgspec.Struct, tag="content"):
    """The answer to a read; None if there are no such blocks."""

    blocks: list[bytes] | None


_decoder = msgspec.msgpack.Decoder(Read | Notify | Content)


async def _receive(reader: asyncio.StreamReader) -> Read | Notify | Content:
    (size,) = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if size > _MAX_FRAME:
        raise TransferError(f"a frame of {size} bytes")
    found: Read | Notify | Content = _decoder.decode(await reader.readexactly(size))
    return found


def _frame(message: Read | Notify | Content) -> bytes:
    data = msgspec.msgpack.encode(message)
    return _HEAD.pack(len(data)) + data


class DataServer:
    """This engine's data port."""

    def __init__(
        self,
        read: Callable[[Sequence[int], str], list[bytes] | None],
        notify: Callable[[str], None],
    ) -> None:
        """Not yet listening.

        Args:
            read: What blocks hold; None if there are no such blocks.
            notify: Told of notifications.
        """
        self._read = read
        self._notify = notify
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one, as UCX does."""
        self._server = await asyncio.start_server(self._serve, host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and all connections to it."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                message = await _receive(reader)
                if isinstance(message, Read):
                    writer.write(_frame(Content(self._read(message.blocks, message.request_id))))
                elif isinstance(message, Notify):
                    self._notify(message.message)
        except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError, TransferError):
            pass
        except asyncio.CancelledError:
            # The loop ends: there is nobody to tell.
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


class DataClient:
    """A connection to a peer's data port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    @classmethod
    async def connect(cls, host: str, port: int, timeout: float = 5.0) -> DataClient:  # noqa: ASYNC109 - of one call
        """Connect to a data port.

        Raises:
            TransferError: Nobody is there.
        """
        try:
            async with asyncio.timeout(timeout):
                return cls(*await asyncio.open_connection(host, port))
        except (OSError, TimeoutError) as error:
            raise TransferError(f"no data port at {host}:{port}: {error}") from error

    async def read(self, blocks: Sequence[int], request_id: str) -> list[bytes]:
        """What blocks of the peer hold.

        Raises:
            TransferError: It is gone, or has no such blocks.
        """
        try:
            async with self._turn:
                self._writer.write(_frame(Read(list(blocks), request_id)))
                answer = await _receive(self._reader)
        except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError) as error:
            raise TransferError(f"NIXL_ERR_REMOTE_DISCONNECT: {error}") from error
        if not isinstance(answer, Content) or answer.blocks is None:
            raise TransferError("NIXL_ERR_INVALID_PARAM: the peer has no such blocks")
        return answer.blocks

    def notify(self, message: str) -> bool:
        """Send a notification; False if the peer is gone."""
        if self._writer.transport.is_closing() or self._reader.at_eof():
            return False
        self._writer.write(_frame(Notify(message)))
        return True

    def close(self) -> None:
        """Let go of the peer."""
        self._writer.close()
