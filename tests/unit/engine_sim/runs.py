"""Runs a scheduler through time that nobody waits for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from disagg.engine_sim.blocks import BlockPool
from disagg.engine_sim.request import Output, Request, Sampling
from disagg.engine_sim.scheduler import Limits, Pull, Scheduler, Step
from disagg.engine_sim.timing import PROFILES

TINY = PROFILES["tiny"]


@dataclass
class Run:
    """A scheduler with a clock, and what its requests have heard.

    Attributes:
        steps: What each step computed: tokens by request.
        pulls: Transfers that it has asked for.
    """

    scheduler: Scheduler
    now: float = 0.0
    heard: dict[str, list[Output]] = field(default_factory=lambda: defaultdict(list))
    steps: list[dict[str, int]] = field(default_factory=list)
    pulls: list[Pull] = field(default_factory=list)

    def add(self, name: str, prompt: list[int], max_tokens: int = 4, **fields: Any) -> Request:
        sampling = {key: fields.pop(key) for key in list(fields) if key in Sampling.__dataclass_fields__}
        request = Request(
            name, prompt, Sampling(max_tokens, **sampling), self.now, self.heard[name].append, **fields
        )
        self.scheduler.add(request)
        return request

    def step(self) -> Step | None:
        step = self.scheduler.step(self.now)
        if step is None:
            return None
        self.pulls += step.pulls
        self.steps.append({request.id: amount for request, amount in step.scheduled})
        self.now += step.seconds
        self.scheduler.finish(step, self.now)
        return step

    def finish(self) -> Run:
        """Run until nothing is left to do."""
        for _ in range(10_000):
            if self.step() is None:
                return self
        raise AssertionError("it never ends")

    def text(self, name: str) -> str:
        return "".join(output.text for output in self.heard[name])

    def tokens(self, name: str) -> list[int]:
        return [token for output in self.heard[name] for token in output.tokens]

    def ending(self, name: str) -> str | None:
        return self.heard[name][-1].finish_reason


def run(blocks: int = 1000, block_size: int = 16, *, caching: bool = True, **limits: Any) -> Run:
    return Run(
        Scheduler(
            BlockPool(blocks, block_size, caching),
            TINY,
            Limits(**{"identity": b"model", "mean_length": 0, **limits}),
        )
    )
