"""Pytest fixtures for tests with containers: one cluster with a real node a session, with this project's images on it.

Loaded by `pytest_plugins = ["e2e.real_node"]`. Such a test is marked `real_node` (one that uses the fixture
`real_cluster` is marked by itself), is run by `make e2e`, and is skipped where a real node can't run. Packages, binaries and images are
prepared before the first test, since that takes longer than any test may.
"""

import os
from collections.abc import Iterator

import pytest
from rich.console import Console

from e2e.cluster import Cluster, ClusterError, Options
from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.node.machine import ensure_packages, why_not
from e2e.cluster.tools import NODE_TOOLS, TOOLS, recipes
from e2e.images import IMAGES, Image, build


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the cluster, and skip all marked ones where they can't run."""
    reason = _why_skipped()
    for item in items:
        if "real_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real_node)
        if reason and item.get_closest_marker("real_node"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Prepare what a selected test needs, and show that."""
    wanted = any(item.get_closest_marker("real_node") for item in session.items)
    if session.config.option.collectonly or not wanted or _why_skipped():
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=False)
    console = Console(stderr=True)
    try:
        ensure_packages(console)
        ensure_binaries(wanted=recipes((*TOOLS, *NODE_TOOLS)), console=console)
        for name in IMAGES:
            console.print(build(name).summary, highlight=False, soft_wrap=True)
    except ClusterError as error:
        # The tests that need it fail with the same text; all others can still run.
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
    finally:
        capture.resume_global_capture()


def _why_skipped() -> str | None:
    """Why such tests are skipped; None if they run."""
    return why_not() if os.environ.get("DISAGG_E2E") == "1" else "`make e2e` runs it"


@pytest.fixture(scope="session")
def images() -> dict[str, Image]:
    """This project's images by name, as the working tree has them."""
    return {name: build(name) for name in IMAGES}


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory, images: dict[str, Image]) -> Iterator[Cluster]:
    """A running cluster with a real node, an audit log and the images, shared by the whole session.

    It goes down at the end of the session, also if that is Ctrl-C, and even if pytest is killed.
    """
    options = Options(real_node=True, audit=True, pod_ready_delay=0.5)
    with Cluster(tmp_path_factory.mktemp("real") / "state", options) as running:
        for image in images.values():
            running.load_image(image.archive)
        yield running
