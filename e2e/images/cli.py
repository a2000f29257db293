"""The command line: `python -m e2e.images`."""

import sys
import time
from typing import Annotated

import typer
from rich.console import Console

from e2e.cluster.errors import ClusterError
from e2e.cluster.node.machine import ensure_packages
from e2e.images.build import IMAGES, build

app = typer.Typer(
    help="The images of this project, built on a base of Debian's packages.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
_console = Console(stderr=True)


@app.callback()
def _images() -> None:
    """The images of this project, built on a base of Debian's packages."""


@app.command(name="build")
def build_images(
    names: Annotated[list[str] | None, typer.Argument(help=f"From {', '.join(IMAGES)}; all if none.")] = None,
) -> None:
    """Build images and print the paths of their archives."""
    ensure_packages(_console)
    for name in names or IMAGES:
        started = time.monotonic()
        image = build(name)
        seconds = time.monotonic() - started
        _console.print(f"{image.summary}, after {seconds:.1f} s", highlight=False, soft_wrap=True)
        typer.echo(image.archive)


def main() -> None:
    """Run the command line; a `ClusterError` ends it with its text and status 1."""
    try:
        app(prog_name="python -m e2e.images")
    except ClusterError as error:
        _console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
