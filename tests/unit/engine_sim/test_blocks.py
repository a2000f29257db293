from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from disagg.engine_sim.blocks import (
    BlockPool,
    CacheEvent,
    Cleared,
    Leases,
    Removed,
    Stored,
    block_hashes,
    digests,
    unit_of,
)

tokens_of = st.lists(st.integers(0, 100_000), max_size=80)


@given(tokens_of, st.integers(0, 80))
def test_digests_go_on_from_where_they_stopped(tokens: list[int], at: int) -> None:
    at -= at % 16
    before = digests(b"root", tokens[:at], 16)
    after = digests(before[-1] if before else b"root", tokens[at:], 16)
    assert before + after == digests(b"root", tokens, 16)


@given(tokens_of, st.data())
def test_every_token_changes_its_digest_and_all_after_it(tokens: list[int], data: st.DataObject) -> None:
    if not tokens:
        return
    index = data.draw(st.integers(0, len(tokens) - 1))
    other = tokens.copy()
    other[index] += 1
    old, new = digests(b"", tokens, 16), digests(b"", other, 16)
    same = [one == two for one, two in zip(old, new, strict=True)]
    assert same == [position < index // 16 for position in range(len(old))]


@given(tokens_of, st.sampled_from([1, 4, 16]))
def test_hashes_are_of_full_blocks_and_go_on(tokens: list[int], size: int) -> None:
    hashes = block_hashes(tokens, size, b"")
    assert len(hashes) == len(tokens) // size
    half = len(hashes) // 2
    rest = block_hashes(tokens[half * size :], size, b"", hashes[half - 1] if half else None)
    assert hashes[:half] + rest == hashes


def test_adapter_and_salt_tell_prefixes_apart() -> None:
    assert block_hashes([1] * 16, 16, b"a") != block_hashes([1] * 16, 16, b"b")


def test_units_do_not_depend_on_the_size_of_blocks_unless_they_must() -> None:
    assert [unit_of(size) for size in (16, 32, 128, 8, 24)] == [16, 16, 16, 8, 24]


def test_block_0_is_never_given_out() -> None:
    pool = BlockPool(4, 16)
    assert pool.allocate(3) == [1, 2, 3]
    assert pool.allocate(1) is None


def test_blocks_that_nobody_can_find_are_given_out_first() -> None:
    pool = BlockPool(4, 16)
    pool.allocate(3)
    pool.register([1, 2], [11, 12], [0] * 32)
    pool.release([1, 2, 3])
    assert pool.allocate(1) == [3]
    # Then the end of a prefix, before its beginning.
    assert pool.allocate(2) == [2, 1]


def test_what_happens_to_the_cache_is_told() -> None:
    heard: list[CacheEvent] = []
    pool = BlockPool(4, 2, on_event=heard.append)
    pool.allocate(3)
    pool.register([1, 2], [11, 12], [5, 6, 7, 8])
    pool.register([1, 2, 3], [11, 12, 13], [5, 6, 7, 8, 9, 10], lora="poet")
    assert heard == [Stored([11, 12], None, [5, 6, 7, 8], None), Stored([13], 12, [9, 10], "poet")]
    heard.clear()
    assert not pool.clear()
    pool.release([1, 2, 3])
    pool.allocate(2)
    assert heard == [Removed([13, 12])]
    pool.release([3, 2])
    assert pool.clear()
    assert heard[-1] == Cleared()
    assert pool.cached_prefix([11]) == []


def test_leases_end_by_a_peer_or_by_time() -> None:
    pool = BlockPool(10, 16)
    leases = Leases(pool)
    for name, expires in (("a", 30.0), ("b", 30.0), ("c", 20.0)):
        blocks = pool.allocate(2)
        assert blocks is not None
        leases.hold(name, blocks, expires)
    assert (pool.free, leases.blocks, leases.next_expiry()) == (3, 6, 20.0)
    assert leases.release("a")
    assert not leases.release("a")
    leases.extend("b", 40.0)
    leases.extend("b", 35.0)
    leases.extend("gone", 99.0)
    assert leases.expire(20.0) == ["c"]
    assert leases.expire(39.9) == []
    assert leases.expire(40.0) == ["b"]
    assert pool.free == 9


class Pool(RuleBasedStateMachine):
    """Requests that take, share, register and give back blocks, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(12, 4)
        self.users: list[tuple[list[int], list[int]]] = []

    @rule(prompt=st.lists(st.integers(0, 2), min_size=1, max_size=20))
    def come(self, prompt: list[int]) -> None:
        hashes = block_hashes(prompt, 4, b"")
        cached = self.pool.cached_prefix(hashes)
        needed = -(-len(prompt) // 4) - len(cached)
        if needed > self.pool.available(cached):
            return
        self.pool.take(cached)
        new = self.pool.allocate(needed)
        assert new is not None
        assert not set(new) & {block for blocks, _hashes in self.users for block in blocks}
        blocks = cached + new
        self.pool.register(blocks[: len(hashes)], hashes, prompt[: len(hashes) * 4])
        self.users.append((blocks, hashes))

    @precondition(lambda self: bool(self.users))
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.users) - 1))
        blocks, _hashes = self.users.pop(index)
        self.pool.release(blocks)

    @invariant()
    def blocks_are_used_or_free(self) -> None:
        used = {block for blocks, _hashes in self.users for block in blocks}
        assert len(used) + self.pool.free == 11
        assert self.pool.usage == len(used) / 11

    @invariant()
    def what_is_used_is_found(self) -> None:
        for blocks, hashes in self.users:
            found = self.pool.cached_prefix(hashes)
            assert len(found) == len(hashes)
            assert len(set(blocks)) == len(blocks)


TestPool = Pool.TestCase
