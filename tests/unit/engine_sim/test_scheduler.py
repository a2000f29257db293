from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from disagg.engine_sim.blocks import DIGEST
from disagg.engine_sim.request import Output, Request
from disagg.engine_sim.text import EOS
from tests.unit.engine_sim.runs import TINY, Run, run


def said(prompt: list[int], max_tokens: int = 8, **fields: object) -> list[int]:
    """What an engine with room for everything says."""
    alone = run()
    alone.add("r", prompt, max_tokens, **fields)
    return alone.finish().tokens("r")


# What is computed in which step.


def test_a_prompt_is_one_step_and_each_further_token_another() -> None:
    it = run()
    it.add("a", [1] * 40, max_tokens=3)
    it.finish()
    assert it.steps == [{"a": 40}, {"a": 1}, {"a": 1}]
    assert it.now == pytest.approx(sum(TINY.step(*each) for each in ((40, 0, 0), (0, 1, 40), (0, 1, 41))))


def test_a_long_prompt_is_computed_in_chunks_beside_what_runs() -> None:
    it = run(max_num_batched_tokens=32)
    it.add("a", [1] * 10, max_tokens=5)
    it.step()
    it.add("b", [2] * 70, max_tokens=1)
    it.finish()
    assert it.steps == [{"a": 10}, {"a": 1, "b": 31}, {"a": 1, "b": 31}, {"a": 1, "b": 8}, {"a": 1}]


def test_no_more_run_than_there_are_sequences() -> None:
    it = run(max_num_seqs=2)
    for name in "abc":
        it.add(name, [ord(name)] * 3, max_tokens=2)
    it.finish()
    assert it.steps == [{"a": 3, "b": 3}, {"a": 1, "b": 1}, {"c": 3}, {"c": 1}]


def test_a_cached_prefix_is_not_computed_again_but_for_its_last_token() -> None:
    it = run()
    it.add("a", [1] * 64, max_tokens=1)
    it.add("b", [2] * 5, max_tokens=1)
    it.finish()
    again = it.add("c", [1] * 64, max_tokens=1)
    longer = it.add("d", [1] * 64 + [3] * 4, max_tokens=1)
    it.finish()
    assert it.steps[-1] == {"c": 16, "d": 4}
    assert (again.cached_tokens, longer.cached_tokens) == (48, 64)


def test_answers_are_cached_like_prompts() -> None:
    it = run()
    it.add("a", [1] * 20, max_tokens=30)
    it.finish()
    follow_up = [1] * 20 + it.tokens("a")
    request = it.add("b", [*follow_up, 5], max_tokens=6)
    it.finish()
    assert request.cached_tokens == 48
    assert it.tokens("b") == said([*follow_up, 5], 6)


def test_without_caching_nothing_is_found() -> None:
    it = run(caching=False)
    for name in "ab":
        it.add(name, [1] * 64, max_tokens=1)
        it.finish()
    assert it.steps == [{"a": 64}, {"b": 64}]


def test_a_salt_hides_a_prefix() -> None:
    it = run()
    it.add("a", [1] * 64, max_tokens=1, salt="x")
    it.finish()
    it.add("b", [1] * 64, max_tokens=1, salt="y")
    assert it.finish().steps[-1] == {"b": 64}


# Who waits.


def test_a_request_without_room_waits_for_its_turn() -> None:
    it = run(blocks=6)
    it.add("a", [1] * 60, max_tokens=2)
    it.add("b", [2] * 60, max_tokens=2)
    it.step()
    assert (it.scheduler.num_waiting, len(it.scheduler.running)) == (1, 1)
    it.finish()
    assert [it.ending(name) for name in "ab"] == ["length", "length"]


def test_the_last_to_come_loses_its_blocks_and_says_the_same_in_the_end() -> None:
    it = run(blocks=8)
    for name, token in (("a", 1), ("b", 2)):
        it.add(name, [token] * 40, max_tokens=40)
    it.finish()
    assert it.scheduler.preemptions > 0
    assert it.tokens("a") == said([1] * 40, 40)
    assert it.tokens("b") == said([2] * 40, 40)
    assert it.scheduler.pool.free == 7


def test_priorities_decide_who_goes_first_if_they_count() -> None:
    orders = []
    for by_priority in (False, True):
        it = run(max_num_seqs=1, by_priority=by_priority)
        it.add("low", [1] * 3, max_tokens=1, priority=5)
        it.add("high", [2] * 3, max_tokens=1, priority=-5)
        it.finish()
        orders.append([next(iter(step)) for step in it.steps])
    assert orders == [["low", "high"], ["high", "low"]]


