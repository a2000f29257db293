"""`disagg topology`: reads nodes and pods once, and draws them or says where resources would go."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from disagg.api.names import API_VERSION, KIND
from disagg.api.resource import parse
from disagg.cluster.client import Client, Object, ResourceType, load_configuration
from disagg.cluster.errors import ApiError, ForbiddenError
from disagg.commands.common import (
    UNREADABLE,
    TopologyLevel,
    TopologyPreset,
    failure,
    level_overrides,
    resources_in,
)
from disagg.decide.environment import Environment
from disagg.reconcile.kinds import NODE, POD
from disagg.topology.levels import Level, level_map
from disagg.view.answers import answers_table, notes
from disagg.view.document import answers_document, picture_document
from disagg.view.fits import Answer, ask
from disagg.view.picture import Picture, picture
from disagg.view.questions import NothingToDrawError, accelerator, accelerators, pack_level
from disagg.view.snapshot import Snapshot
from disagg.view.svg.sheet import svg
from disagg.view.terminal import Drawing

_PAGE = 500
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
_PIPED_WIDTH = 100
"""Columns where there is no terminal that says how many it has, unless COLUMNS does."""
_UNBROKEN = 500
"""As above, for lines that scripts read."""


class Output(StrEnum):
    """How the result is printed."""

    TEXT = "text"
    JSON = "json"


def topology(  # noqa: PLR0913 - one parameter an option
    *,
    level: Annotated[
        str, typer.Option(metavar="LEVEL|KEY", help="What to draw: host, rack, block, zone, or a node label.")
    ] = "rack",
    topology_preset: TopologyPreset = "generic",
    topology_level: TopologyLevel = None,
    resource: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Accelerator to count, such as amd.com/gpu. Default: what nodes have most of.",
        ),
    ] = None,
    all_nodes: Annotated[
        bool, typer.Option("--all-nodes", help="Draw nodes without accelerators too.")
    ] = False,
    svg_file: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", dir_okay=False, help="Write the picture to this file instead."),
    ] = None,
    fits: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=f"Say where each {KIND} in this YAML file would go; - for standard input."
        ),
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")] = Output.TEXT,
) -> None:
    """Draw racks, nodes and accelerators, or say where resources would go. Changes nothing.

    Each accelerator is a cell: those of a group have its letter, a capital one for prefill and a small one for decode; #
    is a pod of somebody else, and those of one pod are joined. Read with the credentials of KUBECONFIG or of the pod,
    which need the right to list nodes and pods in all namespaces.

    With --fits: the domain of each group as the operator would choose it now, as if no resource had Deployments yet. What
    a group is about to take is taken for those after it. Room for more is what pods of each role alone find beside all
    these. The exit status is 0 if all groups fit now, 1 if one does not or if that can't be told. A resource without
    topologyConstraint is not judged.
    """
    overrides = level_overrides(topology_preset, topology_level)
    if "/" not in level and level not in list(Level):
        raise typer.BadParameter(f"--level {level}: use {', '.join(Level)}, or a node label with its prefix")
    if fits is not None and svg_file is not None:
        raise typer.BadParameter("--svg draws the cluster as it is: use it without --fits")
    levels = level_map(topology_preset, overrides)
    if fits is not None:
        answers = _answers(fits, levels)
        _print_answers(answers, output)
        raise typer.Exit(0 if all(answer.is_good for answer in answers) else 1)
    snapshot = _read()
    try:
        shown = accelerator(snapshot.nodes, resource)
        relevant = [node for node in snapshot.nodes if node.allocatable.get(shown)]
        key = pack_level(relevant, level, topology_preset, levels)
    except NothingToDrawError as error:
        raise failure(str(error)) from error
    drawn = picture(
        snapshot,
        resource=shown,
        level=level,
        pack_level=key,
        others=accelerators(snapshot.nodes),
        all_nodes=all_nodes,
    )
    _show(drawn, output, svg_file)


def _show(drawn: Picture, output: Output, svg_file: Path | None) -> None:
    if svg_file is not None:
        try:
            svg_file.write_text(svg(drawn), encoding="utf-8")
        except OSError as error:
            raise failure(f"{svg_file}: {error.strerror}") from error
    if output is Output.JSON:
        typer.echo(json.dumps(picture_document(drawn), indent=2))
    elif svg_file is None:
        _console(_PIPED_WIDTH).print(Drawing(drawn))


def _answers(file: Path, levels: dict[str, str]) -> list[Answer]:
    try:
        resources = [parse(document) for document in resources_in(file)]
    except UNREADABLE as error:
        raise failure(f"{file}: {error}") from error
    if not resources:
        raise failure(f"{file}: no {KIND} of {API_VERSION} in it")
    snapshot = _read()
    try:
        return ask(resources, Environment(levels, inventory=snapshot.inventory), datetime.now(UTC))
    except ValueError as error:
        raise failure(f"{file}: {error}") from error


def _print_answers(answers: list[Answer], output: Output) -> None:
    if output is Output.JSON:
        typer.echo(json.dumps(answers_document(answers), indent=2))
        return
    _console(piped_width=_UNBROKEN).print(answers_table(answers))
    if lines := notes(answers):
        typer.echo("\n" + "\n".join(lines))


def _console(piped_width: int) -> Console:
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if has_width else piped_width)


def _read() -> Snapshot:
    try:
        return asyncio.run(_snapshot())
    except ForbiddenError as error:
        raise failure(f"the rights to list nodes and pods in all namespaces are needed: {error}") from error
    except ApiError as error:
        raise failure(str(error)) from error


async def _snapshot() -> Snapshot:
    snapshot = Snapshot()
    with warnings.catch_warnings():
        # The error says all of it.
        warnings.simplefilter("ignore")
        configuration = await load_configuration()
    async with Client(configuration, user_agent="disagg-topology") as client:
        async for node in _objects(client, NODE, {}):
            snapshot.put_node(node)
        async for pod in _objects(client, POD, {"fieldSelector": _RUNNING}):
            snapshot.put_pod(pod)
    return snapshot


async def _objects(client: Client, kind: ResourceType, selectors: dict[str, str]) -> AsyncIterator[Object]:
    """All objects of a kind, a page in memory at a time."""
    query = selectors | {"limit": str(_PAGE)}
    while True:
        answer = await client.list_page(kind, "", query)
        for item in answer.get("items") or ():
            yield item
        token = (answer.get("metadata") or {}).get("continue")
        if not token:
            return
        query["continue"] = token
