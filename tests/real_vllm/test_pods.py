"""Pods on this machine, with small programs in the engine's place."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from disagg.api.names import RoleName
from e2e.cluster.cluster import REPOSITORY
from e2e.real_vllm import Installation, Network, Pod, containers
from e2e.real_vllm.container import environment
from e2e.real_vllm.root import Folders
from tests.real_vllm.pair import CLAIM, resource

PROGRAMS = Installation(Path(sys.prefix), "0")
PREFILL = containers(resource())[RoleName.PREFILL]


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with Network(tmp_path_factory.mktemp("network")) as network:
        yield network


def said(network: Network, folder: Path, *command: str) -> str:
    """What a command says in prefill's container."""
    container = dataclasses.replace(PREFILL, command=list(command))
    claim = folder / "claim"
    claim.mkdir()
    (claim / "model.txt").write_text("a model")
    with Pod(network, container, PROGRAMS, claims={CLAIM: claim}, folder=folder / "pod") as pod:
        assert pod.wait(30) == 0, pod.log.read_text()
        return pod.log.read_text()


def test_a_process_has_the_environment_of_its_container_and_no_other(bridge: Network, tmp_path: Path) -> None:
    lines = said(bridge, tmp_path, "env").splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert found == environment(PREFILL, found["VLLM_HOST_IP"], str(PROGRAMS.programs))


def test_a_process_is_the_first_of_its_container(bridge: Network, tmp_path: Path) -> None:
    assert said(bridge, tmp_path, "sh", "-c", "echo $$").strip() == "1"


def test_a_pod_has_no_way_out(bridge: Network, tmp_path: Path) -> None:
    assert "default" not in said(bridge, tmp_path, "ip", "route")


def test_a_claim_is_mounted_as_the_manifest_says(bridge: Network, tmp_path: Path) -> None:
    script = "cat /model/model.txt && ! touch /model/other"
    assert "a model" in said(bridge, tmp_path, "sh", "-c", script)


def test_what_is_written_outside_of_volumes_is_told(bridge: Network, tmp_path: Path) -> None:
    script = "touch /usr/left-over /opt/left-over /tmp/fine /var/cache/kernels/fine"
    said(bridge, tmp_path, "sh", "-c", script)
    assert Folders(tmp_path / "pod").written() == ["/opt/left-over", "/usr/left-over"]
    assert not Path("/usr/left-over").exists()


def test_a_killed_run_leaves_no_process(tmp_path: Path) -> None:
    program = f"""
import dataclasses, sys, time
from pathlib import Path
from tests.real_vllm.test_pods import CLAIM, PREFILL, PROGRAMS, Network, Pod
folder = Path({str(tmp_path)!r})
container = dataclasses.replace(PREFILL, command=["sleep", "1000"])
(folder / "claim").mkdir()
with Network(folder) as network:
    Pod(network, container, PROGRAMS, claims={{CLAIM: folder / "claim"}}, folder=folder / "pod")
    time.sleep(1000)
"""
    run = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY)
    try:
        deadline = time.monotonic() + 30
        while "sleep 1000" not in commands_below(run.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        started = psutil.Process(run.pid).children(recursive=True)
        assert "sleep 1000" in commands_below(run.pid)
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not alive


def commands_below(pid: int) -> list[str]:
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            found.append(" ".join(process.cmdline()))
        except psutil.NoSuchProcess:
            continue
    return found
