"""What a pod that is told to stop still does: for the requests that it has, and for the KV cache that decode has yet to pull."""

import signal
import time
from dataclasses import dataclass, field

import pytest

from e2e.cluster.waiting import wait_until
from e2e.real_vllm import Answer, Pod
from tests.real_vllm.pair import (
    Numbers,
    Starter,
    alone,
    decoded,
    prefilled,
    prompt,
    request,
    resource,
    text_of,
    transferred,
)

pytestmark = pytest.mark.timeout(1800)

TOKENS = 300
LEASE_SECONDS = 30


@dataclass
class Drain:
    """What happened.

    Attributes:
        tokens: Tokens of the stream that ran.
        finish: Why it ended.
        others: What other requests were answered meanwhile; None for no answer.
        health: What probes were answered meanwhile; None for no answer.
        status: Exit status of the engine.
    """

    tokens: int = 0
    finish: str | None = None
    others: list[Answer | None] = field(default_factory=list)
    health: list[Answer | None] = field(default_factory=list)
    status: int | None = None


@pytest.fixture(scope="module")
def drain(start: Starter) -> Drain:
    """A decode pod that is told to stop while it writes an answer."""
    seen = Drain()
    with start("decode", resource()) as pod:
        pod.wait_until_ready()
        body = request(prompt(20), TOKENS) | {"stream_options": {"include_usage": True}}
        for number, event in enumerate(pod.client.stream("/v1/completions", body)):
            if number == 10:
                pod.signal(signal.SIGTERM)
            if number in (20, 100):
                seen.health.append(pod.client.get(pod.container.ready_path))
                seen.others.append(_ask(pod))
            for choice in event["choices"]:
                seen.finish = choice["finish_reason"] or seen.finish
            if event.get("usage"):
                seen.tokens = event["usage"]["completion_tokens"]
        seen.status = pod.wait(60)
    return seen


def test_an_answer_that_is_being_written_is_finished(drain: Drain) -> None:
    assert (drain.tokens, drain.finish) == (TOKENS, "length")


def test_a_new_request_fails_so_routers_have_to_know_before(drain: Drain, numbers: Numbers) -> None:
    numbers["readiness while decode drains"] = _statuses(drain.health)
    numbers["new requests while decode drains"] = _statuses(drain.others)
    assert all(answer is None or answer.status >= 500 for answer in drain.others)


def test_the_engine_ends_when_it_is_done(drain: Drain) -> None:
    assert drain.status == 0


@dataclass
class Handover:
    """What a prefill pod that is told to stop did with the KV cache of two prompts.

    Attributes:
        expected: What it would have answered to the first itself.
        answer: What decode answered that has pulled the first meanwhile.
        seconds: How long it stayed. Nobody has pulled the second.
        status: Exit status of the engine.
    """

    expected: str
    answer: Answer
    seconds: float
    status: int


@pytest.fixture(scope="module")
def handover(start: Starter, decode: Pod) -> Handover:
    wanted = resource(kvTransfer={"transport": "tcp", "leaseSeconds": LEASE_SECONDS})
    pulled, forgotten = prompt(), prompt()
    with start("prefill", wanted) as pod:
        pod.wait_until_ready()
        # The first handshake of two pods has 5 seconds, which is little on a busy machine.
        wait_until("the pair has met", lambda: transferred(pod, decode, prompt()).status == 200)
        expected = alone(pod, pulled)
        parameters = prefilled(pod, pulled)
        prefilled(pod, forgotten)
        told = time.monotonic()
        pod.signal(signal.SIGTERM)
        time.sleep(3)
        answer = decoded(decode, pulled, parameters)
        status = pod.wait(pod.container.grace_seconds)
        return Handover(expected, answer, time.monotonic() - told, status)


def test_decode_pulls_from_a_prefill_pod_that_has_been_told_to_stop(handover: Handover) -> None:
    assert text_of(handover.answer) == handover.expected


def test_a_prefill_pod_stays_for_as_long_as_decode_may_pull(handover: Handover, numbers: Numbers) -> None:
    numbers[f"end of prefill with a lease of {LEASE_SECONDS} s"] = f"{handover.seconds:.0f} s after SIGTERM"
    assert handover.seconds >= LEASE_SECONDS - 5
    assert handover.status == 0


def _statuses(answers: list[Answer | None]) -> str:
    return ", ".join("no answer" if answer is None else str(answer.status) for answer in answers)


def _ask(pod: Pod) -> Answer | None:
    try:
        return pod.client.post("/v1/completions", request(prompt(20), 1))
    except OSError:
        return None
