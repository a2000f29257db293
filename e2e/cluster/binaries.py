"""Builds the missing binaries once and keeps them in the user's cache.

A binary's folder appears in the cache by one rename, under a lock: whoever finds it finds it whole, two runs never
build the same thing twice, and a build that was cut off leaves only a hidden folder that the next one removes.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout
from platformdirs import user_cache_dir
from rich.console import Console

from e2e.cluster.errors import BuildError, ToolchainError
from e2e.cluster.processes import find, start, stop, tail
from e2e.cluster.progress import BuildProgress, Step, build_progress, steps
from e2e.cluster.state import ProcessRecord
from e2e.cluster.tools import Recipe, recipes

_POLL_SECONDS: Final = 0.2
_LOG_TAIL_LINES: Final = 25
_COMPILER_RECORD: Final = "compiler.json"


def cache_folder() -> Path:
    """The user's cache of this project; the binaries are in its `bin` folder."""
    return Path(user_cache_dir("disagg"))


def ensure_binaries(
    wanted: Sequence[Recipe] | None = None, *, cache: Path | None = None, console: Console | None = None
) -> dict[str, Path]:
    """Build what is missing and say where each binary is.

    Args:
        wanted: What is needed; by default every tool of a cluster.
        cache: Cache folder, by default the user's.
        console: Where to show progress, by default standard error.

    Returns:
        Path of each binary by its name.

    Raises:
        ToolchainError: If something must be built and Go is missing or too old.
        BuildError: If a build fails.
    """
    wanted = recipes() if wanted is None else wanted
    folder = (cache or cache_folder()) / "bin"
    found = {recipe.name: folder / recipe.key / recipe.name for recipe in wanted}
    missing = [recipe for recipe in wanted if not found[recipe.name].exists()]
    if missing:
        check_toolchain(missing)
        folder.mkdir(parents=True, exist_ok=True)
        with build_progress(console or Console(stderr=True)) as progress:
            for step in steps(missing):
                _ensure_one(step, folder, progress)
    return found


def check_toolchain(wanted: Iterable[Recipe]) -> None:
    """Refuse early, and with the cure, what Go would refuse late.

    Args:
        wanted: What is to be built.

    Raises:
        ToolchainError: If Go is missing, or older than one of the recipes needs.
    """
    strictest = max(wanted, key=lambda recipe: _version_tuple(recipe.go_version))
    needed = strictest.go_version
    cure = (
        f"Install Go {needed} or newer (https://go.dev/dl) and put its bin folder on PATH; "
        "a Go from 1.21 on can also fetch a newer one by itself if GOTOOLCHAIN=auto."
    )
    go = shutil.which("go")
    if go is None:
        raise ToolchainError(f"Go is needed to build {strictest.name}, and there is no `go` on PATH. {cure}")
    # Run in the module's folder: there Go has already switched to a newer toolchain if it may.
    result = subprocess.run(
        [go, "env", "GOVERSION"], cwd=strictest.module_dir, capture_output=True, text=True, check=False
    )
    version = result.stdout.strip().removeprefix("go")
    if result.returncode != 0 or not version:
        raise ToolchainError(f"{go} does not work for {strictest.name}: {result.stderr.strip()}. {cure}")
    if _version_tuple(version) < _version_tuple(needed):
        raise ToolchainError(f"{go} is Go {version}, but {strictest.name} needs Go {needed}. {cure}")


def _version_tuple(version: str) -> tuple[int, ...]:
    """`1.27rc1` counts as 1.27: what a release candidate lacks is no reason to refuse it."""
    return tuple(map(int, re.findall(r"\d+", version.partition("rc")[0])[:3]))


def _ensure_one(step: Step, folder: Path, progress: BuildProgress) -> None:
    """Build one binary, unless another process has done so by the time the lock is ours."""
    recipe = step.recipe
    started = time.monotonic()
    progress.begin(step)
    lock = FileLock(folder / f".{recipe.key}.lock")
    while True:
        try:
            lock.acquire(timeout=_POLL_SECONDS)
            break
        except Timeout:
            progress.tick(step, time.monotonic() - started, waiting=True)
    try:
        if not (folder / recipe.key / recipe.name).exists():
            _build(step, folder, progress, started)
    finally:
        lock.release()
    progress.end(step, time.monotonic() - started)


def _build(step: Step, folder: Path, progress: BuildProgress, started: float) -> None:
    recipe = step.recipe
    prefix = f".building-{recipe.key}-"
    # With the lock held, such a folder can only be left over from a killed build.
    for left_over in folder.glob(f"{prefix}*"):
        _discard(left_over)
    logs = folder.parent / "logs"
    logs.mkdir(exist_ok=True)
    log = logs / f"build-{recipe.key}.log"
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder, ignore_cleanup_errors=True) as scratch:
        status = _run_compiler(step, Path(scratch), log, progress, started)
        if status != 0:
            end = tail(log, _LOG_TAIL_LINES)
            raise BuildError(
                f"building {step.title} failed with status {status}:\n{end}\nThe full log is {log}"
            )
        (Path(scratch) / recipe.key).rename(folder / recipe.key)


def _run_compiler(step: Step, scratch: Path, log: Path, progress: BuildProgress, started: float) -> int:
    recipe = step.recipe
    output = scratch / recipe.key / recipe.name
    compiler, record = start(
        "go",
        [
            *("go", "build", "-trimpath", "-tags", recipe.tags, "-ldflags", recipe.link_flags),
            *("-o", str(output), recipe.package),
        ],
        log=log,
        cwd=recipe.module_dir,
        # What a killed compiler leaves is in the folder that the next build removes.
        env=os.environ | {"CGO_ENABLED": "1" if recipe.cgo else "0", "GOTMPDIR": str(scratch)},
    )
    try:
        (scratch / _COMPILER_RECORD).write_text(record.model_dump_json())
        while (status := compiler.poll()) is None:
            progress.tick(step, time.monotonic() - started, waiting=False)
            with suppress(subprocess.TimeoutExpired):
                compiler.wait(_POLL_SECONDS)
    except BaseException:
        # The group, so that the compilers that go started end as well.
        with suppress(ProcessLookupError):
            os.killpg(compiler.pid, signal.SIGKILL)
        compiler.wait()
        raise
    return status


def _discard(left_over: Path) -> None:
    """Remove the folder of a killed build, whose compiler may still run and would make the folder again."""
    record = left_over / _COMPILER_RECORD
    if record.exists():
        compiler = ProcessRecord.model_validate_json(record.read_bytes())
        if find(compiler):
            # The group: those that it has started write into the folder, too.
            os.killpg(compiler.pid, signal.SIGKILL)
        stop([compiler], grace=0.0)
    shutil.rmtree(left_over)
