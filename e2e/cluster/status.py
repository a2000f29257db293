"""How the processes of a cluster are."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from e2e.cluster.processes import find, payload
from e2e.cluster.state import ProcessRecord


@dataclass(frozen=True)
class ComponentStatus:
    """How one process of a cluster is.

    Attributes:
        name: The component.
        pid: Its process id.
        running: Whether it runs.
        rss: Resident memory in bytes; 0 if it has ended.
        uptime: Seconds since it started; 0 if it has ended.
        log: Its output.
    """

    name: str
    pid: int
    running: bool
    rss: int
    uptime: float
    log: Path


def component_status(record: ProcessRecord, log: Path) -> ComponentStatus:
    """How a process is now.

    Args:
        record: The process.
        log: Its output.
    """
    name, pid = record.name, record.pid
    if process := find(record):
        with suppress(psutil.NoSuchProcess), process.oneshot():
            uptime = time.time() - process.create_time()
            rss = payload(process).memory_info().rss
            return ComponentStatus(name, pid, running=True, rss=rss, uptime=uptime, log=log)
    return ComponentStatus(name, pid, running=False, rss=0, uptime=0.0, log=log)
