"""Where pip finds packages on this machine, told to the pip in a build.

A machine behind a mirror or a proxy has an index, or an authority of certificates, of its own. The files are mounted
while a build runs and are not in its image.
"""

import configparser
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

_TAKEN: Final = ("cert", "index-url", "extra-index-url", "proxy", "retries", "timeout", "trusted-host")


def pip_volumes(folder: Path) -> list[str]:
    """Options of `buildah build` that give its pip this machine's settings.

    Args:
        folder: Where the file that is mounted may be written; it must last as long as the build.
    """
    settings = _settings()
    file = folder / "pip.conf"
    parser = configparser.RawConfigParser()
    parser["global"] = settings
    with file.open("w") as sink:
        parser.write(sink)
    volumes = [f"--volume={file}:/etc/pip.conf:ro"]
    if authority := settings.get("cert"):
        volumes.append(f"--volume={authority}:{authority}:ro")
    return volumes


def _settings() -> dict[str, str]:
    """What pip's files and variables say; variables come last and win."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    settings = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        if key in _TAKEN:
            settings[key] = " ".join(shlex.split(value))
    return settings
