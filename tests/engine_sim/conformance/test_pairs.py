"""What holds for a pair of any dialect."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine_sim.conformance.pairs import PAIRS, Pair
from tests.engine_sim.processes import Engines, eventually

WORDS = "the cache of a network is a place for all the blocks that a request may want again "
PROMPTS = {
    "one token": "the",
    "less than a block": "tell me more",
    "one block": [70] * 16,
    "one block and a token": [70] * 17,
    "many blocks": WORDS * 20,
    "no words": "Größe … 見る %$ {}[] \n\n\t 12345",
}


@pytest.fixture(scope="module", params=PAIRS)
def pair(request: pytest.FixtureRequest, shared_engines: Engines) -> Pair:
    return PAIRS[request.param](shared_engines)


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS.keys())
def test_a_pair_says_what_one_engine_alone_says(pair: Pair, prompt: str | list[int]) -> None:
    reply = pair.complete(prompt, ignore_eos=True)
    assert reply.status == 200
    assert reply.text == pair.single(prompt, ignore_eos=True).text
    assert reply.body["usage"]["completion_tokens"] == 20


def test_a_stream_says_the_same(pair: Pair) -> None:
    prompt = "another " + WORDS * 9
    events = pair.stream(prompt)
    assert (events.status, events.done) == (200, True)
    assert events.text == pair.single(prompt).text
    assert events.chunks[-1]["choices"][0]["finish_reason"] in {"stop", "length"}


def test_the_same_prompt_again_says_the_same_though_parts_of_it_are_cached(pair: Pair) -> None:
    prompt = "once more " + WORDS * 9
    assert len({pair.complete(prompt).text for _ in range(3)}) == 1
    longer = prompt + WORDS
    assert pair.complete(longer).text == pair.single(longer).text


def test_seeds_and_temperature_decide(pair: Pair) -> None:
    texts = {
        name: pair.complete(WORDS, ignore_eos=True, **fields).text
        for name, fields in {
            "default": {"temperature": 1},
            "seed": {"temperature": 1, "seed": 7},
            "same seed": {"temperature": 1, "seed": 7},
            "greedy": {"temperature": 0},
            "greedy with seed": {"temperature": 0, "seed": 7},
        }.items()
    }
    assert texts["seed"] == texts["same seed"] != texts["default"]
    assert texts["greedy"] == texts["greedy with seed"] != texts["seed"]


@pytest.mark.stand_in_only("looks inside; of vLLM, metrics tell the same in test_vllm_transfer")
def test_prefill_frees_what_decode_has_read(pair: Pair) -> None:
    before = pair.prefill.state()["free_blocks"]
    pair.complete("something new " + WORDS * 30)
    eventually(lambda: pair.prefill.state()["leases"] == 0)
    assert pair.prefill.state()["free_blocks"] == before
    assert pair.decode.state()["free_blocks"] == pair.decode.state()["blocks"] - 1


def test_many_at_once_are_not_mixed_up(pair: Pair) -> None:
    prompts = [f"number {index} of " + WORDS * (index % 5 + 1) for index in range(24)]
    with ThreadPoolExecutor(12) as pool:
        texts = list(pool.map(lambda prompt: pair.complete(prompt).text, prompts))
    assert texts == [pair.single(prompt).text for prompt in prompts]
