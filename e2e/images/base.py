"""The base image: Debian with Python, made by debootstrap, since no image can be pulled.

The public images build on python:3.13-slim; nothing in the Dockerfiles may need more than both have.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from e2e.cluster.errors import CommandError
from e2e.images.buildah import buildah, drafts_folder, image_id
from e2e.lifetime import bound_with_all

_SUITE: Final = "bookworm"
_PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
BASE: Final = f"localhost/disagg/base:{_SUITE}"

# What a package brings for people to read.
_UNUSED: Final = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists")


def ensure_base() -> str:
    """Make the base image unless it is in the store.

    Returns:
        Its reference.

    Raises:
        CommandError: If debootstrap or buildah fails.
    """
    if image_id(BASE) is None:
        with tempfile.TemporaryDirectory(dir=drafts_folder()) as scratch:
            root = Path(scratch) / "root"
            _bootstrap(root)
            (Path(scratch) / "Dockerfile").write_text('FROM scratch\nCOPY root /\nCMD ["python3"]\n')
            buildah("build", f"--tag={BASE}", scratch)
    return BASE


def _bootstrap(root: Path) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", _SUITE, str(root)]
    result = subprocess.run(
        bound_with_all(command), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise CommandError(command, result.returncode, result.stdout[-2000:], result.stderr)
    for folder in _UNUSED:
        shutil.rmtree(root / folder, ignore_errors=True)
