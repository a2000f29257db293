"""Continuous batching: which requests compute how many tokens in the next step, and what comes out of it.

As in vLLM's V1 scheduler: requests that run go first, one token each or the next chunk of their prompt; then those that
wait, as long as tokens of the step's budget, sequences, blocks and LoRA slots are left. Without blocks for a running
request the last one loses its own and starts over.

Pure: `step` decides and says how long it takes, the caller waits so long and calls `finish`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from disagg.engine_sim.blocks import BlockPool, Leases, block_hashes
from disagg.engine_sim.content import Content
from disagg.engine_sim.request import Output, Request, Status
from disagg.engine_sim.stopping import advance
from disagg.engine_sim.text import encode, voice
from disagg.engine_sim.timing import Profile


@dataclass(frozen=True)
class Limits:
    """What the command line allows a step.

    Attributes:
        max_num_seqs: Requests that run at once.
        max_num_batched_tokens: Tokens of a step.
        max_loras: Adapters in a step.
        by_priority: Whether priorities count.
        mean_length: Tokens after which answers end by themselves, on average; 0 for never.
        identity: Model and everything else that makes KV bytes differ.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_loras: int = 1
    by_priority: bool = False
    mean_length: int = 200
    identity: bytes = b""


@dataclass(frozen=True)
class Pull:
    """A request that needs KV of a peer.

    Attributes:
        request: The request.
        skip: Tokens of its prompt that are here already.
        blocks: Its blocks for the others.
    """

    request: Request
    skip: int
    blocks: list[int]