def test_adapters_wait_for_a_slot_and_others_pass_them() -> None:
    it = run(max_loras=1)
    it.add("a", [1] * 3, max_tokens=2, lora="x")
    it.add("b", [1] * 3, max_tokens=2, lora="y")
    it.add("c", [1] * 3, max_tokens=2, lora="x")
    it.add("d", [1] * 3, max_tokens=2)
    it.step()
    assert it.scheduler.deferred_by_lora == 1
    it.finish()
    assert it.steps == [{"a": 3, "c": 3, "d": 3}, {"a": 1, "c": 1, "d": 1}, {"b": 3}, {"b": 1}]
    assert it.tokens("a") != it.tokens("b")


# How answers end.


def test_an_answer_ends_by_itself_only_after_min_tokens() -> None:
    it = run(mean_length=3)
    for index in range(20):
        it.add(str(index), [index] * 5, max_tokens=200, min_tokens=10)
        it.add(f"never {index}", [index] * 5, max_tokens=50, ignore_eos=True)
    it.finish()
    lengths = [len(it.tokens(str(index))) for index in range(20)]
    assert min(lengths) > 10
    assert max(lengths) < 200
    assert {it.ending(str(index)) for index in range(20)} == {"stop"}
    assert all(it.tokens(str(index))[-1] == EOS for index in range(20))
    assert {it.ending(f"never {index}") for index in range(20)} == {"length"}


def test_a_stop_token_ends_an_answer() -> None:
    third = said([1, 2, 3])[2]
    it = run()
    it.add("a", [1, 2, 3], 8, stop_token_ids=(third,))
    it.finish()
    assert (len(it.tokens("a")), it.ending("a"), it.heard["a"][-1].stop_reason) == (3, "stop", third)


@given(st.integers(1, 60), st.booleans())
def test_text_up_to_a_stop_string_is_told_whatever_is_held_back(at: int, include: bool) -> None:
    it = run()
    it.add("whole", [1, 2, 3], 20)
    whole = it.finish().text("whole")
    stop = whole[at : at + 3]
    it = run()
    it.add("a", [1, 2, 3], 20, stop=(stop, "no such thing"), include_stop=include)
    it.finish()
    cut = whole[: whole.index(stop)] + (stop if include else "")
    assert (it.text("a"), it.ending("a"), it.heard["a"][-1].stop_reason) == (cut, "stop", stop)


def test_what_is_held_back_is_told_at_the_end() -> None:
    it = run()
    it.add("a", [1, 2, 3], 6, stop=("a very long string that never comes",))
    it.add("b", [1, 2, 3], 6)
    it.finish()
    assert it.text("a") == it.text("b")
    assert it.heard["a"][0].text == ""


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_an_aborted_request_gives_everything_back(steps: int) -> None:
    it = run(max_num_seqs=1)
    it.add("other", [9] * 5, max_tokens=1)
    it.add("a", [1] * 40, max_tokens=10)
    for _ in range(steps):
        it.step()
    assert it.scheduler.abort("a", it.now) is not None
    assert it.scheduler.abort("a", it.now) is None
    assert it.ending("a") == "abort"
    it.finish()
    assert it.scheduler.pool.free == it.scheduler.pool.count - 1
    assert it.scheduler.num_waiting == 0


def test_a_doomed_request_fails_after_its_prefill() -> None:
    it = run()
    it.add("a", [1] * 5, doomed=True)
    it.finish()
    assert (it.ending("a"), it.tokens("a")) == ("error", [])


# KV of a peer.


def prefilled(prompt: list[int], block_size: int = 16) -> tuple[Run, list[bytes]]:
    """An engine that has computed a prompt, and what its blocks hold."""
    it = run(block_size=block_size)
    held: list[int] = []

    def keep(request: Request, _output: Output, now: float) -> float:
        held.extend(request.blocks)
        return now + 30

    it.scheduler.on_finish = keep
    it.add("p", prompt, max_tokens=1)
    it.finish()
    return it, [it.scheduler.pool.content[block] for block in held]


def pulled(it: Run, prompt: list[int], content: list[bytes]) -> list[int]:
    it.add("d", prompt, 8, remote=True)
    it.step()
    pull = it.pulls[-1]
    it.scheduler.kv_arrived(pull, content[len(content) - len(pull.blocks) :])
    it.finish()
    return it.tokens("d")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=90))
def test_what_a_peer_has_computed_says_what_one_engine_alone_would(prompt: list[int]) -> None:
    _prefill, content = prefilled(prompt)
    assert pulled(run(), prompt, content) == said(prompt)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=90), st.data())
