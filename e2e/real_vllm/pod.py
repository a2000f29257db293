"""A pod: one engine's container that runs in a sandbox.

Its process is number 1 of a process namespace of its own, as in a container, which matters to signals. When that process ends, the
kernel ends what it has started and removes what was mounted for it; and it ends when this one does.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from e2e.cluster.errors import ComponentError
from e2e.cluster.processes import start, tail
from e2e.cluster.waiting import wait_until
from e2e.lifetime import bound
from e2e.real_vllm.client import Client
from e2e.real_vllm.container import Container, environment
from e2e.real_vllm.installation import Installation
from e2e.real_vllm.network import Network
from e2e.real_vllm.root import Folders, steps

_READY_SECONDS: Final = 600.0
_KILL_SECONDS: Final = 30.0


class Pod:
    """A pod that runs.

    Attributes:
        container: Its container, as rendered.
        address: Its address.
        folders: What it has written.
        log: Its output.
        client: Asks it.
    """

    def __init__(
        self,
        network: Network,
        container: Container,
        vllm: Installation,
        *,
        claims: Mapping[str, Path],
        folder: Path,
    ) -> None:
        """Start it.

        Args:
            network: Where it gets its address.
            container: Its container.
            vllm: What its image has.
            claims: Name of a PersistentVolumeClaim -> the folder that stands for it.
            folder: A new folder for what it writes.
        """
        self._sandbox = network.sandbox(container.name)
        self.container = container
        self.address = self._sandbox.address
        self.folders = Folders(folder)
        self.log = folder / "engine.log"
        self.client = Client(network, self.address, container.port)
        self.folders.make(container, self.address)
        mounts = [shlex.join(step) for step in steps(self.folders, container, vllm, claims)]
        variables = environment(container, self.address, str(vllm.programs))
        assignments = [f"{name}={value}" for name, value in variables.items()]
        process = ["chroot", str(self.folders.root), "env", "-i", *assignments, *container.command]
        namespaces = [f"--{kind}=/proc/{self._sandbox.pid}/ns/{kind}" for kind in ("net", "uts", "ipc")]
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL"]
        script = "\n".join([*mounts, f"exec {shlex.join(process)}"])
        command = bound(["nsenter", *namespaces, *isolated, "sh", "-euc", script])
        self._started = time.monotonic()
        self._child, _ = start(container.name, command, log=self.log, cwd=folder)

    def __enter__(self) -> Self:
        """It runs already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it."""
        self.signal(signal.SIGKILL)
        try:
            self._child.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def wait_until_ready(self, seconds: float = _READY_SECONDS) -> float:
        """Wait for its startup and readiness probes.

        Args:
            seconds: How long at most.

        Returns:
            Seconds from its start.

        Raises:
            ComponentError: If it ends; the text carries the end of its log.
            WaitError: If it is not ready in time.
        """
        for path in (self.container.startup_path, self.container.ready_path):
            goal = f"{self.container.name} answers {path}"
            wait_until(goal, partial(self._answers, path), seconds=seconds)
        return time.monotonic() - self._started

    def received(self) -> int:
        """Bytes that its network interface has received, whatever they were for."""
        # Of the sandbox's network, as the process that holds it sees it.
        lines = Path(f"/proc/{self._sandbox.pid}/net/dev").read_text().splitlines()
        line = next(line for line in lines if line.strip().startswith("eth0:"))
        return int(line.partition(":")[2].split()[0])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the engine; nothing if it has ended.

        Args:
            number: The signal.
        """
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            for process in psutil.Process(self._child.pid).children():
                os.kill(process.pid, number)

    def wait(self, seconds: float) -> int:
        """Wait until the engine has ended.

        Args:
            seconds: How long at most.

        Returns:
            Its exit status.

        Raises:
            subprocess.TimeoutExpired: If it has not by then.
        """
        return self._child.wait(seconds)

    def _answers(self, path: str) -> bool:
        if (status := self._child.poll()) is not None:
            end = tail(self.log, 40)
            raise ComponentError(
                f"{self.container.name} ended with status {status}. Its log ends with:\n{end}"
            )
        answer = self.client.get(path)
        return answer is not None and answer.status == 200  # noqa: PLR2004
