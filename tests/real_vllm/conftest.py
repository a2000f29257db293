"""What tests with real engines share: an installation, a network, a prefill and a decode pod.

Engines take a minute to start and gigabytes to install: `make e2e-vllm` asks for these tests, and nothing else collects them.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from e2e.cluster.cluster import REPOSITORY
from e2e.real_vllm import Installation, Network, Pod, installation, is_installed, tiny_model
from tests.real_vllm.pair import CLAIM, MODEL, Numbers, Starter, resource

if os.environ.get("DISAGG_E2E_VLLM") != "1":
    collect_ignore = ["test_compatibility.py", "test_pair.py", "test_pods.py", "test_shutdown.py"]


FOLDER = REPOSITORY / "build" / "real-vllm"
"""What pods have written, their logs among it."""

_numbers: Numbers = {}


@pytest.fixture(scope="session")
def numbers() -> Numbers:
    return _numbers


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _numbers:
        terminalreporter.section("measured")
        for name, value in _numbers.items():
            terminalreporter.write_line(f"{name}: {value}")


@pytest.fixture(scope="session")
def vllm() -> Installation:
    # An installation takes longer than any test may.
    assert is_installed(), "run `python -m e2e.real_vllm` first, as `make e2e-vllm` does"
    return installation()


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    # Stays after the run, with the engines' logs, and goes with the next one.
    with FileLock(FOLDER.with_suffix(".lock"), timeout=0):
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        yield FOLDER


@pytest.fixture(scope="session")
def network(folder: Path) -> Iterator[Network]:
    with Network(folder) as made:
        yield made


@pytest.fixture(scope="session")
def start(network: Network, vllm: Installation, folder: Path) -> Starter:
    tiny_model.write(folder / CLAIM / MODEL)
    return Starter(network, vllm, {CLAIM: folder / CLAIM}, folder)


@pytest.fixture(scope="session")
def prefill(start: Starter, numbers: Numbers) -> Iterator[Pod]:
    with start("prefill", resource()) as pod:
        numbers["start of prefill"] = f"{pod.wait_until_ready():.0f} s"
        yield pod


@pytest.fixture(scope="session")
def decode(start: Starter, numbers: Numbers) -> Iterator[Pod]:
    with start("decode", resource()) as pod:
        numbers["start of decode"] = f"{pod.wait_until_ready():.0f} s"
        yield pod
