"""Commands as somebody types them in the root of the repository."""

import os
import shlex
import subprocess

from e2e.cluster.cluster import REPOSITORY


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command, however it ends."""
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | {"COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def shell(command: str) -> str:
    """What a line of a shell prints, which must not fail."""
    done = run(*shlex.split(command))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