def test_every_byte_of_a_peer_counts(prompt: list[int], data: st.DataObject) -> None:
    _prefill, content = prefilled(prompt)
    block = data.draw(st.integers(0, len(content) - 1))
    at = data.draw(st.integers(0, len(content[block]) - 1))
    changed = bytearray(content[block])
    changed[at] ^= 1
    content[block] = bytes(changed)
    assert pulled(run(), prompt, content) != said(prompt)


def test_larger_blocks_are_made_of_smaller_ones() -> None:
    prompt = list(range(90))
    _prefill, content = prefilled(prompt)
    joined = [b"".join(content[index : index + 2]) for index in range(0, len(content), 2)]
    assert pulled(run(block_size=32), prompt, joined) == said(prompt)


def test_what_decode_has_already_is_not_pulled() -> None:
    prompt = [1] * 40 + [2] * 40
    _prefill, content = prefilled(prompt)
    it = run()
    it.add("earlier", [1] * 40, max_tokens=1)
    it.finish()
    assert pulled(it, prompt, content) == said(prompt)
    (pull,) = it.pulls
    assert (pull.skip, len(pull.blocks)) == (32, 3)


def test_wrong_bytes_stay_in_the_prefix_cache_of_decode() -> None:
    prompt = [1] * 40
    it = run()
    wrong = pulled(it, prompt, [b"x" * DIGEST] * 3)
    assert wrong != said(prompt)
    it.add("later", prompt, 8)
    assert it.finish().tokens("later") != said(prompt)


def test_others_run_while_one_waits_for_its_bytes() -> None:
    it = run()
    it.add("d", [1] * 40, remote=True)
    it.add("a", [2] * 5, max_tokens=3)
    it.finish()
    assert (it.ending("a"), it.heard["d"], len(it.scheduler.remote)) == ("length", [], 1)


def test_a_transfer_that_fails_ends_the_request_or_is_computed_here() -> None:
    for recompute, ending in ((False, "error"), (True, "length")):
        it = run()
        it.add("d", [1] * 40, 8, remote=True)
        it.step()
        it.scheduler.kv_failed(it.pulls[-1], it.now, recompute=recompute)
        it.finish()
        assert it.ending("d") == ending
        assert it.tokens("d") == (said([1] * 40) if recompute else [])
        assert it.scheduler.pool.free == it.scheduler.pool.count - 1


def test_bytes_for_a_request_that_is_over_are_dropped() -> None:
    it = run()
    it.add("d", [1] * 40, remote=True)
    it.step()
    it.scheduler.abort("d", it.now)
    it.scheduler.kv_arrived(it.pulls[-1], [b"x" * DIGEST] * 3)
    it.scheduler.kv_failed(it.pulls[-1], it.now, recompute=True)
    assert it.step() is None
    assert it.scheduler.pool.content == {}


def test_blocks_that_wait_for_a_peer_keep_others_out() -> None:
    it, _content = prefilled([1] * 40)
    assert (it.scheduler.leases.blocks, it.scheduler.pool.usage > 0) == (3, True)
    assert it.scheduler.leases.expire(it.now + 30) == ["p"]
    assert it.scheduler.pool.usage == 0


@given(
    st.lists(
        st.tuples(
            st.integers(1, 60), st.integers(1, 12), st.integers(0, 2), st.sampled_from([None, "x", "y"])
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(8, 20),
    st.sampled_from([1, 3, 100]),
    st.booleans(),
)
# A prompt that is computed again together with its answer so far, and then found by another.
@example(
    requests=[
        (29, 9, 0, None),
        (1, 1, 2, None),
        (14, 6, 0, None),
        (32, 4, 1, None),
        (16, 1, 0, None),
        (1, 1, 0, None),
        (17, 1, 1, None),
    ],
    blocks=8,
    seqs=3,
    by_priority=True,
)
def test_whatever_comes_everybody_is_answered_as_if_alone(
    requests: list[tuple[int, int, int, str | None]], blocks: int, seqs: int, by_priority: bool
) -> None:
    it = run(
        blocks=blocks, block_size=16, max_num_seqs=seqs, max_num_batched_tokens=40, by_priority=by_priority
    )
    for index, (length, tokens, priority, lora) in enumerate(requests):
        it.add(str(index), [priority] * length, tokens, priority=priority, lora=lora)
        if index % 3 == 0:
            it.step()
    it.finish()
    assert not it.scheduler.requests
    assert it.scheduler.pool.free == blocks - 1
    for index, (length, tokens, priority, lora) in enumerate(requests):
        assert it.tokens(str(index)) == said([priority] * length, tokens, lora=lora)