@dataclass
class Step:
    """One step of the engine.

    Attributes:
        scheduled: Requests with the tokens that each computes.
        seconds: How long it takes.
        pulls: Transfers to begin, beside it.
    """

    scheduled: list[tuple[Request, int]] = field(default_factory=list)
    seconds: float = 0.0
    pulls: list[Pull] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens computed in it."""
        return sum(amount for _request, amount in self.scheduled)


@dataclass
class Scheduler:
    """Requests and blocks of one engine.

    Attributes:
        pool: The blocks.
        profile: How long steps take.
        limits: What a step may hold.
        on_admit: Called with a request whose prefix has been looked up and that is about to be computed or pulled.
        on_finish: Called with a finished request and the time; fills in what a peer needs and returns until when its
            blocks are kept for it, or None to free them.
    """

    pool: BlockPool
    profile: Profile
    limits: Limits = field(default_factory=Limits)
    on_admit: Callable[[Request], None] = lambda _request: None
    on_finish: Callable[[Request, Output, float], float | None] = lambda _request, _output, _now: None

    def __post_init__(self) -> None:
        self.leases = Leases(self.pool)
        self.content = Content(self.pool, self.limits.identity)
        self.running: list[Request] = []
        self.requests: dict[str, Request] = {}
        self.remote: dict[str, Request] = {}
        self.arrived = 0
        self.deferred_by_lora = 0
        self.preemptions = 0
        self._waiting: list[tuple[int, int, Request]] = []
        self._waiting_count = 0
        self._orders = count(1)
        self._front = count(-1, -1)

    # Requests come and go.

    def add(self, request: Request) -> None:
        """A new request."""
        request.hashes = block_hashes(request.prompt, self.pool.block_size, request.extra)
        self.requests[request.id] = request
        self._enqueue(request, next(self._orders))

    def waiting(self) -> Iterator[Request]:
        """Requests that wait to be scheduled, in no order."""
        return (request for _p, _o, request in self._waiting if request.status is Status.WAITING)

    @property
    def num_waiting(self) -> int:
        """Requests that wait to be scheduled; not those that wait for a peer."""
        return self._waiting_count

    def abort(self, request_id: str, now: float, reason: str = "abort") -> Request | None:
        """End a request, wherever it is; None if it is over already."""
        request = self.requests.get(request_id)
        if request is None:
            return None
        if request.status is Status.RUNNING:
            self.running.remove(request)
        elif request.status is Status.WAITING:
            self._waiting_count -= 1
            self._forget_stale()
        self._end(request, Output("", [], finish_reason=reason), now)
        return request

    def kv_arrived(self, pull: Pull, content: list[bytes]) -> None:
        """The peer's bytes are here: the request computes its last prompt token and goes on."""
        request = pull.request
        if self.remote.pop(request.id, None) is None:
            return
        for block, data in zip(pull.blocks, content, strict=False):
            self.pool.content[block] = data
        size = len(request.prompt)
        request.pulled = True
        request.external_tokens = size - pull.skip
        # The last token is computed again, for its logits.
        request.computed = size - 1
        self.content.resume(request, size)
        self.content.register(request, size)
        self.arrived += 1
        self._enqueue(request, next(self._front))

    def kv_failed(self, pull: Pull, now: float, *, recompute: bool) -> None:
        """The peer's bytes won't come: compute the prompt here, or end the request with an error."""
        request = pull.request
        if self.remote.pop(request.id, None) is None:
            return
        request.remote = False
        if recompute:
            request.computed = pull.skip
            self.content.resume(request, pull.skip)
            self._enqueue(request, next(self._front))
        else:
            self._end(request, Output("", [], finish_reason="error"), now)

    # A step.

    def step(self, now: float) -> Step | None:
        """The next step, or None if there is nothing to do or no room to do it."""
        step = Step()
        budget = self.limits.max_num_batched_tokens
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            amount = min(request.total - request.computed, budget)
            while not self._grow(request, request.computed + amount):
                preempted = True
                victim = self._victim()
                budget += self._unschedule(step, victim)
                self._preempt(victim)
                if victim is request:
                    break
            if request.status is not Status.RUNNING:
                # It is no longer in the list: the next one has its place.
                continue
            index = self.running.index(request) + 1
            step.scheduled.append((request, amount))
            budget -= amount
        if not preempted or not self.running:
            self._admit(step, budget, now)
        if not step.scheduled and not step.pulls:
            return None
        step.seconds = self._duration(step)
        return step

    def finish(self, step: Step, now: float) -> list[tuple[Request, Output]]:
        """What a step gave, after its time."""
        outputs = []
        for request, amount in step.scheduled:
            if request.status is not Status.RUNNING:
                continue
            request.computed += amount
            # What a peer has computed stays as it came: the answer must not follow from our own copy of the prompt.
            if request.computed <= len(request.prompt) and not request.pulled:
                self.content.write_prompt(request)
            self.content.register(request, request.computed)
            if request.computed < request.total:
                continue
            output = Output("", [], finish_reason="error") if request.doomed else self._sample(request, now)
            if output.finish_reason is not None:
                self._end(request, output, now)
            else:
                request.sink(output)
            outputs.append((request, output))
        if any(output.finish_reason for _request, output in outputs):
            self.running = [request for request in self.running if request.status is Status.RUNNING]
        return outputs

    # How it is done.

    def _enqueue(self, request: Request, order: int) -> None:
        request.status = Status.WAITING
        request.order = order
        self._waiting_count += 1
        priority = request.priority if self.limits.by_priority else 0
        heapq.heappush(self._waiting, (priority, order, request))

    def _forget_stale(self) -> None:
        """Drop entries of requests that were aborted, once they are most of the queue."""
        if len(self._waiting) > 2 * self._waiting_count + 64:
            self._waiting = [entry for entry in self._waiting if entry[2].status is Status.WAITING]
            heapq.heapify(self._waiting)

    def _admit(self, step: Step, budget: int, now: float) -> None:
        """Start requests that wait, until something runs out."""
        deferred = []
        loras = {request.lora for request in self.running if request.lora}
        while self._waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            entry = heapq.heappop(self._waiting)
            request = entry[2]
            if request.status is not Status.WAITING or entry[1] != request.order:
                continue
            if request.lora and request.lora not in loras and len(loras) >= self.limits.max_loras:
                deferred.append(entry)
                continue
            amount = self._begin(request, step, budget)
            if amount is None:
                heapq.heappush(self._waiting, entry)
                break
            if amount == 0:
                continue
            self._waiting_count -= 1
            request.status = Status.RUNNING
            if request.scheduled_at is None:
                request.scheduled_at = now
            if request.lora:
                loras.add(request.lora)
            self.running.append(request)
            step.scheduled.append((request, amount))
            budget -= amount
        self.deferred_by_lora = len(deferred)
        for entry in deferred:
            heapq.heappush(self._waiting, entry)

    def _begin(self, request: Request, step: Step, budget: int) -> int | None:
        """Give a request its blocks, or begin its transfer.

        Returns:
            How many tokens it computes, none if it waits for a peer; None if there is no room.
        """
        new = not request.looked_up
        if not self._look_up(request):
            return None
        if request.remote and not request.pulled:
            self.on_admit(request)
            self._pull(request, step)
            return 0
        amount = min(request.total - request.computed, budget)
        if not self._grow(request, request.computed + amount):
            if new:
                # Who waits must not keep blocks from those who run.
                self._put_back(request)
            return None
        if new:
            self.on_admit(request)
        return amount

    def _look_up(self, request: Request) -> bool:
        """Take what the prefix cache has; False if there is no room for the rest of a first chunk."""
        if request.looked_up:
            return True
        size = self.pool.block_size
        # At least one token must be computed, for its logits.
        known = [] if request.uncached else request.hashes[: (request.total - 1) // size]
        cached = self.pool.cached_prefix(known)
        needed = -(-(len(request.prompt) if request.remote else len(cached) * size + 1) // size)
        if needed - len(cached) > self.pool.available(cached):
            return False
        self.pool.take(cached)
        request.blocks = list(cached)
        request.looked_up = True
        request.computed = len(cached) * size
        if request.preemptions == 0:
            request.cached_tokens = request.computed
        self.content.resume(request, request.computed)
        return True

    def _put_back(self, request: Request) -> None:
        """Give up a request's blocks and what it knows of them."""
        self.pool.release(request.blocks)
        request.blocks = []
        request.computed = 0
        request.looked_up = False

    def _pull(self, request: Request, step: Step) -> None:
        skip = request.computed
        have = len(request.blocks)
        self._grow(request, len(request.prompt))
        self._waiting_count -= 1
        request.status = Status.REMOTE
        self.remote[request.id] = request
        step.pulls.append(Pull(request, skip, request.blocks[have:]))

    def _grow(self, request: Request, tokens: int) -> bool:
        missing = -(-tokens // self.pool.block_size) - len(request.blocks)
        if missing <= 0:
            return True
        new = self.pool.allocate(missing)
        if new is None:
            return False
        request.blocks += new
        return True

    def _victim(self) -> Request:
        if self.limits.by_priority:
            return max(self.running, key=lambda request: (request.priority, request.order))
        return self.running[-1]

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._put_back(request)
        request.remote = False
        request.pulled = False
        request.registered = 0
        request.preemptions += 1
        self.preemptions += 1
        self._enqueue(request, next(self._front))

    @staticmethod
    def _unschedule(step: Step, victim: Request) -> int:
        """Take a request out of a step and say how many tokens that leaves."""
        for index, (request, amount) in enumerate(step.scheduled):
            if request is victim:
                del step.scheduled[index]
                return amount
        return 0

    def _duration(self, step: Step) -> float:
        if not step.scheduled:
            return 0.0
        # The last token of a prompt that a peer has computed is one like those of an answer.
        decodes = [request for request, amount in step.scheduled if amount == 1]
        prefill = sum(amount for _request, amount in step.scheduled if amount > 1)
        return self.profile.step(prefill, len(decodes), sum(request.computed for request in decodes))

    def _sample(self, request: Request, now: float) -> Output:
        sampling = request.sampling
        if request.voice is None:
            prompt_blocks = -(-len(request.prompt) // self.pool.block_size)
            content = [self.pool.content.get(block, b"") for block in request.blocks[:prompt_blocks]]
            request.voice = voice(content, sampling.key, mean_length=self.limits.mean_length)
            if sampling.script is not None:
                request.voice.script = encode(sampling.script(request.voice.state))
        if request.first_token_at is None:
            request.first_token_at = now
        return advance(request, request.voice)

    def _end(self, request: Request, output: Output, now: float) -> None:
        request.status = Status.FINISHED
        request.finish_reason = output.finish_reason
        request.finished_at = now
        self.requests.pop(request.id, None)
        self.remote.pop(request.id, None)
        until = self.on_finish(request, output, now)
        if until is None:
            self.pool.release(request.blocks)
        else:
            self.leases.hold(request.id, request.blocks, until)
        request.blocks = []
        request.sink(output)
