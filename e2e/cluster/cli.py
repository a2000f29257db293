"""The command line: `python -m e2e.cluster`."""

import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from e2e.cluster.cluster import REPOSITORY, Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.node.machine import ensure_packages
from e2e.cluster.racks import DEFAULT_RACKS, load_racks
from e2e.cluster.state import Options

app = typer.Typer(
    help="A real Kubernetes control plane on this machine, with simulated GPU nodes. "
    "The first `up` builds everything from source (about a quarter of an hour); from then on it takes seconds.",
    epilog="Example: `up`, then `kubectl get nodes`, then `down`. Several clusters run side by side under "
    "different names.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

# Everything but a command's result goes to standard error.
_console = Console(stderr=True)

_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}

_Name = Annotated[
    str,
    typer.Option(
        "--name",
        envvar="DISAGG_CLUSTER",
        help="Which cluster; its state is in build/cluster/NAME of the repository.",
    ),
]
_State = Annotated[
    Path | None, typer.Option("--state", help="State folder of the cluster, instead of --name.")
]


def main() -> None:
    """Run the command line; a `ClusterError` ends it with its text and status 1."""
    # So that a build or a half-started cluster is cleaned up as after Ctrl-C.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        app(prog_name="python -m e2e.cluster")
    except ClusterError as error:
        _console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


@app.command()
def up(
    name: _Name = "default",
    state: _State = None,
    racks: Annotated[
        Path,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="YAML file that describes the nodes, in the form of e2e/cluster/racks/default.yaml.",
            show_default="4 racks of 4 nodes with 8 GPUs each",
        ),
    ] = DEFAULT_RACKS,
    pod_groups: Annotated[
        bool, typer.Option(help="Turn the PodGroup API and topology-aware scheduling of groups on.")
    ] = True,
    pod_ready_delay: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="How long a pod takes from its binding until it is ready."
        ),
    ] = 2.0,
    audit: Annotated[bool, typer.Option("--audit", help="Write an audit log to the state folder.")] = False,
    real_node: Annotated[
        bool,
        typer.Option(
            "--real-node",
            help="Run a real node, too: kubelet, containerd and DNS, all of the cluster in a network of its own. "
            "Needs Linux and root.",
        ),
    ] = False,
) -> None:
    """Start a cluster, unless it runs already."""
    options = Options(
        racks=load_racks(racks),
        pod_groups=pod_groups,
        pod_ready_delay=pod_ready_delay,
        audit=audit,
        real_node=real_node,
    )
    cluster = _cluster(name, state, options)
    started = time.monotonic()
    if cluster.up():
        nodes = len(options.racks.nodes()) + real_node
        _say(f"up after {time.monotonic() - started:.1f} s: {cluster.server}, {nodes} nodes")
    else:
        differs = cluster.record.options != options
        _say(
            f"runs already: {cluster.server}{', with other options (down first to change them)' if differs else ''}"
        )


@app.command()
def down(name: _Name = "default", state: _State = None) -> None:
    """Stop a cluster and remove its state."""
    _say("down" if _cluster(name, state).down() else "there was no cluster")


@app.command()
def status(name: _Name = "default", state: _State = None) -> None:
    """Show the components of a cluster; ends with status 1 if it does not run."""
    cluster = _cluster(name, state)
    table = Table("component", "pid", "state", "memory", "uptime", box=None)
    table.columns[0].no_wrap = True
    table.add_column("log", overflow="fold")
    for component in cluster.status():
        table.add_row(
            component.name,
            str(component.pid),
            "running" if component.running else "[red]ended",
            f"{component.rss / 2**20:.0f} MiB",
            str(timedelta(seconds=round(component.uptime))),
            os.path.relpath(component.log),
        )
    if table.row_count:
        Console().print(table)
    if not cluster.is_running():
        _say("does not run")
        raise typer.Exit(1)


@app.command(context_settings=_PASS_THROUGH)
def kubectl(context: typer.Context, name: _Name = "default", state: _State = None) -> None:
    """Run kubectl as administrator: kubectl [--name NAME] ARGUMENTS."""
    _replace_by("kubectl", _cluster(name, state), context.args)


@app.command(context_settings=_PASS_THROUGH)
def helm(context: typer.Context, name: _Name = "default", state: _State = None) -> None:
    """Run helm as administrator: helm [--name NAME] ARGUMENTS."""
    _replace_by("helm", _cluster(name, state), context.args)


@app.command(context_settings=_PASS_THROUGH)
def enter(context: typer.Context, name: _Name = "default", state: _State = None) -> None:
    """Run a command where it reaches the API server, with the administrator's kubeconfig: enter curl ARGUMENTS.

    Beside a real node that is the cluster's network, with its pods and Services.
    """
    cluster = _cluster(name, state)
    command = cluster.client_command(*(context.args or [os.environ.get("SHELL", "sh")]))
    os.execvpe(command[0], command, os.environ | cluster.environment())  # noqa: S606


@app.command(name="load-image")
def load_image(
    archive: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="OCI archive.")],
    name: _Name = "default",
    state: _State = None,
) -> None:
    """Put an image on the real node, which can pull none."""
    _cluster(name, state).load_image(archive)


@app.command(name="can-run-containers")
def can_run_containers() -> None:
    """Say why a real node can't run on this machine and end with status 1, or install what it needs."""
    ensure_packages(_console)


@app.command()
def kubeconfig(name: _Name = "default", state: _State = None) -> None:
    """Print the path of the administrator's kubeconfig."""
    typer.echo(_cluster(name, state).kubeconfig)


def _cluster(name: str, state: Path | None, options: Options | None = None) -> Cluster:
    if state is None and not re.fullmatch(r"\w[\w.-]*", name):
        raise typer.BadParameter(
            f"{name!r} is not a name of letters, digits, `.`, `_` and `-`", param_hint="--name"
        )
    return Cluster(state or REPOSITORY / "build" / "cluster" / name, options, console=_console)


def _replace_by(tool: str, cluster: Cluster, arguments: Sequence[str]) -> NoReturn:
    command = cluster.client_command(str(cluster.binary(tool)), *arguments)
    os.execvpe(command[0], command, os.environ | cluster.environment())  # noqa: S606


def _say(text: str) -> None:
    _console.print(text, markup=False, highlight=False, soft_wrap=True)


def _exit_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
