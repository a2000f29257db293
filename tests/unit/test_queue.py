from __future__ import annotations

import asyncio

import pytest

from disagg.reconcile import queue as module
from disagg.reconcile.kinds import ALL_KINDS
from disagg.reconcile.queue import BACKOFF_LIMIT_SECONDS, GATHER_SECONDS, Key, KeyQueue

A, B, C = (Key("ns", name) for name in "abc")
PODS, SERVICES = frozenset({"Deployment"}), frozenset({"Service"})


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(module, "_now", fake)
    return fake


async def take(queue: KeyQueue) -> tuple[Key, frozenset[str]] | None:
    """The next key if there is one now."""
    getting = asyncio.create_task(queue.get())
    for _ in range(3):
        await asyncio.sleep(0)
    if getting.done():
        return getting.result()
    getting.cancel()
    await asyncio.wait([getting])
    return None


async def take_key(queue: KeyQueue) -> Key | None:
    taken = await take(queue)
    return taken[0] if taken else None


async def test_a_key_comes_out_with_its_kinds(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    queue.add(A, PODS)
    assert await take(queue) == (A, PODS)
    assert await take(queue) is None


async def test_all_kinds_are_looked_at_unless_told_otherwise(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    queue.add(A)
    assert await take(queue) == (A, ALL_KINDS)


async def test_keys_come_in_the_order_in_which_they_are_due(clock: Clock) -> None:
    queue = KeyQueue()
    queue.add(A, delay=3)
    queue.add(B, delay=1)
    queue.add(C, delay=2)
    clock.now += 3
    assert [await take_key(queue) for _ in range(3)] == [B, C, A]


async def test_a_key_waits_once_however_many_events_it_has(clock: Clock) -> None:
    queue = KeyQueue()
    for _ in range(3):
        queue.add(A)
    assert queue.depth() == 1
    assert await take_key(queue) == A
    queue.done(A)
    clock.now += 1
    assert await take(queue) is None


async def test_kinds_of_several_events_add_up(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    queue.add(A, PODS)
    queue.add(A, SERVICES, delay=GATHER_SECONDS)
    assert await take(queue) == (A, PODS | SERVICES)


async def test_an_event_does_not_bring_the_resync_forward(clock: Clock) -> None:
    queue = KeyQueue()
    queue.add(A, PODS | SERVICES, delay=300)
    queue.add(A, PODS)
    assert await take(queue) == (A, PODS)
    queue.done(A)
    clock.now += 300
    assert await take(queue) == (A, SERVICES)


async def test_kinds_of_an_event_are_forgotten_once_the_key_is_taken(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    queue.add(A, PODS)
    await take(queue)
    queue.done(A)
    queue.add(A, SERVICES)
    assert await take(queue) == (A, SERVICES)


async def test_a_key_is_not_worked_on_twice_at_once(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    queue.add(A)
    await take(queue)
    queue.add(A)
    assert await take(queue) is None


async def test_an_event_during_work_brings_the_key_back(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    queue.add(A)
    await take(queue)
    queue.add(A, PODS)
    assert await take(queue) is None
    queue.done(A)
    assert await take(queue) == (A, PODS)


async def test_a_busy_key_holds_up_no_other(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    queue.add(A)
    await take(queue)
    queue.add(A)
    queue.add(B)
    assert await take_key(queue) == B


async def test_a_delayed_event_during_work_keeps_its_delay(clock: Clock) -> None:
    queue = KeyQueue()
    queue.add(A)
    await take(queue)
    queue.add(A, delay=5)
    queue.done(A)
    assert await take(queue) is None
    clock.now += 5
    assert await take_key(queue) == A
    queue.done(A)
    assert await take(queue) is None


async def test_a_delayed_key_waits(clock: Clock) -> None:
    queue = KeyQueue()
    queue.add(A, delay=5)
    clock.now += 4.9
    assert await take(queue) is None
    clock.now += 0.1
    assert await take_key(queue) == A


@pytest.mark.parametrize("delays", [(5.0, 1.0), (1.0, 5.0), (5.0, 1.0, 3.0)])
async def test_the_earliest_delay_counts(clock: Clock, delays: tuple[float, ...]) -> None:
    queue = KeyQueue()
    for delay in delays:
        queue.add(A, delay=delay)
    clock.now += 1
    assert await take_key(queue) == A
    queue.done(A)
    clock.now += 10
    assert await take(queue) is None


async def test_a_delay_that_was_overtaken_counts_no_more(clock: Clock) -> None:
    queue = KeyQueue()
    queue.add(A, delay=5)
    queue.add(A, delay=1)
    clock.now += 1
    await take(queue)
    queue.done(A)
    queue.add(A, delay=60)
    clock.now += 10
    assert await take(queue) is None


async def test_who_waits_is_woken_by_an_event() -> None:
    queue = KeyQueue()
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(A)
    assert await asyncio.wait_for(getting, 1) == (A, ALL_KINDS)


async def test_who_waits_is_woken_when_a_key_is_due() -> None:
    queue = KeyQueue()
    queue.add(B, delay=60)
    queue.add(A, delay=0.02)
    assert (await asyncio.wait_for(queue.get(), 1))[0] == A


async def test_who_waits_is_woken_by_an_event_that_is_due_before_the_others() -> None:
    queue = KeyQueue()
    queue.add(B, delay=60)
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(A)
    assert (await asyncio.wait_for(getting, 1))[0] == A


async def test_who_waits_is_woken_by_the_end_of_work() -> None:
    queue = KeyQueue()
    queue.add(A)
    await queue.get()
    queue.add(A)
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.done(A)
    assert (await asyncio.wait_for(getting, 1))[0] == A


async def test_several_workers_share_the_keys() -> None:
    queue = KeyQueue()
    getting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in (A, B, C):
        queue.add(key)
    taken = await asyncio.wait_for(asyncio.gather(*getting), 1)
    assert {key for key, _ in taken} == {A, B, C}


# Failures


async def test_the_back_off_doubles_up_to_its_limit(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    del clock
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    queue = KeyQueue()
    delays = [queue.failed(A) for _ in range(30)]
    assert delays[:5] == [1, 2, 4, 8, 16]
    assert delays[9:] == [BACKOFF_LIMIT_SECONDS] * 21


async def test_the_back_off_is_spread(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    delays = {queue.failed(Key("ns", str(number))) for number in range(20)}
    assert len(delays) > 1
    assert all(0.8 <= delay <= 1.2 for delay in delays)


async def test_a_failed_key_comes_back_after_its_back_off(clock: Clock) -> None:
    queue = KeyQueue()
    queue.add(A, PODS)
    await take(queue)
    delay = queue.failed(A)
    queue.done(A)
    assert await take(queue) is None
    clock.now += delay
    assert await take(queue) == (A, ALL_KINDS)


async def test_the_back_off_is_at_least_what_the_api_server_asks_for(clock: Clock) -> None:
    del clock
    assert KeyQueue().failed(A, at_least=30) == 30


async def test_success_resets_the_back_off(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    for _ in range(5):
        queue.failed(A)
    queue.succeeded(A)
    assert queue.failed(A) <= 1.2


async def test_each_key_has_a_back_off_of_its_own(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    for _ in range(5):
        queue.failed(A)
    assert queue.failed(B) <= 1.2


# Measures


async def test_an_empty_queue_has_no_depth_and_no_age(clock: Clock) -> None:
    del clock
    queue = KeyQueue()
    assert (queue.depth(), queue.oldest()) == (0, 0)


async def test_the_depth_counts_keys_that_are_due_or_worked_on(clock: Clock) -> None:
    queue = KeyQueue()
    queue.add(A)
    queue.add(B)
    queue.add(C, delay=5)
    assert queue.depth() == 2
    await take(queue)
    assert queue.depth() == 2
    queue.done(A)
    assert queue.depth() == 1
    clock.now += 5
    assert queue.depth() == 2


async def test_the_oldest_key_is_the_one_longest_overdue(clock: Clock) -> None:
    queue = KeyQueue()
    queue.add(A, delay=5)
    queue.add(B, delay=2)
    assert queue.oldest() == 0
    clock.now += 10
    assert queue.oldest() == 8


async def test_work_that_does_not_end_grows_old(clock: Clock) -> None:
    queue = KeyQueue()
    queue.add(A)
    clock.now += 7
    await take(queue)
    assert queue.oldest() == 0
    clock.now += 3
    assert queue.oldest() == 3
    queue.done(A)
    assert queue.oldest() == 0


async def test_a_key_that_waits_for_its_own_work_is_as_old_as_that_work(clock: Clock) -> None:
    queue = KeyQueue()
    queue.add(A)
    await take(queue)
    clock.now += 1
    queue.add(A)
    clock.now += 3
    assert queue.oldest() == 4
