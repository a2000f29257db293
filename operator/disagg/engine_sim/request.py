"""A request on its way through the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from disagg.engine_sim.text import Voice

MAX_SAMPLES = 16384
"""Answers that may be wanted for a prompt: vLLM's limit. Others have none, and without one a request could eat all memory."""


class Status(Enum):
    """Where a request is."""

    WAITING = "waiting"
    REMOTE = "waiting for KV of a peer"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class Sampling:
    """What of a request decides its answer.

    Attributes:
        max_tokens: Tokens after which it is cut.
        min_tokens: Tokens before which it can't end.
        stop: Strings that end it.
        stop_token_ids: Tokens that end it.
        ignore_eos: Whether it can't end by itself.
        include_stop: Whether the stop string is part of the answer.
        key: Seed and number of the sample, empty for greedy ones.
        logprobs: Alternatives wanted for each token; None for no log probabilities.
        script: Makes text that must be said from the state of the voice, such as a tool call.
    """

    max_tokens: int
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop: bool = False
    key: bytes = b""
    logprobs: int | None = None
    script: Callable[[bytes], str] | None = None


@dataclass(slots=True)
class Output:
    """What one step gave one request.

    Attributes:
        text: New text; what might become a stop string is held back.
        tokens: New tokens.
        logprobs: For each token its log probability and alternatives, if wanted.
        finish_reason: stop, length, abort or error, once it is over.
        stop_reason: Stop string or token that ended it.
        transfer: What a peer needs to go on, as the connector says it.
    """

    text: str
    tokens: list[int]
    logprobs: list[tuple[float, list[int]]] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    transfer: dict[str, Any] | None = None


Sink = Callable[[Output], None]


@dataclass(eq=False)
class Request:
    """One sequence.

    Attributes:
        id: The engine's own id of it.
        prompt: Its tokens.
        sampling: How it is answered.
        arrival: When it came.
        sink: Told of each output.
        priority: Lower goes first, if the policy is by priority.
        lora: Adapter.
        salt: Tells its prefix from equal ones of others.
        transfer: What its sender said about peers, as the connector understands it.
        remote: Whether its prompt's KV comes from a peer.
        doomed: Whether an injected fault lets it fail after its prefill.
        samples: Answers wanted for its prompt, if it is the first of them; else 0.
        uncached: Whether its prompt must be computed, all of it: log probabilities of its tokens are wanted.
    """

    id: str
    prompt: list[int]
    sampling: Sampling
    arrival: float
    sink: Sink
    priority: int = 0
    lora: str | None = None
    salt: str = ""
    transfer: dict[str, Any] | None = None
    remote: bool = False
    doomed: bool = False
    samples: int = 1
    uncached: bool = False

    status: Status = Status.WAITING
    order: int = 0
    output: list[int] = field(default_factory=list)
    text_held: str = ""
    text_seen: str = ""
    blocks: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    computed: int = 0
    digested: int = 0
    digest_root: bytes = b""
    voice: Voice | None = None
    looked_up: bool = False
    pulled: bool = False
    registered: int = 0
    cached_tokens: int = 0
    external_tokens: int = 0
    preemptions: int = 0
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float = 0.0
    finished_at: float = 0.0
    finish_reason: str | None = None

    @property
    def total(self) -> int:
        """Tokens of prompt and answer so far."""
        return len(self.prompt) + len(self.output)

    @property
    def told_cached_tokens(self) -> int:
        """Tokens of the prompt that count as cached for its sender: of a pulled one those that prefill had, if it says so."""
        params = self.transfer or {}
        told = params.get("remote_prefill_cached_tokens")
        if params.get("do_remote_prefill") and isinstance(told, int):
            return told
        return self.cached_tokens + self.external_tokens

    @property
    def extra(self) -> bytes:
        """What tells its prefix from others with the same tokens."""
        return f"{self.lora or ''}\0{self.salt}".encode()

    def tokens(self, start: int, end: int) -> list[int]:
        """Tokens of prompt and answer in a range."""
        split = len(self.prompt)
        if end <= split:
            return self.prompt[start:end]
        return self.prompt[start:] + self.output[max(0, start - split) : end - split]
