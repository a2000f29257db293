"""The file system of a container, as commands that make it in a mount namespace of its own.

The machine's root stands for the image, under an overlay that takes all changes: what the engine writes outside of its volumes is
found in `Folders.written` afterwards. Home folder and /tmp are empty, as an image's are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.real_vllm.container import HOME, Container, Mount
from e2e.real_vllm.installation import Installation

_STICKY: Final = 0o1777


@dataclass(frozen=True)
class Folders:
    """Folders of a container on this machine.

    Attributes:
        base: The folder of all of them; on a file system that overlayfs can write to.
    """

    base: Path

    @property
    def root(self) -> Path:
        """Where the container's root is mounted, in its own mount namespace only."""
        return self.base / "root"

    @property
    def upper(self) -> Path:
        """What differs from the machine's root."""
        return self.base / "upper"

    @property
    def work(self) -> Path:
        """What overlayfs needs beside it."""
        return self.base / "work"

    @property
    def home(self) -> Path:
        """The container's home folder."""
        return self.base / "home"

    @property
    def temporary(self) -> Path:
        """The container's /tmp."""
        return self.base / "tmp"

    @property
    def volumes(self) -> Path:
        """One folder for each `emptyDir`."""
        return self.base / "volumes"

    def make(self, container: Container, address: str) -> None:
        """Make them, with what a kubelet writes.

        Args:
            container: The container.
            address: Address of its pod.
        """
        for folder in (self.root, self.upper / "etc", self.work, self.home, self.temporary, self.volumes):
            folder.mkdir(parents=True)
        self.temporary.chmod(_STICKY)
        hosts = f"127.0.0.1\tlocalhost\n{address}\t{container.name}\n"
        (self.upper / "etc" / "hosts").write_text(hosts)

    def written(self) -> list[str]:
        """What was written outside of volumes and /tmp, as paths in the container."""
        found = [f"/{path.relative_to(self.upper)}" for path in _files(self.upper)]
        found += [f"{HOME}/{path.relative_to(self.home)}" for path in _files(self.home)]
        return sorted(set(found) - {"/etc/hosts"})


def steps(
    folders: Folders, container: Container, vllm: Installation, claims: Mapping[str, Path]
) -> list[list[str]]:
    """Commands that make a container's root.

    Args:
        folders: Where.
        container: The container.
        vllm: What its image has.
        claims: Name of a PersistentVolumeClaim -> the folder that stands for it.

    Raises:
        ValueError: If there is nothing that stands for one of its volumes.
    """
    root = folders.root
    layers = f"lowerdir=/,upperdir={folders.upper},workdir={folders.work}"
    return [
        ["mount", "-t", "overlay", "overlay", "-o", layers, str(root)],
        *_bind(folders.home, root / HOME.lstrip("/")),
        *_bind(folders.temporary, root / "tmp"),
        *_bind(vllm.folder, root / vllm.folder.relative_to("/"), read_only=True),
        # The environment's Python is a link into it.
        *_bind(Path(sys.base_prefix), root / Path(sys.base_prefix).relative_to("/"), read_only=True),
        ["mount", "--rbind", "/dev", str(root / "dev")],
        ["mount", "-t", "proc", "proc", str(root / "proc")],
        # A new one shows the sandbox's network devices, and UCX looks for its own there.
        ["mount", "-t", "sysfs", "sysfs", str(root / "sys")],
        *(
            step
            for number, mount in enumerate(container.mounts)
            for step in _volume(mount, folders, claims, number)
        ),
    ]


def _volume(mount: Mount, folders: Folders, claims: Mapping[str, Path], number: int) -> Iterator[list[str]]:
    target = folders.root / mount.path.relative_to("/")
    match mount.source:
        case {"emptyDir": {"medium": "Memory"}}:
            yield ["mkdir", "-p", str(target)]
            yield ["mount", "-t", "tmpfs", "tmpfs", str(target)]
        case {"emptyDir": _}:
            folder = folders.volumes / str(number)
            yield ["mkdir", "-p", str(folder)]
            yield from _bind(folder, target)
        case {"persistentVolumeClaim": {"claimName": name}} if name in claims:
            yield from _bind(claims[name] / mount.sub_path, target, read_only=mount.read_only)
        case _:
            raise ValueError(f"{mount.path}: there is nothing here for {dict(mount.source)}")


def _bind(source: Path, target: Path, *, read_only: bool = False) -> Iterator[list[str]]:
    yield ["mkdir", "-p", str(target)]
    yield ["mount", "--bind", *(["-o", "ro"] if read_only else []), str(source), str(target)]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if not path.is_dir())
