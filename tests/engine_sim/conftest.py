"""Engines for tests, ended with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine_sim.processes import Engines, engines_in


@pytest.fixture(scope="module")
def shared_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Engines that live as long as the tests of a file."""
    with engines_in(tmp_path_factory.mktemp("engines")) as engines:
        yield engines


@pytest.fixture
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Engines that live as long as a test."""
    with engines_in(tmp_path_factory.mktemp("engines")) as found:
        yield found
