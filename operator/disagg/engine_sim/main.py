"""Runs an engine stand-in: reads the command line, builds what the dialect says, serves."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import uvloop
import zmq

from disagg.engine_sim.dialects import StartError, dialect
from disagg.engine_sim.server import run
from disagg.engine_sim.sim_flags import SimFlags, split


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop.

    Args:
        arguments: Of the command line.

    Returns:
        The exit status.
    """
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(asctime)s [%(name)s] %(message)s"
    )
    flags, rest = split(arguments)
    try:
        uvloop.run(_serve(flags, rest))
    except (StartError, zmq.ZMQError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _serve(flags: SimFlags, rest: Sequence[str]) -> None:
    instance = dialect(flags.dialect).build(rest, os.environ, flags)
    await run(instance.serving, instance.app, instance.settings)
