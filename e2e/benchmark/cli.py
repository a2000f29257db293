"""The command line: `python -m e2e.benchmark`."""

import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, NoReturn, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from e2e.benchmark.placement import FILLERS, Placement, PlacementResult
from e2e.benchmark.placement_decisions import decision_costs
from e2e.benchmark.placement_methods import Method, pools
from e2e.benchmark.placement_trials import NODE, Shape, draw
from e2e.benchmark.run import Result, measure
from e2e.cluster import Cluster, ClusterError, Options, load_racks
from e2e.cluster.cluster import REPOSITORY
from e2e.operator_process import OperatorProcess, install_chart

OUTPUT: Final = REPOSITORY / "build" / "benchmarks" / "operator.json"
PLACEMENT_OUTPUT: Final = OUTPUT.with_name("placement.json")
STATE: Final = REPOSITORY / "build" / "cluster" / "benchmark"
RACKS: Final = Path(__file__).parent / "racks.yaml"

METHODS: Final = tuple(method for method in Method if method is not Method.POD_GROUP_BASIC)
SIZES: Final = (500, 5000, 20000)

_console = Console(stderr=True)

app = typer.Typer(
    help="Measure the operator on a local cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; a `ClusterError` ends it with its text and status 1."""
    # So that the cluster goes down as after Ctrl-C.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        app()
    except ClusterError as error:
        _console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


@app.command("operator")
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
    _tell(output, result.model_dump_json(indent=2), table(result))


@app.command("placement")
def run_placement(  # noqa: PLR0913 - one parameter an option
    *,
    trials: Annotated[
        int, typer.Option(min=1, help="Random clusters in which a rack can hold the group.")
    ] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the clusters and groups.")] = 0,
    methods: Annotated[
        list[Method] | None, typer.Option(help="How groups are placed; may be repeated.")
    ] = None,
    racks: Annotated[int, typer.Option(min=1, help="Racks of each cluster.")] = Shape().racks,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of each rack.")] = Shape().nodes,
    at_once: Annotated[int, typer.Option(min=1, help="Clusters that live side by side in one.")] = 20,
    sizes: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Nodes for which the CPU of a decision is measured; may be repeated."),
    ] = None,
    state: Annotated[Path, typer.Option(help="State folder of the cluster, removed at the end.")] = STATE,
    output: Annotated[Path, typer.Option(help="File for the result, JSON.")] = PLACEMENT_OUTPUT,
) -> None:
    """Measure how often a group ends whole and in one rack, and what a decision about it costs."""
    methods, sizes = methods or list(METHODS), sizes or list(SIZES)
    shape, number = Shape(racks, nodes), min(at_once, trials)
    drawn = [draw(seed, trial, shape) for trial in range(trials)]
    options = Options(racks=pools(number, racks, nodes, NODE), pod_ready_delay=0)
    with Cluster(state, options, console=_console) as cluster, _Shown() as shown:
        install_chart(cluster)
        for namespace in (FILLERS, *(method.namespace for method in methods)):
            cluster.kubectl("create", "namespace", namespace)
        placement = Placement(cluster, number)
        with ExitStack() as operators:
            for operator in _operators(cluster, methods):
                operators.enter_context(operator)
            placement.run(drawn, methods, shown)
    decisions = {}
    with _Shown() as shown:
        for done, size in enumerate(sizes):
            shown("decisions", done, len(sizes))
            decisions[str(size)] = decision_costs(size)
        shown("decisions", len(sizes), len(sizes))
    found = placement.results()
    result = PlacementResult(
        seed=seed,
        trials=trials,
        racks=racks,
        nodes_per_rack=nodes,
        packed_percent={name: round(100 * one.packed / one.groups, 1) for name, one in found.items()},
        whole_percent={name: round(100 * one.whole / one.groups, 1) for name, one in found.items()},
        racks_average={name: one.racks_average for name, one in found.items()},
        methods=found,
        decision_cpu_ms={size: costs["cpu_ms_median"] for size, costs in decisions.items()},
        decisions=decisions,
        misses=placement.misses,
    )
    _tell(output, result.model_dump_json(indent=2), placement_table(result), decision_table(result))


def _operators(cluster: Cluster, methods: list[Method]) -> list[OperatorProcess]:
    """The operators that place the groups of `methods`: one that uses PodGroups, one that does not."""
    settings = {
        "on": [Method.OURS, Method.OURS_REQUIRED],
        "off": [Method.OURS_REQUIRED_AFFINITY],
    }
    return [
        OperatorProcess(
            cluster,
            name=f"operator-pod-group-{mode}",
            args=[
                "--log-level=warning",
                f"--pod-group={mode}",
                *(f"--namespace={method.namespace}" for method in served),
            ],
        )
        for mode, placed in settings.items()
        if (served := [method for method in placed if method in methods])
    ]


def _tell(output: Path, result: str, *tables: Table) -> None:
    """Write a result to its file, and show it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(result + "\n")
    for shown in tables:
        Console().print(shown)


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


def placement_table(result: PlacementResult) -> Table:
    """Where groups ended, for people.

    Args:
        result: The result.
    """
    shown = Table(
        title=f"{result.trials} half-full clusters of {result.racks} racks, {result.nodes_per_rack} nodes each;"
        " in each of them one rack could hold the group",
        title_justify="left",
    )
    shown.add_column("method")
    for column in ("packed", "whole", "racks", "seconds to bound"):
        shown.add_column(column, justify="right")
    for name, one in result.methods.items():
        packed, seconds = result.packed_percent[name], one.median_seconds_to_bound
        style = "" if not Method(name).is_ours else "green" if one.packed == one.groups else "red"
        shown.add_row(
            name,
            f"{packed:g} %",
            f"{result.whole_percent[name]:g} %",
            f"{one.racks_average:g}",
            "" if seconds is None else f"{seconds:g}",
            style=style,
        )
    return shown


def decision_table(result: PlacementResult) -> Table:
    """What decisions cost, for people.

    Args:
        result: The result.
    """
    shown = Table(title="a decision, in a cluster with ten pods on each node", title_justify="left")
    columns = {
        "CPU, median": ("cpu_ms_median", "ms"),
        "CPU, p95": ("cpu_ms_p95", "ms"),
        "a node": ("put_node_us", "µs"),
        "a pod": ("put_pod_us", "µs"),
        "memory": ("memory_mb", "MB"),
    }
    for column in ("nodes", *columns):
        shown.add_column(column, justify="right")
    for size, costs in result.decisions.items():
        shown.add_row(f"{int(size):,}", *(f"{costs[key]:g} {unit}" for key, unit in columns.values()))
    return shown


class _Shown:
    """Shows how far it is: bars on a terminal, a line now and then elsewhere."""

    _SECONDS_BETWEEN_LINES = 10.0

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description:22}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=_console,
            disable=not _console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._goal = ""
        self._told = 0.0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, goal: str, reached: int, total: int) -> None:
        if goal not in self._tasks:
            self._tasks[goal] = self._bars.add_task(goal, total=total)
        self._bars.update(self._tasks[goal], completed=reached)
        due = time.monotonic() - self._told > self._SECONDS_BETWEEN_LINES
        if not _console.is_terminal and (goal != self._goal or due or reached == total):
            _console.print(f"{goal}: {reached} of {total}", highlight=False)
            self._told = time.monotonic()
        self._goal = goal


def _exit_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
