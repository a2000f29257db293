"""What commands share: how they fail, options of the level map, files with resources."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from disagg.api.names import API_VERSION, KIND
from disagg.api.resource import InvalidSpecError
from disagg.topology.levels import PRESETS, level_map

UNREADABLE = (OSError, yaml.YAMLError, InvalidSpecError, ValueError, RecursionError)
"""What reading resources from a file may raise."""

TopologyPreset = Annotated[
    str, typer.Option(help=f"Node labels of racks and blocks: {', '.join(sorted(PRESETS))}.")
]
TopologyLevel = Annotated[
    list[str] | None,
    typer.Option(metavar="LEVEL=KEY", help="Node label of a level, over the preset's; may be repeated."),
]


def help_of(command: Callable[..., None]) -> str:
    """The docstring of a command, each paragraph in one line: typer would keep the line breaks of the source."""
    paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def failure(message: str) -> typer.Exit:
    """Tell on standard error what went wrong. An exception of typer would show as a traceback."""
    typer.echo(f"Error: {message}", err=True)
    return typer.Exit(1)


def level_overrides(preset: str, levels: Iterable[str] | None) -> dict[str, str]:
    """The labels that --topology-level lays over those of --topology-preset.

    Raises:
        typer.BadParameter: One of the two options is not as it should be.
    """
    overrides = dict(_level(text) for text in levels or ())
    try:
        level_map(preset, overrides)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return overrides


def _level(text: str) -> tuple[str, str]:
    level, found, key = text.partition("=")
    if not found or not key:
        raise typer.BadParameter(
            f"--topology-level {text}: LEVEL=KEY is expected, such as rack=example.com/rack"
        )
    return level, key


def resources_in(file: Path) -> list[dict[str, Any]]:
    """The resources in a file of YAML, or in standard input if it is called -; not other objects.

    Raises:
        OSError: The file can't be read.
        yaml.YAMLError: It is not YAML.
        ValueError: Nor is it text.
    """
    text = sys.stdin.read() if str(file) == "-" else file.read_text()
    documents = [found for document in yaml.safe_load_all(text) for found in _items(document)]
    return [document for document in documents if _is_resource(document)]


def _is_resource(document: object) -> bool:
    return (
        isinstance(document, dict)
        and document.get("kind") == KIND
        and document.get("apiVersion") == API_VERSION
    )


def _items(document: Any) -> list[Any]:  # noqa: ANN401 - whatever the file holds
    """The objects in a document: itself, or those of a list, as `kubectl get -o yaml` writes it."""
    if (
        isinstance(document, dict)
        and document.get("kind") == "List"
        and isinstance(document.get("items"), list)
    ):
        return list(document["items"])
    return [document]
