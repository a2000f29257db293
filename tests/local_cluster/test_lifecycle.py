"""Clusters that go up, run side by side, die and go down: nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from e2e.cluster import (
    Cluster,
    ClusterError,
    CommandError,
    ComponentError,
    Options,
    Racks,
    WaitError,
    wait_until,
)
from e2e.cluster.cluster import REPOSITORY
from e2e.cluster.launch import Launch
from e2e.cluster.ports import LOOPBACK, Ports
from e2e.cluster.processes import find
from e2e.cluster.state import Layout, ProcessRecord, Record, read_record, write_record

COMPONENTS = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

ONE_NODE = """\
node: {capacity: {cpu: 8, memory: 64Gi, nvidia.com/gpu: 8}}
racks: [{name: only, block: b, zone: z, nodes: 1}]
"""

START = """\
import sys
from pathlib import Path
from e2e.cluster import Cluster
Cluster(Path(sys.argv[1])).up(tied=sys.argv[2] == "True")
"""


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "e2e.cluster", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@dataclass
class Pair:
    by_command: Cluster
    by_api: Cluster


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two clusters that started at the same moment, one from the command line and one from Python."""
    folder = tmp_path_factory.mktemp("pair")
    racks = folder / "racks.yaml"
    racks.write_text(ONE_NODE)
    options = Options(pod_groups=False, racks=Racks.model_validate({"node": {"capacity": {}}, "racks": []}))
    made = Pair(Cluster(folder / "a"), Cluster(folder / "b", options))
    outcome: list[subprocess.CompletedProcess[str]] = []
    arguments = ("up", "--state", str(folder / "a"), "--racks", str(racks))
    other = threading.Thread(target=lambda: outcome.append(command_line(*arguments)))
    other.start()
    try:
        with made.by_api:
            other.join()
            assert outcome[0].returncode == 0, outcome[0].stderr
            yield made
    finally:
        other.join()
        made.by_command.down()


pytestmark = pytest.mark.cluster


def test_two_run_side_by_side(pair: Pair) -> None:
    assert pair.by_command.server != pair.by_api.server
    names = pair.by_command.kubectl("get", "nodes", "-o", "name")
    assert names == "node/gpu-r0-n0\n"
    assert pair.by_api.kubectl("get", "nodes", "-o", "name") == ""


def test_every_listener_is_on_loopback(pair: Pair) -> None:
    for component in pair.by_api.status():
        listening = [
            connection.laddr
            for connection in psutil.Process(component.pid).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert {address.ip for address in listening} <= {LOOPBACK}, component.name


def test_pod_groups_are_off_with_the_switch(pair: Pair) -> None:
    on, off = pair.by_command, pair.by_api
    assert "podgroups" in on.kubectl("api-resources", "--api-group=scheduling.k8s.io")
    assert "podgroups" not in off.kubectl("api-resources", "--api-group=scheduling.k8s.io")


def test_up_again_changes_nothing(pair: Pair) -> None:
    before = pair.by_api.status()
    assert pair.by_api.up() is False
    assert [component.pid for component in pair.by_api.status()] == [component.pid for component in before]

    result = command_line("up", "--state", str(pair.by_command.layout.root))
    assert result.returncode == 0
    assert "runs already" in result.stderr
    assert "with other options" in result.stderr


def test_the_command_line_speaks_to_its_cluster(pair: Pair) -> None:
    state = ("--state", str(pair.by_command.layout.root))
    assert command_line("kubeconfig", *state).stdout.strip() == str(pair.by_command.kubeconfig)
    assert command_line("kubectl", *state, "get", "nodes", "-o", "name").stdout == "node/gpu-r0-n0\n"
    assert command_line("helm", *state, "list", "--output", "json").stdout.strip() == "[]"
    failed = command_line("kubectl", *state, "get", "pod", "none")
    assert failed.returncode == 1
    assert "NotFound" in failed.stderr

    status = command_line("status", *state)
    assert status.returncode == 0
    assert {line.split()[0] for line in status.stdout.splitlines()[1:] if "running" in line} == COMPONENTS


def test_an_audit_log_that_was_not_asked_for_is_missed_at_once(pair: Pair) -> None:
    with pytest.raises(ClusterError, match="without an audit log"):
        pair.by_api.audit()


def recorded(state: Path) -> list[ProcessRecord]:
    record = read_record(Layout(state))
    return record.processes if record else []


@contextmanager
def killed_in_the_middle(state: Path, *, tied: bool) -> Iterator[list[ProcessRecord]]:
    """A process that is killed while it starts a cluster; yields the processes that it had started."""
    with subprocess.Popen([sys.executable, "-c", START, state, str(tied)], cwd=REPOSITORY) as starter:
        processes = wait_until("two run", lambda: found if len(found := recorded(state)) > 1 else [])
        starter.kill()
    yield processes
    assert [process.name for process in processes if find(process)] == []


def test_what_a_killed_run_left_is_replaced_and_down_leaves_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "state")
    with killed_in_the_middle(cluster.layout.root, tied=False) as left_over:
        assert [find(process) is not None for process in left_over] == [True, True]
        assert cluster.is_running() is False
        assert cluster.up() is True

    running = cluster.record.processes
    assert {process.name for process in running if find(process)} == COMPONENTS
    os.kill(running[-1].pid, signal.SIGKILL)
    wait_until("a component has ended", lambda: find(running[-1]) is None)
    assert cluster.is_running() is False
    assert command_line("status", "--state", str(cluster.layout.root)).returncode == 1

    assert cluster.down() is True
    assert [process.name for process in running if find(process)] == []
    assert not cluster.layout.root.exists()
    assert cluster.down() is False


