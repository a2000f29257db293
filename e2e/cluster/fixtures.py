"""Pytest fixtures: one cluster a session, one namespace a test.

Loaded by `pytest_plugins = ["e2e.cluster.fixtures"]`. Missing binaries are built before the first test, since a first
build takes longer than any test may.
"""

import secrets
from collections.abc import Iterator

import pytest
from rich.console import Console

from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.state import Options


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests that use the cluster, so that `-m "not cluster"` leaves them out."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Build missing binaries, and show that, if a selected test needs them."""
    config = session.config
    if config.option.collectonly or not any(item.get_closest_marker("cluster") for item in session.items):
        return
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=False)
    try:
        ensure_binaries()
    except ClusterError as error:
        # The tests that need a cluster fail with the same text; all others can still run.
        Console(stderr=True).print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
    finally:
        capture.resume_global_capture()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster with an audit log, shared by the whole session.

    It goes down at the end of the session, also if that is Ctrl-C, and even if pytest is killed.
    """
    with Cluster(
        tmp_path_factory.mktemp("cluster") / "state", Options(audit=True, pod_ready_delay=0.5)
    ) as running:
        yield running


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A fresh namespace; its deletion, which takes about 25 s, goes on after the test."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
