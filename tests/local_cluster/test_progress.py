"""What the person who waits for a build reads."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from e2e.cluster.progress import PlainProgress, Step, build_progress, duration, steps
from e2e.cluster.tools import Recipe


def made(name: str, seconds: int) -> Recipe:
    return Recipe(name, name, Path(), "v1.0.0", "1.26", "", name, seconds)


STEPS = steps([made("apiserver", 465), made("kubectl", 46)])


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (45, "45 s"), (99, "99 s"), (465, "8 min")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_steps_know_what_follows() -> None:
    assert [(step.number, step.total, step.seconds_after) for step in STEPS] == [(1, 2, 46), (2, 2, 0)]


def play(step: Step, *, waiting: bool) -> list[str]:
    output = StringIO()
    progress = PlainProgress(Console(file=output))
    progress.begin(step)
    for elapsed in (1, 59, 60, 61, 121):
        progress.tick(step, elapsed, waiting=waiting)
    progress.end(step, 130)
    return output.getvalue().splitlines()


def test_plain_lines_come_at_start_each_minute_and_end() -> None:
    assert play(STEPS[0], waiting=False) == [
        "building apiserver v1.0.0 (1 of 2, 8 min on a fresh machine)",
        "still building apiserver v1.0.0: 60 s so far, at most about 8 min left in all",
        "still building apiserver v1.0.0: 2 min so far, at most about 6 min left in all",
        "built apiserver v1.0.0 in 2 min, 1 left (at most about 46 s)",
    ]


def test_plain_lines_say_whose_build_it_is() -> None:
    lines = play(STEPS[1], waiting=True)
    assert lines[1].startswith("waiting for another process that builds kubectl v1.0.0: 60 s so far")
    assert lines[-1] == "built kubectl v1.0.0 in 2 min"


def test_a_terminal_gets_a_bar_for_each() -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=True, width=120, color_system=None)
    with build_progress(console) as progress:
        for step in STEPS:
            progress.begin(step)
            progress.tick(step, 10, waiting=False)
            progress.end(step, 12)
    final = output.getvalue()
    assert "2/2" in final
    assert "kubectl v1.0.0" in final
    assert "built in 12 s" in final
