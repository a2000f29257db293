"""The command line: `python -m e2e.demo`."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.rule import Rule

from e2e.cluster import Cluster, ClusterError, Options
from e2e.cluster.cluster import REPOSITORY
from e2e.demo.picture import svg
from e2e.demo.pods import Pods
from e2e.demo.story import POD_READY_DELAY, Story, commands, python

app = typer.Typer(
    help="Watch a 70B model come up on four simulated racks of GPU nodes, made by the real operator on a real control "
    "plane. Everything stays up afterwards; `down` stops it.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_Name = Annotated[
    str, typer.Option("--name", help="Name of the cluster; its state is in build/cluster/NAME.")
]
_State = Annotated[Path | None, typer.Option("--state", help="State folder, instead of --name.")]


def main() -> None:
    """Run the command line; a `ClusterError` ends it with its text and status 1."""
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        app(prog_name="python -m e2e.demo")
    except ClusterError as error:
        Console(stderr=True).print(
            f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(1)


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    name: _Name = "demo",
    state: _State = None,
    picture: Annotated[
        Path | None, typer.Option("--svg", help="Also save the last picture to this file.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long the model may take to become ready.")
    ] = 120.0,
) -> None:
    """Play the demo."""
    if context.invoked_subcommand:
        return
    console = Console()
    story = Story(_cluster(name, state), console)
    seen = story.play(seconds=timeout)
    if picture:
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_text(svg(seen, title="make demo"))
    console.print()
    _plain(console, story.objects())
    _try_next(console, commands(_where(name, state)), _where(name, state))


@app.command()
def pods(
    name: _Name = "pods",
    state: _State = None,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long the pods may take to become ready.")
    ] = 180.0,
) -> None:
    """The same with pods that run, on a node of this machine, and a stand-in for the engine. Needs Linux and root."""
    console = Console()
    cluster = _cluster(name, state, real_node=True)
    played = Pods(cluster, console)
    played.play(seconds=timeout)
    console.print()
    _plain(console, played.objects())
    _try_next(console, played.commands(_where(name, state)), _where(name, state))


@app.command()
def down(name: _Name = "demo", state: _State = None) -> None:
    """Stop the operator and the cluster, and remove their state."""
    removed = _cluster(name, state).down()
    _plain(Console(stderr=True), "down" if removed else "there was no cluster")


def _cluster(name: str, state: Path | None, *, real_node: bool = False) -> Cluster:
    folder = state or REPOSITORY / "build" / "cluster" / name
    options = Options(pod_ready_delay=POD_READY_DELAY, real_node=real_node)
    return Cluster(folder, options, console=Console(stderr=True))


def _try_next(console: Console, commands: Mapping[str, str], where: str) -> None:
    console.print(Rule("try next", style="dim", align="left"))
    for title, command in commands.items():
        _plain(console, f"# {title}\n{command}")
    _plain(console, f"# stop all of it\n{python()} -m e2e.demo down {where}")


def _where(name: str, state: Path | None) -> str:
    return f"--name {name}" if state is None else f"--state {os.path.abspath(state)}"  # noqa: PTH100


def _plain(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _exit_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
