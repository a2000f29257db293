"""One operator for all tests, as a process with the rights that the chart gives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster
from e2e.operator_process import RELEASE, SERVICE_ACCOUNT, OperatorProcess, install_chart
from tests.operator.kube import Kube

OPERATOR_ROLE = RELEASE
"""The ClusterRole of the chart."""

OPERATOR = ":".join(("system:serviceaccount", *SERVICE_ACCOUNT))
"""Who the operator is to the API server."""

_NEWER = "tests.operator.newer_renderer"


class RunningOperator:
    """The operator, which tests may stop, kill and start again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._process = OperatorProcess(cluster)
        self.is_default = False

    def restart(self, *args: str, newer_renderer: bool = False) -> None:
        """Stop it if it runs, and start it."""
        self.stop()
        self.is_default = not args and not newer_renderer
        module = _NEWER if newer_renderer else "disagg.cli"
        self._process = OperatorProcess(self._cluster, args=args, module=module)
        self._process.start()

    def stop(self) -> None:
        """End it as Kubernetes would."""
        self.is_default = False
        self._process.stop()

    def kill(self) -> None:
        """End it as a crash would."""
        self.is_default = False
        self._process.kill()

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process.is_running

    def passes(self, result: str = "") -> int:
        """Passes over resources so far, those with `result` or all."""
        wanted = f'disagg_operator_reconcile_total{{result="{result}'
        samples = self._process.metrics()
        return int(sum(value for name, value in samples.items() if name.startswith(wanted)))


@pytest.fixture(scope="session")
def chart(cluster: Cluster) -> None:
    """The chart, installed."""
    install_chart(cluster)


@pytest.fixture(scope="session")
def _operator(cluster: Cluster, chart: None) -> Iterator[RunningOperator]:  # noqa: ARG001 - it must be there first
    running = RunningOperator(cluster)
    yield running
    running.stop()


@pytest.fixture
def operator(_operator: RunningOperator) -> RunningOperator:
    """The operator, running as the chart would run it, whatever the test before has done to it."""
    if not (_operator.is_running and _operator.is_default):
        _operator.restart()
    return _operator


@pytest.fixture
def kube(cluster: Cluster, namespace: str) -> Kube:
    """A fresh namespace."""
    return Kube(cluster, namespace)
