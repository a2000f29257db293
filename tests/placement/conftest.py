"""One crowd for all tests of the folder: see `crowd`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from e2e.cluster import Cluster
from e2e.operator_process import install_chart
from tests.placement.crowd import Crowd


@pytest.fixture(scope="package")
def crowd(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Crowd]:
    """The scenes of all tests that were selected."""
    install_chart(cluster)
    with ExitStack() as stack:
        yield Crowd(cluster, request.session.items, stack)
