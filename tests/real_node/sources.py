"""The operator of the commit before, and one that renders pods otherwise, as folders that images are built from."""

import shutil
import subprocess
from pathlib import Path

from e2e.cluster.cluster import REPOSITORY

SHIPPED = (".dockerignore", "LICENSE", "README.md", "charts", "images", "operator", "pyproject.toml")
"""What image and chart are made from."""
VARIABLE = "RENDERED_BY"
"""What each container has in its environment by the changed rendering."""

_RENDERER = "operator/disagg/build/pod_template.py"
_CHANGED_RENDERING = f"""

RENDER_REVISION += 1
_pod_template_before = _pod_template


def _pod_template(resource, workload):
    template = _pod_template_before(resource, workload)
    for container in template["spec"]["containers"]:
        container.setdefault("env", []).append({{"name": "{VARIABLE}", "value": "the next release"}})
    return template
"""


class NoCommitBeforeError(Exception):
    """There is none in this checkout."""


def commit_before(folder: Path) -> Path:
    """What is shipped as the commit before has it: HEAD where the checkout has changes, else the one before HEAD.

    Raises:
        NoCommitBeforeError: This is no checkout of git, or one without history.
    """
    changed = _git("status", "--porcelain", "--", *SHIPPED).strip()
    archive = _git("archive", "--format=tar", "HEAD" if changed else "HEAD~1", "--", *SHIPPED)
    subprocess.run(["tar", "--extract", f"--directory={folder}"], input=archive, check=True)
    return folder


def with_another_rendering(folder: Path) -> Path:
    """What is shipped as it is here, but each container gets a variable more, by a higher revision of the renderer."""
    for name in SHIPPED:
        if (source := REPOSITORY / name).is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(source, folder / name)
    with (folder / _RENDERER).open("a") as renderer:
        renderer.write(_CHANGED_RENDERING)
    return folder


def _git(*arguments: str) -> bytes:
    # Tests of a real node are root's, and the checkout may be another's.
    command = ["git", "-c", f"safe.directory={REPOSITORY}", *arguments]
    try:
        result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise NoCommitBeforeError("there is no git on this machine") from error
    if result.returncode != 0:
        raise NoCommitBeforeError(f"there is no commit before this one: {result.stderr.decode().strip()}")
    return result.stdout
