"""Paged KV cache: blocks with content, a prefix cache over them, and leases that keep them.

The first stage of a request's way: blocks -> scheduler -> engine -> api. Nothing here knows time but as an argument.

A block holds digests of the tokens in it, one for each `UNIT` of them, chained to those before: what text a request
gets depends on every byte that its blocks hold, wherever these came from.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

UNIT = 16
"""Tokens that one digest stands for. Blocks of other sizes than the peer's are made of the same digests."""

DIGEST = 32
"""Bytes of a digest."""


def unit_of(block_size: int) -> int:
    """Tokens that a digest stands for in blocks of `block_size`."""
    return UNIT if block_size % UNIT == 0 else block_size


def digests(root: bytes, tokens: Sequence[int], unit: int) -> list[bytes]:
    """The digests of `tokens`, the first chained to `root`; the last one may stand for fewer than `unit` tokens."""
    found = []
    for start in range(0, len(tokens), unit):
        root = hashlib.blake2b(
            root + array("I", tokens[start : start + unit]).tobytes(), digest_size=DIGEST
        ).digest()
        found.append(root)
    return found


def block_hashes(
    tokens: Sequence[int], block_size: int, extra: bytes, before: int | None = None
) -> list[int]:
    """Chained hashes of the full blocks in `tokens`, as prefix caches and KV events name them.

    Args:
        tokens: Token ids.
        block_size: Tokens of a block.
        extra: What else tells prefixes apart: an adapter's name, a request's cache salt.
        before: Hash of the block before them; None if they are the beginning.
    """
    parent = b"" if before is None else before.to_bytes(8, "big")
    found = []
    for end in range(block_size, len(tokens) + 1, block_size):
        parent = hashlib.blake2b(
            parent + array("I", tokens[end - block_size : end]).tobytes() + extra, digest_size=8
        ).digest()
        found.append(int.from_bytes(parent, "big"))
    return found


@dataclass(frozen=True)
class Stored:
    """Blocks entered the prefix cache."""

    hashes: list[int]
    parent: int | None
    tokens: list[int]
    lora: str | None


@dataclass(frozen=True)
class Removed:
    """Blocks left the prefix cache."""

    hashes: list[int]


@dataclass(frozen=True)
class Cleared:
    """The prefix cache was emptied."""


CacheEvent = Stored | Removed | Cleared


@dataclass
class Lease:
    """Blocks of a finished request that a peer may still read."""

    blocks: list[int]
    expires: float


