"""Pods' network: a bridge without a way out, and for each pod a sandbox with an address of its own on it.

All of it is in network namespaces of their own, the bridge, too, each held by a process that does nothing, as the pause container
of a pod. Nothing of it is in the machine's own network, and all of it is gone with these processes, which end with this one.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from e2e.cluster.errors import ClusterError, CommandError
from e2e.cluster.processes import start, stop
from e2e.cluster.state import ProcessRecord
from e2e.cluster.waiting import wait_until
from e2e.lifetime import bound

_SUBNET: Final = "192.0.2"
"""TEST-NET-1 (RFC 5737), which is nobody's."""
_BRIDGE: Final = "pods"
_CLONE_NEWNET: Final = 0x40000000
_START_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Sandbox:
    """What a pod's containers share: network, host name and System V memory.

    Attributes:
        name: Name of the pod, and of the host.
        address: Its address.
        pid: The process that holds it.
    """

    name: str
    address: str
    pid: int


class Network:
    """The bridge, with the sandboxes on it."""

    def __init__(self, folder: Path) -> None:
        """A network that is not there yet.

        Args:
            folder: Where the logs of its processes go.
        """
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []
        self._records: list[ProcessRecord] = []
        self._pid = 0
        self._last = 1

    def __enter__(self) -> Self:
        """Make the bridge.

        Raises:
            ClusterError: Without root's rights.
        """
        if os.geteuid() != 0:
            raise ClusterError("pods with addresses of their own need network namespaces: run this as root")
        try:
            self._pid = self._hold("bridge", [])
            self._ip(self._pid, "link", "add", _BRIDGE, "type", "bridge")
            self._ip(self._pid, "address", "add", f"{_SUBNET}.1/24", "dev", _BRIDGE)
            self._ip(self._pid, "link", "set", _BRIDGE, "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove it, and all sandboxes."""
        for child in self._children:
            child.kill()
            child.wait()
        stop(self._records, grace=0)

    def sandbox(self, name: str) -> Sandbox:
        """Add a pod's sandbox.

        Args:
            name: Name of the pod.
        """
        self._last += 1
        address, port = f"{_SUBNET}.{self._last}", f"pod{self._last}"
        pid = self._hold(name, ["--uts", "--ipc"])
        self._ip(self._pid, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self._ip(self._pid, "link", "set", port, "master", _BRIDGE, "up")
        self._ip(pid, "link", "set", "lo", "up")
        self._ip(pid, "address", "add", f"{address}/24", "dev", "eth0")
        self._ip(pid, "link", "set", "eth0", "up")
        _run(["nsenter", f"--uts=/proc/{pid}/ns/uts", "hostname", name])
        return Sandbox(name, address, pid)

    def connect(self, address: str, port: int) -> socket.socket:
        """A TCP connection from the bridge to a pod.

        Args:
            address: Address of the pod.
            port: Port.

        Raises:
            OSError: If nothing listens there.
        """
        # A socket stays in the namespace that its thread was in when it was made; this thread ends right after.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(_connect_within, self._pid, (address, port)).result()

    def _hold(self, name: str, others: list[str]) -> int:
        command = bound(["unshare", "--net", *others, "sleep", "infinity"])
        child, record = start(name, command, log=self._folder / f"{name}.sandbox.log", cwd=self._folder)
        self._children.append(child)
        self._records.append(record)
        ours = Path("/proc/self/ns/net").readlink()
        held = Path(f"/proc/{child.pid}/ns/net")
        wait_until(f"{name} has a network", lambda: held.readlink() != ours, seconds=_START_SECONDS)
        return child.pid

    @staticmethod
    def _ip(pid: int, *arguments: str) -> None:
        _run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", *arguments])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(command, done.returncode, done.stdout, done.stderr)


def _connect_within(pid: int, address: tuple[str, int]) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    return socket.create_connection(address, timeout=_CONNECT_SECONDS)
