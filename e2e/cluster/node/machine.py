"""What a real node needs of the machine: Linux, root, and programs that Debian has packages for."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from e2e.cluster.errors import ClusterError, CommandError

# What is looked for, a program or a file, and Debian's package of it.
_NEEDED: Final = (
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("conntrack", "conntrack"),
    ("buildah", "buildah"),
    ("debootstrap", "debootstrap"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("gcc", "gcc"),
    ("pkg-config", "pkg-config"),
    ("/usr/include/seccomp.h", "libseccomp-dev"),
    ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
)


def why_not() -> str | None:
    """Why a real node can't run on this machine; None if it can, if need be once packages are installed."""
    if sys.platform != "linux":
        return "a real node needs Linux"
    if os.geteuid() != 0:
        return "a real node needs root: it makes namespaces, mounts and cgroups"
    packages = missing_packages()
    if packages and not _has_apt():
        return f"a real node needs what Debian calls {', '.join(packages)}: install that"
    return None


def ensure_packages(console: Console | None = None) -> None:
    """Install what is missing on Debian; elsewhere name it.

    Args:
        console: Where to say what is installed, by default standard error.

    Raises:
        ClusterError: If a real node can't run here, or something is missing and there is no apt-get.
        CommandError: If apt-get fails.
    """
    if reason := why_not():
        raise ClusterError(reason)
    packages = missing_packages()
    if not packages:
        return
    (console or Console(stderr=True)).print(f"installing {', '.join(packages)}", highlight=False)
    _apt_get("update", "-qq")
    _apt_get("install", "--yes", "-qq", "--no-install-recommends", *packages)


def missing_packages() -> list[str]:
    """Debian's packages of what this machine lacks."""
    return sorted({package for wanted, package in _NEEDED if not _is_there(wanted)})


def _has_apt() -> bool:
    return Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def _is_there(wanted: str) -> bool:
    if wanted.startswith("/"):
        return Path(wanted).exists()
    return shutil.which(wanted) is not None


def _apt_get(*arguments: str) -> None:
    # Another may run, even one that a killed run of this program has left: to kill it would harm the machine.
    command: Sequence[str] = ("apt-get", "--option=DPkg::Lock::Timeout=600", *arguments)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    result = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise CommandError(command, result.returncode, result.stdout, result.stderr)
