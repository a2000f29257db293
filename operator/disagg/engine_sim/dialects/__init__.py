"""Whose engine is simulated.

A dialect reads its own command line and builds what `disagg.engine_sim.server.run` needs; all of the core is at its
hand. See `Dialect` for the seam and `vllm` for the whole of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from aiohttp import web

from disagg.engine_sim.api.serving import Serving
from disagg.engine_sim.server import ProcessSettings
from disagg.engine_sim.sim_flags import SimFlags


@dataclass(frozen=True)
class Instance:
    """An engine process, ready to run.

    Attributes:
        serving: Engines and API.
        app: Routes.
        settings: How the process serves.
    """

    serving: Serving
    app: web.Application
    settings: ProcessSettings


class Dialect(Protocol):
    """A module `disagg.engine_sim.dialects.<name>` with these functions."""

    def build(self, arguments: Sequence[str], environment: Mapping[str, str], sim: SimFlags) -> Instance:
        """Read the command line, as the real engine does, and build the engine.

        Called inside of a running event loop.

        Args:
            arguments: Without those of the simulation.
            environment: Variables of the process.
            sim: The simulation's own flags.

        Raises:
            SystemExit: With 2 for a command line that the real one can't parse.
            StartError: For one that it parses and refuses.
        """


class StartError(Exception):
    """The real engine would not start."""


NAMES = ("vllm", "sglang", "trtllm")


def dialect(name: str) -> Dialect:
    """The dialect called `name`.

    Raises:
        StartError: There is none.
    """
    if name not in NAMES:
        raise StartError(f"unknown dialect {name!r}; there are {', '.join(NAMES)}")
    try:
        found: Dialect = import_module(f"disagg.engine_sim.dialects.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"disagg.engine_sim.dialects.{name}":
            raise
        raise StartError(f"the dialect {name!r} is not there yet") from error
    return found
