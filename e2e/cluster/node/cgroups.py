"""The cgroups of a cluster's pods: what outlives its namespaces, as folders of the machine's."""

import hashlib
import time
from pathlib import Path
from typing import Final

from e2e.cluster.errors import ClusterError

_MOUNT: Final = Path("/sys/fs/cgroup")
_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


def cgroup_name(root: Path) -> str:
    """Name of the cgroup above all pods of a cluster.

    Args:
        root: The state folder.
    """
    return f"disagg-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"


def make_cgroups(root: Path) -> None:
    """Make the cgroup, in each hierarchy; the kubelet expects it.

    Args:
        root: The state folder.
    """
    for hierarchy in _hierarchies():
        (hierarchy / cgroup_name(root)).mkdir(exist_ok=True)


def remove_cgroups(root: Path) -> None:
    """Remove the cgroup and all below it, whose processes must have ended.

    Args:
        root: The state folder.

    Raises:
        ClusterError: If the kernel keeps one.
    """
    tops = [top for hierarchy in _hierarchies() if (top := hierarchy / cgroup_name(root)).is_dir()]
    deadline = time.monotonic() + _SECONDS
    for top in tops:
        for folder in sorted((top, *(path for path in top.rglob("*") if path.is_dir())), reverse=True):
            # The kernel takes a moment to forget the processes.
            while not _removed(folder):
                if time.monotonic() >= deadline:
                    raise ClusterError(f"could not remove the cgroup {folder}")
                time.sleep(_POLL_SECONDS)


def _hierarchies() -> list[Path]:
    """Where cgroups can be made: one folder with version 2, one for each controller with version 1."""
    if (_MOUNT / "cgroup.controllers").exists():
        return [_MOUNT]
    if not _MOUNT.is_dir():
        return []
    return [path for path in _MOUNT.iterdir() if path.is_dir() and not path.is_symlink()]


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
