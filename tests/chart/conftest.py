from __future__ import annotations

import pytest

from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.tools import recipes
from tests.chart.helm import Helm


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Helm without a cluster. Only it is built if it is missing."""
    return Helm(ensure_binaries([recipe for recipe in recipes() if recipe.name == "helm"])["helm"])
