"""Tells the person who waits how far the builds are: a live bar on a terminal, plain lines elsewhere.

Stands between `binaries`, which reports each step, and the console. All output goes to the console that is given
(standard error for the command line), so that a command's own output stays clean.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from e2e.cluster.tools import Recipe

HEARTBEAT_SECONDS: Final = 60.0

# A bar that is full while the build still runs looks hung.
_NEARLY_FULL: Final = 0.98


@dataclass(frozen=True)
class Step:
    """One binary among those to build.

    Attributes:
        recipe: What is built.
        number: Position among the missing binaries, from 1.
        total: How many binaries are missing.
        seconds_after: Expected seconds, from an empty Go cache, of the steps that follow.
    """

    recipe: Recipe
    number: int
    total: int
    seconds_after: int

    @property
    def title(self) -> str:
        """Program and version."""
        return f"{self.recipe.name} {self.recipe.version}"


class BuildProgress(Protocol):
    """Receives what happens while binaries are built."""

    def begin(self, step: Step) -> None:
        """A step starts."""

    def tick(self, step: Step, elapsed: float, *, waiting: bool) -> None:
        """A step goes on.

        Args:
            step: The step.
            elapsed: Seconds since it began.
            waiting: Whether another process builds it, and this one waits for that.
        """

    def end(self, step: Step, elapsed: float) -> None:
        """A step is done, after `elapsed` seconds."""


def steps(missing: Sequence[Recipe]) -> tuple[Step, ...]:
    """Number the builds and say what each leaves to do.

    Args:
        missing: The binaries to build, in order.

    Returns:
        One step for each of them.
    """
    return tuple(
        Step(recipe, number, len(missing), sum(later.cold_seconds for later in missing[number:]))
        for number, recipe in enumerate(missing, 1)
    )


def duration(seconds: float) -> str:
    """A duration for reading, such as `45 s` or `8 min`.

    Args:
        seconds: The duration.

    Returns:
        Seconds below 100, minutes from there on.
    """
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"  # noqa: PLR2004


class PlainProgress:
    """Lines for logs: the start, a heartbeat, the end of each step."""

    def __init__(self, console: Console, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._console = console
        self._heartbeat = heartbeat
        self._next_line = heartbeat

    def begin(self, step: Step) -> None:
        """Say what is built and how long that may take."""
        self._next_line = self._heartbeat
        expected = duration(step.recipe.cold_seconds)
        self._say(f"building {step.title} ({step.number} of {step.total}, {expected} on a fresh machine)")

    def tick(self, step: Step, elapsed: float, *, waiting: bool) -> None:
        """Say now and then that it still runs."""
        if elapsed < self._next_line:
            return
        self._next_line += self._heartbeat
        doing = "waiting for another process that builds" if waiting else "still building"
        left = duration(max(0.0, step.recipe.cold_seconds - elapsed) + step.seconds_after)
        self._say(f"{doing} {step.title}: {duration(elapsed)} so far, at most about {left} left in all")

    def end(self, step: Step, elapsed: float) -> None:
        """Say how long it took and what is left."""
        left = step.total - step.number
        rest = f", {left} left (at most about {duration(step.seconds_after)})" if left else ""
        self._say(f"built {step.title} in {duration(elapsed)}{rest}")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class TerminalProgress:
    """One live bar for each binary, filled by its expected duration."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = TaskID(0)

    def begin(self, step: Step) -> None:
        """Add the bar."""
        self._task = self._progress.add_task(
            step.title, total=step.recipe.cold_seconds, place=f"{step.number}/{step.total}", note=""
        )
        self.tick(step, 0.0, waiting=False)

    def tick(self, step: Step, elapsed: float, *, waiting: bool) -> None:
        """Fill the bar."""
        left = duration(max(0.0, step.recipe.cold_seconds - elapsed) + step.seconds_after)
        note = "another process builds it" if waiting else f"at most about {left} left in all"
        completed = min(elapsed, step.recipe.cold_seconds * _NEARLY_FULL)
        self._progress.update(self._task, completed=completed, note=note)

    def end(self, step: Step, elapsed: float) -> None:
        """Complete the bar."""
        note = f"built in {duration(elapsed)}"
        self._progress.update(self._task, completed=step.recipe.cold_seconds, note=note)
        self._progress.stop_task(self._task)


@contextmanager
def build_progress(console: Console) -> Iterator[BuildProgress]:
    """The progress display that suits a console.

    Args:
        console: Where to show it.

    Yields:
        Live bars if the console is a terminal, else plain lines.
    """
    if not console.is_terminal:
        yield PlainProgress(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[place]}"),
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield TerminalProgress(progress)
