"""Engines for tests, ended with them: stand-ins, or real ones if `real_vllm` is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest

from tests.engine_sim.processes import Engines
from tests.engine_sim.real_vllm import IS_WANTED, RealEngines

_REAL_SECONDS = 1800


def _as_long_as_they_are_dear(fixture_name: str, config: pytest.Config) -> Literal["session", "module"]:  # noqa: ARG001 - pytest's
    return "session" if IS_WANTED else "module"


@pytest.fixture(scope=_as_long_as_they_are_dear)
def shared_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Engines that live as long as the tests of a file; real ones as long as all tests."""
    with _engines_in(tmp_path_factory.mktemp("engines"), shared=True) as engines:
        yield engines


@pytest.fixture
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Engines that live as long as a test."""
    with _engines_in(tmp_path_factory.mktemp("engines"), shared=False) as found:
        yield found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not IS_WANTED:
        return
    for item in items:
        item.add_marker(pytest.mark.timeout(_REAL_SECONDS))
        if (mark := item.get_closest_marker("stand_in_only")) is not None:
            item.add_marker(pytest.mark.skip(reason=f"of the stand-in alone: {mark.args[0]}"))


@contextmanager
def _engines_in(folder: Path, *, shared: bool) -> Iterator[Engines]:
    with ExitStack() as stack:
        engines = RealEngines(folder, shared=shared) if IS_WANTED else Engines(folder)
        stack.callback(engines.stop)
        yield engines