def test_a_killed_owner_takes_its_cluster_with_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with killed_in_the_middle(state, tied=True):
        wait_until("nothing is left", lambda: not state.exists())


def programs(folder: Path, script: str) -> dict[str, Path]:
    """One shell script in place of every component."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return dict.fromkeys(COMPONENTS, program)


@pytest.fixture
def broken_binaries(tmp_path: Path) -> dict[str, Path]:
    return programs(tmp_path, "echo 'no such thing as a free port' >&2; exit 3")


@pytest.fixture
def sleeping_binaries(tmp_path: Path) -> dict[str, Path]:
    return programs(tmp_path, "echo slow; exec sleep 600")


def test_a_component_that_dies_shows_the_end_of_its_log(
    tmp_path: Path, broken_binaries: dict[str, Path]
) -> None:
    start = Launch(Layout(tmp_path / "state"), Options(), Ports.from_block(20000), broken_binaries)
    with pytest.raises(ComponentError, match=r"(?s)ended with status 3\..*no such thing as a free port"):
        start.run()
    for child in start.children.values():
        child.wait()


def test_a_start_that_hangs_shows_the_end_of_all_logs(
    tmp_path: Path, sleeping_binaries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("e2e.cluster.launch._READY_SECONDS", 0.3)
    monkeypatch.setattr("e2e.cluster.cluster.ensure_binaries", lambda **_: sleeping_binaries)
    with pytest.raises(
        WaitError, match=r"(?s)until the API server is ready.*etcd:\nslow.*kube-apiserver:\nslow"
    ):
        Cluster(tmp_path / "state").up()


def test_a_failed_start_leaves_nothing(
    tmp_path: Path, broken_binaries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("e2e.cluster.cluster.ensure_binaries", lambda **_: broken_binaries)
    before = set(psutil.Process().children())
    cluster = Cluster(tmp_path / "state")
    with pytest.raises(ComponentError):
        cluster.up(tied=True)
    assert not cluster.layout.root.exists()
    assert set(psutil.Process().children()) <= before


def test_an_interrupted_start_leaves_nothing(
    tmp_path: Path, sleeping_binaries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("e2e.cluster.cluster.ensure_binaries", lambda **_: sleeping_binaries)

    def interrupt(layout: Layout, record: Record) -> None:
        # Between the start of a process and its record is the worst moment.
        if record.processes:
            raise KeyboardInterrupt
        write_record(layout, record)

    monkeypatch.setattr("e2e.cluster.launch.write_record", interrupt)
    before = set(psutil.Process().children())
    cluster = Cluster(tmp_path / "state")
    with pytest.raises(KeyboardInterrupt):
        cluster.up(tied=True)
    assert not cluster.layout.root.exists()
    assert set(psutil.Process().children()) <= before


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for action in (Cluster(tmp_path).up, Cluster(tmp_path).down):
        with pytest.raises(ClusterError, match="is not empty and not the state of a cluster"):
            action()
    assert precious.read_text() == "mine"


def test_a_record_of_another_version_is_named(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.record.write_text(json.dumps({"processes": []}))
    with pytest.raises(ClusterError, match=r"cluster\.json is not of this version"):
        Cluster(tmp_path).down()


@pytest.mark.parametrize("ask", [lambda cluster: cluster.server, lambda cluster: cluster.kubectl("version")])
def test_without_a_cluster(tmp_path: Path, ask: Callable[[Cluster], object]) -> None:
    with pytest.raises(ClusterError, match="there is no cluster in") as caught:
        ask(Cluster(tmp_path / "none"))
    assert not isinstance(caught.value, CommandError)
