"""A request may not take all memory of an engine, whatever it asks for."""

from __future__ import annotations

import pytest

from tests.engine_sim.conformance.pairs import SCALE
from tests.engine_sim.processes import Engine, Engines

DIALECTS = {
    "vllm": ("serve", "m"),
    "sglang": ("--dialect", "sglang", "--model-path", "m", "--host", "127.0.0.1"),
    "trtllm": ("--dialect", "trtllm", "serve", "m", "--host", "127.0.0.1"),
}


@pytest.fixture(scope="module", params=DIALECTS)
def engine(request: pytest.FixtureRequest, shared_engines: Engines) -> Engine:
    return shared_engines.start(*DIALECTS[request.param], *SCALE).ready()


@pytest.mark.parametrize("count", [2**31, 10**30])
def test_more_samples_than_there_can_be_are_refused(engine: Engine, count: int) -> None:
    body = {"model": "m", "prompt": "hi", "max_tokens": 1, "temperature": 1, "n": count}
    assert engine.post("/v1/completions", body).status == 400
    assert engine.get("/health").status == 200
