"""What requests leave in their blocks: digests of tokens, and hashes to find full blocks by."""

from __future__ import annotations

from dataclasses import dataclass

from disagg.engine_sim.blocks import DIGEST, BlockPool, block_hashes, digests, unit_of
from disagg.engine_sim.request import Request


@dataclass
class Content:
    """Writes the blocks of one engine.

    Attributes:
        pool: The blocks.
        identity: Model and everything else that makes KV bytes differ.
    """

    pool: BlockPool
    identity: bytes

    def __post_init__(self) -> None:
        self.unit = unit_of(self.pool.block_size)

    def write_prompt(self, request: Request) -> None:
        """Write the digests of prompt tokens that were computed since the last time."""
        end, unit = request.computed, self.unit
        if end < request.digested:
            return
        new = digests(
            request.digest_root or self._root(request), request.prompt[request.digested : end], unit
        )
        self._place(request, request.digested, new)
        full = (end - request.digested) // unit
        if full:
            request.digest_root = new[full - 1]
            request.digested += full * unit

    def _place(self, request: Request, start: int, new: list[bytes]) -> None:
        """Put digests, the first for the tokens at `start`, into blocks."""
        size, unit = self.pool.block_size, self.unit
        for index, each in enumerate(new):
            position = start + index * unit
            block, offset = request.blocks[position // size], position % size // unit * DIGEST
            self.pool.content[block] = self.pool.content.get(block, b"")[:offset] + each if offset else each

    def resume(self, request: Request, tokens: int) -> None:
        """Go on from what the first blocks hold."""
        size, unit = self.pool.block_size, self.unit
        request.digested = tokens - tokens % unit
        request.digest_root = b""
        if request.digested:
            last = request.digested - unit
            content = self.pool.content.get(request.blocks[last // size], b"")
            offset = last % size // unit * DIGEST
            request.digest_root = content[offset : offset + DIGEST]

    def _root(self, request: Request) -> bytes:
        return self.identity + request.extra

    def register(self, request: Request, tokens: int) -> None:
        """Make the blocks that are full now findable, and write what answers have put into them."""
        size = self.pool.block_size
        full = tokens // size
        if full <= request.registered:
            return
        if request.digested < full * size:
            # Of an answer, or of a prompt that is computed again together with the answer so far.
            new = digests(
                request.digest_root or self._root(request),
                request.tokens(request.digested, full * size),
                self.unit,
            )
            self._place(request, request.digested, new)
            request.digest_root = new[-1]
            request.digested = full * size
        known = len(request.hashes)
        if full > known:
            request.hashes += block_hashes(
                request.tokens(known * size, full * size),
                size,
                request.extra,
                request.hashes[-1] if known else None,
            )
        first = request.registered
        self.pool.register(
            request.blocks[first:full],
            request.hashes[first:full],
            request.tokens(first * size, full * size),
            request.hashes[first - 1] if first else None,
            request.lora,
        )
        request.registered = full
