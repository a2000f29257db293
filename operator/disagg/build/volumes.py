"""Volumes of the engine's pod, each with the place where the engine's container has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Volume:
    """A volume and its mount.

    Attributes:
        name: Name of the volume.
        source: Its source, as in a pod's `volumes`, without the name.
        path: Where the container has it.
        read_only: Whether it is mounted read-only.
        sub_path: Folder of the volume that is mounted, or empty for all of it.
    """

    name: str
    source: dict[str, Any]
    path: str
    read_only: bool = False
    sub_path: str = ""

    def mount(self) -> dict[str, Any]:
        """Its item in a container's `volumeMounts`."""
        mount: dict[str, Any] = {"name": self.name, "mountPath": self.path}
        if self.read_only:
            mount["readOnly"] = True
        if self.sub_path:
            mount["subPath"] = self.sub_path
        return mount


def claim(name: str, claim_name: str, path: str, *, read_only: bool = False, sub_path: str = "") -> Volume:
    """A PersistentVolumeClaim that the user has made."""
    source: dict[str, Any] = {"persistentVolumeClaim": {"claimName": claim_name}}
    return Volume(name, source, path, read_only=read_only, sub_path=sub_path)


def empty(name: str, path: str) -> Volume:
    """A folder that lives as long as the pod, and so outlives a crash of the container."""
    return Volume(name, {"emptyDir": {}}, path)


def sources(volumes: Iterable[Volume]) -> list[dict[str, Any]]:
    """A pod's `volumes`: one that is mounted twice is there once."""
    return list({volume.name: {"name": volume.name} | volume.source for volume in volumes}.values())
