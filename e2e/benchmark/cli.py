"""The command line: `python -m e2e.benchmark`."""

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, NoReturn, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from e2e.benchmark.run import Result, measure
from e2e.cluster import Cluster, ClusterError, Options, load_racks
from e2e.cluster.cluster import REPOSITORY
from e2e.operator_process import OperatorProcess, install_chart

OUTPUT: Final = REPOSITORY / "build" / "benchmarks" / "operator.json"
STATE: Final = REPOSITORY / "build" / "cluster" / "benchmark"
RACKS: Final = Path(__file__).parent / "racks.yaml"

_console = Console(stderr=True)


def main() -> None:
    """Run the command line; a `ClusterError` ends it with its text and status 1."""
    # So that the cluster goes down as after Ctrl-C.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        typer.run(run)
    except ClusterError as error:
        _console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


def run(  # noqa: PLR0913 - one parameter an option
    *,
    resources: Annotated[int, typer.Option(min=1, help="How many resources to make at once.")] = 1000,
    replicas: Annotated[
        int,
        typer.Option(
            min=0, help="Pods of each role. With 0 the measure is of the operator and not of starting pods."
        ),
    ] = 0,
    idle_seconds: Annotated[
        float, typer.Option(min=1, help="How long to measure when nothing happens any more.")
    ] = 60.0,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that it may take to settle.")] = 1800.0,
    state: Annotated[Path, typer.Option(help="State folder of the cluster, removed at the end.")] = STATE,
    output: Annotated[Path, typer.Option(help="File for the result, JSON.")] = OUTPUT,
) -> None:
    """Measure the operator: time, CPU, memory and requests for many resources made at once."""
    options = Options(racks=load_racks(RACKS), audit=True, pod_ready_delay=0)
    with Cluster(state, options, console=_console) as cluster:
        install_chart(cluster)
        with OperatorProcess(cluster, args=["--log-level=warning"]) as operator, _Shown() as shown:
            result = measure(
                cluster,
                operator,
                resources=resources,
                replicas=replicas,
                idle_seconds=idle_seconds,
                timeout=timeout,
                progress=shown,
            )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(result.model_dump_json(indent=2) + "\n")
    Console().print(table(result))


def table(result: Result) -> Table:
    """The result, for people: what was aimed at, and what it is.

    Args:
        result: The result.
    """
    rows = (
        ("time until every child exists", result.seconds_to_converge, "s", None),
        ("time until all are ready", result.seconds_to_settle, "s", None),
        ("CPU for each resource", result.cpu_ms_per_resource, "ms", 10),
        ("  of it until every child exists", result.cpu_ms_per_resource_to_converge, "ms", None),
        ("memory", result.rss_mb, "MB", 150),
        ("idle CPU", result.idle_cpu_percent, "% of a core", 1),
        ("writes for each resource", result.writes_per_resource, "", result.children_per_resource + 2),
        ("status updates for each resource", result.status_updates_per_resource, "", None),
        ("dry runs for each resource", result.dry_runs_per_resource, "", None),
        ("reads for each resource", result.reads_per_resource, "", None),
        ("requests that failed", result.failed_requests, "", 0),
        ("writes while idle", result.idle_writes, "", 0),
    )
    shown = Table(
        title=f"{result.resources} resources at once, {result.children_per_resource} children and "
        f"{result.pods_per_resource} pods each",
        title_justify="left",
    )
    shown.add_column("measure")
    for column in ("value", "aim"):
        shown.add_column(column, justify="right")
    for name, value, unit, aim in rows:
        style = "" if aim is None else "green" if value <= aim else "red"
        shown.add_row(name, f"{value:g} {unit}".strip(), "" if aim is None else f"≤ {aim:g}", style=style)
    return shown


class _Shown:
    """Shows how far it is: bars on a terminal, a line now and then elsewhere."""

    _SECONDS_BETWEEN_LINES = 10.0

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description:16}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=_console,
            disable=not _console.is_terminal,
        )
        self._goal = ""
        self._told = 0.0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, goal: str, reached: int, total: int) -> None:
        if goal != self._goal:
            self._task = self._bars.add_task(goal, total=total)
        self._bars.update(self._task, completed=reached)
        due = time.monotonic() - self._told > self._SECONDS_BETWEEN_LINES
        if not _console.is_terminal and (goal != self._goal or due or reached == total):
            _console.print(f"{goal}: {reached} of {total}", highlight=False)
            self._told = time.monotonic()
        self._goal = goal


def _exit_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
