"""Starts, recognises and ends processes.

A process is known by its id and the moment it started, because ids are reused.
"""

import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from e2e.cluster.errors import ClusterError
from e2e.cluster.state import ProcessRecord

# A process that ignores SIGKILL is in the kernel's hands; more waiting seldom helps.
_KILL_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.02

# psutil computes the start from the boot time, which moves a little when the clock is adjusted.
_SAME_START_SECONDS: Final = 2.0


def start(
    name: str, command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], ProcessRecord]:
    """Start a process that outlives this one.

    Args:
        name: Name for the record.
        command: Its command line.
        log: File to which its output is added.
        cwd: Folder to run in.
        env: Its environment, by default this process's.

    Returns:
        The child, which its parent has to reap, and its record.

    Raises:
        OSError: If there is no such program.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        # A session of its own keeps it from the signals of this terminal.
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    return child, ProcessRecord(name=name, pid=child.pid, started=psutil.Process(child.pid).create_time())


def find(record: ProcessRecord) -> psutil.Process | None:
    """The process of a record.

    Args:
        record: The record.

    Returns:
        The process, or None if it has ended, even if its id is now another's or its parent has not reaped it.
    """
    try:
        process = psutil.Process(record.pid)
        is_same = abs(process.create_time() - record.started) < _SAME_START_SECONDS
        return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def payload(process: psutil.Process) -> psutil.Process:
    """The program that a process is there for.

    Args:
        process: A process that was started.

    Returns:
        The process, or its child if it only stands outside of the namespaces that the child runs in.
    """
    if process.name() not in ("nsenter", "unshare"):
        return process
    return next(iter(process.children()), process)


def stop(records: Iterable[ProcessRecord], *, grace: float) -> None:
    """End processes and wait until they are gone.

    Args:
        records: What to end; those that have ended already are passed over.
        grace: Seconds from SIGTERM to SIGKILL; kube-apiserver alone would take up to a minute to end while watches
            are open.

    Raises:
        ClusterError: If one is still there long after SIGKILL.
    """
    left = list(records)
    for signal_number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILL_SECONDS)):
        for record in left:
            if process := find(record):
                try:
                    process.send_signal(signal_number)
                except psutil.NoSuchProcess:
                    continue
        deadline = time.monotonic() + seconds
        while left := [record for record in left if find(record)]:
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
    if left:
        raise ClusterError(f"could not end {', '.join(f'{record.name} ({record.pid})' for record in left)}")


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log.

    Args:
        log: The file.
        lines: How many lines at most.

    Returns:
        Its last lines; a note if there is no such file.
    """
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
