"""Builds, on a tiny Go module: once, whole or not at all, and with errors that help."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.cluster import REPOSITORY
from e2e.cluster.errors import BuildError, ToolchainError
from e2e.cluster.tools import Recipe, recipe
from e2e.cluster.waiting import wait_until

# Stands before the real Go on PATH: counts builds, and can hold one up.
GO_WRAPPER = """\
#!/bin/sh
if [ "$1" = build ]; then
  echo $$ >> "{calls}"
  mkdir "$GOTMPDIR/go-build"
  (while [ -e "{gate}" ]; do date > "$GOTMPDIR/go-build/object"; done) &
  while [ -e "{gate}" ]; do sleep 0.05; done
fi
exec "{go}" "$@"
"""

BUILD_IT = """\
import sys
from pathlib import Path
from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.tools import recipe
ensure_binaries([recipe("hello", "example.test/hello", Path(sys.argv[1]))], cache=Path(sys.argv[2]))
"""


class Workshop:
    """A tiny module, an empty cache and a Go that is watched."""

    def __init__(self, root: Path, go: str) -> None:
        self.module = root / "module"
        self.cache = root / "cache"
        self.gate = root / "gate"
        self.path = f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self._calls = root / "calls"
        self.module.mkdir()
        (self.module / "go.mod").write_text("module example.test/hello\n\ngo 1.21\n")
        self.source("println(1)")
        wrapper = root / "bin" / "go"
        wrapper.parent.mkdir()
        wrapper.write_text(GO_WRAPPER.format(calls=self._calls, gate=self.gate, go=go))
        wrapper.chmod(0o755)

    def source(self, statement: str) -> None:
        (self.module / "main.go").write_text(f"package main\n\nfunc main() {{ {statement} }}\n")

    @property
    def recipe(self) -> Recipe:
        return recipe("hello", "example.test/hello", self.module)

    def builds(self) -> list[int]:
        """Process id of each build that was started."""
        return [int(line) for line in self._calls.read_text().split()] if self._calls.exists() else []

    def visible(self) -> list[str]:
        """What is in the cache, but for what is hidden."""
        return [path.name for path in (self.cache / "bin").iterdir() if not path.name.startswith(".")]

    def scratch(self) -> list[Path]:
        return list((self.cache / "bin").glob(".building-*"))

    def build_elsewhere(self) -> subprocess.Popen[bytes]:
        """Build in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", BUILD_IT, self.module, self.cache],
            cwd=REPOSITORY,
            env=os.environ | {"PATH": self.path},
            stderr=subprocess.DEVNULL,
        )


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no Go")
    made = Workshop(tmp_path, go)
    monkeypatch.setenv("PATH", made.path)
    yield made
    made.gate.unlink(missing_ok=True)


def test_builds_what_is_missing_and_only_that(workshop: Workshop) -> None:
    for _ in range(2):
        found = ensure_binaries([workshop.recipe], cache=workshop.cache, console=Console(file=StringIO()))
        assert subprocess.run([found["hello"]], capture_output=True, check=True).stderr == b"1\n"
    assert len(workshop.builds()) == 1
    assert workshop.visible() == [workshop.recipe.key]


def test_two_at_once_build_once(workshop: Workshop) -> None:
    workshop.gate.touch()
    with workshop.build_elsewhere() as first, workshop.build_elsewhere() as second:
        wait_until("a build runs", workshop.builds)
        workshop.gate.unlink()
        assert (first.wait(), second.wait()) == (0, 0)
    assert len(workshop.builds()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing_half_done(workshop: Workshop, number: signal.Signals) -> None:
    workshop.gate.touch()
    with workshop.build_elsewhere() as builder:
        wait_until("a build runs", workshop.builds)
        builder.send_signal(number)
        assert builder.wait() != 0
    assert workshop.visible() == []
    if number == signal.SIGINT:
        assert workshop.scratch() == []
        assert not psutil.pid_exists(workshop.builds()[0])

    # What is left of the first, which still writes, hinders nothing.
    with workshop.build_elsewhere() as second:
        wait_until("another build runs", lambda: len(workshop.builds()) == 2)
        assert len(workshop.scratch()) == 1
        workshop.gate.unlink()
        assert second.wait() == 0
    assert workshop.visible() == [workshop.recipe.key]
    assert workshop.scratch() == []


def test_a_failed_build_shows_why_and_where_the_log_is(workshop: Workshop) -> None:
    workshop.source("undefinedThing()")
    with pytest.raises(BuildError, match="undefined: undefinedThing") as caught:
        ensure_binaries([workshop.recipe], cache=workshop.cache, console=Console(file=StringIO()))
    log = Path(str(caught.value).rpartition("The full log is ")[2])
    assert "undefinedThing" in log.read_text()
    assert workshop.visible() == []
    assert workshop.scratch() == []


def test_a_missing_go_is_named_with_the_cure(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError, match=r"no `go` on PATH. Install Go 1\.21"):
        ensure_binaries([workshop.recipe], cache=workshop.cache)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo go1.19.5", r"is Go 1\.19\.5, but hello needs Go 1\.21\. Install"),
        ("echo 'requires go >= 1.21' >&2; exit 1", r"does not work for hello: requires go >= 1\.21"),
    ],
)
def test_an_old_go_is_named_with_the_cure(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    go = tmp_path / "old" / "go"
    go.parent.mkdir()
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}{workshop.path}")
    with pytest.raises(ToolchainError, match=message):
        ensure_binaries([workshop.recipe], cache=workshop.cache)
