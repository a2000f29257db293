"""Runs buildah with a store of this project's own, in the user's cache."""

import json
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from e2e.cluster.binaries import cache_folder
from e2e.cluster.errors import CommandError
from e2e.lifetime import bound_with_all

# It works wherever a process may be root, for it needs no namespaces and no runtime.
_ISOLATION: Final = "chroot"

# The first copies nothing; the second works on file systems, too, that can't be laid over one another.
_DRIVERS: Final = ("overlay", "vfs")


def images_folder() -> Path:
    """Where layers, base and finished images are kept."""
    return cache_folder() / "images"


def drafts_folder() -> Path:
    """Where builds work: what is in it while none runs is left from one that was killed."""
    return images_folder() / "drafts"


def buildah(*arguments: str) -> str:
    """Run buildah.

    Args:
        arguments: Its arguments.

    Returns:
        Its standard output.

    Raises:
        CommandError: If it fails.
    """
    result = _run(_driver(), arguments)
    if result.returncode != 0:
        raise CommandError(("buildah", *arguments), result.returncode, result.stdout, result.stderr)
    return result.stdout


def image_id(ref: str) -> str | None:
    """The id of an image in the store.

    Args:
        ref: Its reference.

    Returns:
        The id, or None if there is no such image.
    """
    try:
        return buildah("inspect", "--type=image", "--format={{.FromImageID}}", ref).strip()
    except CommandError:
        return None


def image_sizes() -> dict[str, int]:
    """Size in bytes of each image in the store, by id; layers that images share count for each."""
    listing = buildah("images", "--all", "--no-trunc", "--json")
    images: list[dict[str, Any]] = json.loads(listing or "null") or []
    return {image["id"].removeprefix("sha256:"): _bytes(image["size"]) for image in images}


@cache
def _driver() -> str:
    """The first driver that works."""
    return next((driver for driver in _DRIVERS if _run(driver, ["info"]).returncode == 0), _DRIVERS[-1])


def _run(driver: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    store = images_folder() / driver
    options = (f"--root={store}", f"--runroot={store}-run", f"--storage-driver={driver}")
    return subprocess.run(
        bound_with_all(["buildah", *options, *arguments]),
        env=os.environ | {"BUILDAH_ISOLATION": _ISOLATION, "TMPDIR": str(drafts_folder())},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _bytes(size: str) -> int:
    """Buildah speaks for people: `276 MB`."""
    number, unit = size.split()
    return round(float(number) * {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}[unit.upper()])