@dataclass
class BlockPool:
    """The blocks of an engine.

    Attributes:
        count: Blocks there are. Block 0 is never given out, as in vLLM.
        block_size: Tokens of a block.
        caching: Whether blocks stay findable by their hash.
        on_event: Told of each change of the prefix cache, if anybody listens.
    """

    count: int
    block_size: int
    caching: bool = True
    on_event: Callable[[CacheEvent], None] | None = None
    content: dict[int, bytes] = field(default_factory=dict)
    _refs: dict[int, int] = field(default_factory=dict)
    _free: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _hash_of: dict[int, int] = field(default_factory=dict)
    _by_hash: dict[int, int] = field(default_factory=dict)
    _fresh: int = 1

    @property
    def free(self) -> int:
        """Blocks that can be allocated, cached ones that nobody uses included."""
        return len(self._free) + self.count - self._fresh

    @property
    def usage(self) -> float:
        """Share of blocks in use, 0 to 1."""
        usable = self.count - 1
        return (usable - self.free) / usable if usable else 0.0

    def cached_prefix(self, hashes: Iterable[int]) -> list[int]:
        """Blocks of the longest cached prefix, not yet taken."""
        found = []
        for each in hashes:
            block = self._by_hash.get(each)
            if block is None:
                break
            found.append(block)
        return found

    def available(self, cached: Sequence[int]) -> int:
        """Blocks that can be allocated once `cached` are taken."""
        return self.free - sum(1 for block in cached if block in self._free)

    def take(self, cached: Sequence[int]) -> None:
        """Use blocks that are in the prefix cache."""
        for block in cached:
            self._free.pop(block, None)
            self._refs[block] = self._refs.get(block, 0) + 1

    def allocate(self, amount: int) -> list[int] | None:
        """New blocks, the longest unused first; None if there are not so many."""
        if amount > self.free:
            return None
        found: list[int] = []
        evicted: list[int] = []
        for _ in range(amount):
            if self._fresh < self.count:
                block = self._fresh
                self._fresh += 1
            else:
                block, _nothing = self._free.popitem(last=False)
                known = self._hash_of.pop(block, None)
                if known is not None and self._by_hash.get(known) == block:
                    del self._by_hash[known]
                    evicted.append(known)
            self._refs[block] = 1
            found.append(block)
        if evicted and self.on_event is not None:
            self.on_event(Removed(evicted))
        return found

    def release(self, blocks: Sequence[int]) -> None:
        """Give up blocks. The end of a prefix is evicted before its beginning."""
        for block in reversed(blocks):
            left = self._refs[block] - 1
            if left:
                self._refs[block] = left
            else:
                del self._refs[block]
                self._free[block] = None
                if block not in self._hash_of:
                    # Of no use to anybody: the next to be given out.
                    self._free.move_to_end(block, last=False)

    def register(
        self,
        blocks: Sequence[int],
        hashes: Sequence[int],
        tokens: Sequence[int],
        before: int | None = None,
        lora: str | None = None,
    ) -> None:
        """Make full blocks findable.

        Args:
            blocks: Full blocks that follow each other.
            hashes: Their hashes.
            tokens: Token ids in them.
            before: Hash of the block before them.
            lora: Adapter they were computed with.
        """
        if not self.caching:
            return
        stored: list[int] = []
        first = 0
        for index, (block, each) in enumerate(zip(blocks, hashes, strict=True)):
            if block in self._hash_of:
                continue
            self._hash_of[block] = each
            if each not in self._by_hash:
                self._by_hash[each] = block
                first = index if not stored else first
                stored.append(each)
        if stored and self.on_event is not None:
            parent = hashes[first - 1] if first else before
            size = self.block_size
            self.on_event(
                Stored(stored, parent, list(tokens[first * size : (first + len(stored)) * size]), lora)
            )

    def clear(self) -> bool:
        """Empty the prefix cache; refused while blocks are in use."""
        if self._refs:
            return False
        self._hash_of.clear()
        self._by_hash.clear()
        if self.on_event is not None:
            self.on_event(Cleared())
        return True


@dataclass
class Leases:
    """Blocks that wait for a peer, by the request that computed them."""

    pool: BlockPool
    held: dict[str, Lease] = field(default_factory=dict)

    def hold(self, request_id: str, blocks: list[int], expires: float) -> None:
        """Keep blocks, which the caller gives away, until `expires`."""
        self.held[request_id] = Lease(blocks, expires)

    def extend(self, request_id: str, expires: float) -> None:
        """Keep blocks until `expires` at least; nothing if they are gone."""
        lease = self.held.get(request_id)
        if lease is not None:
            lease.expires = max(lease.expires, expires)

    def release(self, request_id: str) -> bool:
        """Free blocks that were read; False if there is no such lease."""
        lease = self.held.pop(request_id, None)
        if lease is None:
            return False
        self.pool.release(lease.blocks)
        return True

    def expire(self, now: float) -> list[str]:
        """Free blocks whose time is over and say of which requests."""
        gone = [request_id for request_id, lease in self.held.items() if now >= lease.expires]
        for request_id in gone:
            self.release(request_id)
        return gone

    def next_expiry(self) -> float | None:
        """When the next lease ends, if there is one."""
        return min((lease.expires for lease in self.held.values()), default=None)

    @property
    def blocks(self) -> int:
        """Blocks that are kept."""
        return sum(len(lease.blocks) for lease in self.held.values())
