"""One request after the other through a real pair, as a router does it."""

import pytest

from disagg.build import kv_size
from disagg.build.engines.vllm import BLOCK_SIZE
from e2e.cluster.waiting import wait_until
from e2e.real_vllm import Pod, tiny_model
from tests.real_vllm.pair import (
    CLAIM,
    MODEL,
    Numbers,
    alone,
    decoded,
    prefilled,
    prompt,
    request,
    text_of,
    transferred,
)

pytestmark = pytest.mark.timeout(1800)

PULLED = "vllm:external_prefix_cache_hits_total"
BYTES = "vllm:nixl_bytes_transferred_sum"
FAILED = ("vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_failed_notifications_total")


@pytest.mark.parametrize("length", [5, BLOCK_SIZE - 1, BLOCK_SIZE, 300, 3000])
def test_decode_says_what_one_engine_alone_says(prefill: Pod, decode: Pod, length: int) -> None:
    text = prompt(length)
    answer = text_of(transferred(prefill, decode, text))
    assert answer == alone(prefill, text)


def test_another_prompts_kv_cache_would_show_in_the_text(prefill: Pod, decode: Pod) -> None:
    text, other = prompt(), prompt()
    answer = text_of(decoded(decode, text, prefilled(prefill, other)))
    assert answer != alone(prefill, text)


def test_a_streamed_answer_is_the_same(prefill: Pod, decode: Pod) -> None:
    text = prompt()
    body = request(text) | {"kv_transfer_params": prefilled(prefill, text)}
    events = decode.client.stream("/v1/completions", body)
    answer = "".join(choice["text"] for event in events for choice in event["choices"])
    assert answer == alone(prefill, text)


def test_prefill_tells_decode_its_own_address_and_the_port_that_is_declared(prefill: Pod) -> None:
    parameters = prefilled(prefill, prompt())
    told = (parameters["remote_host"], parameters["remote_port"])
    assert told == (prefill.address, prefill.container.ports["nixl"])


def test_decode_pulls_every_token_of_the_prompt(prefill: Pod, decode: Pod) -> None:
    before = decode.client.metric(PULLED)
    text_of(transferred(prefill, decode, prompt(300)))
    # One more is before the first character.
    assert _settled(decode, PULLED, before) == 301


def test_the_bytes_on_the_network_are_those_that_the_status_tells(
    prefill: Pod, decode: Pod, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = kv_size.KVShape(2 * tiny_model.LAYERS * tiny_model.KV_HEADS * tiny_model.HEAD_SIZE)
    monkeypatch.setattr(kv_size, "_MODELS", [(MODEL, shape)])
    before = decode.client.metric(BYTES)
    text_of(transferred(prefill, decode, prompt(300)))
    # Whole blocks cross the network: 301 tokens are in three.
    of_16_bits = kv_size.transferred_bytes(f"pvc://{CLAIM}/{MODEL}", None, 1, 3 * BLOCK_SIZE)
    assert of_16_bits is not None
    found = _settled(decode, BYTES, before)
    numbers["bytes of a prompt of 301 tokens"] = f"{found:.0f}"
    assert found == of_16_bits * tiny_model.BYTES_PER_VALUE / 2


def test_kv_cache_crosses_the_network(prefill: Pod, decode: Pod) -> None:
    pulled, received = decode.client.metric(BYTES), decode.received()
    text_of(transferred(prefill, decode, prompt(3000)))
    # Between two pods of one node, too, which could have shared memory.
    assert decode.received() - received >= _settled(decode, BYTES, pulled)


def test_what_decode_has_of_a_prompt_is_not_pulled_again(prefill: Pod, decode: Pod) -> None:
    text = prompt(BLOCK_SIZE * 2)
    first = decode.client.metric(BYTES)
    text_of(transferred(prefill, decode, text))
    one = _settled(decode, BYTES, first)
    text_of(transferred(prefill, decode, text + text[::-1]))
    both = _settled(decode, BYTES, first + one)
    # Three blocks of 257 tokens, then those of 513 without the two that are full.
    assert (one, both) == (one, one)


def test_nothing_failed(prefill: Pod, decode: Pod, numbers: Numbers) -> None:
    text_of(transferred(prefill, decode, prompt()))
    assert [decode.client.metric(name) for name in FAILED] == [0, 0]
    transfers = decode.client.metric("vllm:nixl_xfer_time_seconds_count")
    seconds = decode.client.metric("vllm:nixl_xfer_time_seconds_sum")
    numbers["average transfer"] = f"{seconds / transfers * 1000:.1f} ms of {transfers:.0f}"


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_an_engine_writes_to_its_volumes_only(prefill: Pod, decode: Pod, role: str) -> None:
    text_of(transferred(prefill, decode, prompt()))
    assert {"prefill": prefill, "decode": decode}[role].folders.written() == []


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_vllm_knows_all_of_its_variables(prefill: Pod, decode: Pod, role: str) -> None:
    log = {"prefill": prefill, "decode": decode}[role].log.read_text()
    assert "Unknown vLLM environment variable" not in log


def _settled(pod: Pod, name: str, before: float) -> float:
    """By how much a counter has grown; engines publish what a step has done with the next one."""
    return wait_until(f"{name} grows", lambda: pod.client.metric(name) - before, seconds=30)
