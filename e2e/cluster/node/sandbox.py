"""The namespaces that a cluster with a real node runs in: network, mounts and processes.

They live as long as their first process, which is recorded as the component `sandbox`. The kernel ends all processes
of a process namespace with its first one; with the last process the mounts and the network go.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from e2e.cluster.errors import ClusterError
from e2e.cluster.node import sandbox_init
from e2e.cluster.processes import find, start, stop
from e2e.cluster.state import Layout, ProcessRecord, Record
from e2e.cluster.waiting import wait_until

NAME: Final = "sandbox"

_INIT: Final = Path(sandbox_init.__file__)
_CLONE_NEWNET: Final = 0x40000000

# These folders are where containers' programs expect to write, and a few of them can't be told otherwise. Each gets
# one of the cluster's own, seen by nobody else.
_MOUNTS: Final = """\
mount --make-rshared /
for folder in /run /var/lib; do mount -t tmpfs -o mode=755 tmpfs $folder; done
mkdir -p /var/lib/kubelet /var/lib/containerd
mount --bind "$1/kubelet" /var/lib/kubelet
mount --bind "$1/containerd" /var/lib/containerd
mount --bind "$1/log" /var/log
"""


class Sandbox:
    """The namespaces of one cluster.

    Args:
        pid: The process that made them.
    """

    def __init__(self, pid: int) -> None:
        self._namespaces = Path("/proc") / str(pid) / "ns"

    @property
    def network(self) -> Path:
        """The network namespace."""
        return self._namespaces / "net"

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command in all of the namespaces.

        Args:
            command: The command.
        """
        # The process namespace is that of the children of the process that made it.
        return [
            *("nsenter", f"--net={self.network}", f"--mount={self._namespaces / 'mnt'}"),
            *(f"--pid={self._namespaces / 'pid_for_children'}", "--", *command),
        ]

    def client_command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a client in the network, and otherwise with the files of this process.

        Args:
            command: The command.
        """
        return ["nsenter", f"--net={self.network}", "--", *command]

    def run(self, command: Sequence[str]) -> str:
        """Run a command in all of the namespaces.

        Args:
            command: The command.

        Returns:
            Its standard output.

        Raises:
            ClusterError: If it fails.
        """
        result = subprocess.run(self.command(command), capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise ClusterError(
                f"`{' '.join(command)}` ended with status {result.returncode}: {result.stderr}"
            )
        return result.stdout


def start_sandbox(layout: Layout) -> tuple[subprocess.Popen[bytes], ProcessRecord]:
    """Make the namespaces.

    Args:
        layout: The state folder.

    Returns:
        The process that made them and goes on with them, and its record.
    """
    return start(
        NAME,
        [
            *("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--propagation=private"),
            *("--kill-child=KILL", sys.executable, "-I", "-S", str(_INIT), str(layout.root)),
        ],
        log=layout.log(NAME),
        cwd=layout.root,
    )


def prepare_mounts(sandbox: Sandbox, layout: Layout, pid: int) -> None:
    """Wait for the namespaces and give the cluster folders of its own in them.

    Args:
        sandbox: The namespaces.
        layout: The state folder, which must not be in a folder that is hidden in there.
        pid: The process that made them.

    Raises:
        ClusterError: If they do not come up.
    """
    for hidden in ("/run", "/var/lib", "/var/log"):
        if layout.root.is_relative_to(hidden):
            raise ClusterError(f"the state folder of a cluster with a real node can't be in {hidden}")
    # Its child has mounted /proc before it becomes another program.
    wait_until("the sandbox is there", lambda: str(_INIT) in _first_child(pid), seconds=60)
    for folder in ("kubelet", "containerd", "log"):
        (layout.node / folder).mkdir(parents=True, exist_ok=True)
    sandbox.run(["sh", "-ec", _MOUNTS, "sh", str(layout.node)])


def sandbox_of(record: Record) -> Sandbox | None:
    """The namespaces of a cluster.

    Args:
        record: What was started.

    Returns:
        The namespaces, or None if the cluster has none: it has no real node.

    Raises:
        ClusterError: If it had them, and they have ended.
    """
    if not record.options.real_node:
        return None
    for process in record.processes:
        if process.name == NAME and find(process):
            return Sandbox(process.pid)
    raise ClusterError("the cluster has ended: take it down")


def end_sandbox(root: Path) -> bool:
    """End all processes in the namespaces of a cluster, and with them the namespaces.

    They are found by the state folder, so that not even one is missed that was never recorded.

    Args:
        root: The state folder.

    Returns:
        False if there were none.

    Raises:
        ClusterError: If they do not end.
    """
    records = [
        ProcessRecord(name=NAME, pid=process.pid, started=process.create_time())
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [])[-2:] == [str(_INIT), str(root)]
    ]
    stop(records, grace=0.0)
    return bool(records)


@contextmanager
def inside(network: Path | None) -> Iterator[None]:
    """Let this thread make its connections in another network namespace.

    Args:
        network: The namespace; None for the one that the thread is in.

    Raises:
        OSError: If it is gone.
    """
    if network is None:
        yield
        return
    with Path("/proc/thread-self/ns/net").open("rb") as own, network.open("rb") as other:
        _set_network(other.fileno())
        try:
            yield
        finally:
            _set_network(own.fileno())


def _set_network(descriptor: int) -> None:
    # os.setns came with Python 3.12.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _first_child(pid: int) -> list[str]:
    try:
        return next((child.cmdline() for child in psutil.Process(pid).children()), [])
    except psutil.Error:
        return []
