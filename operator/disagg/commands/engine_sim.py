"""`disagg engine-sim`: an inference engine without a GPU, for tests and quickstarts."""

from __future__ import annotations

from importlib import import_module

import typer

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""All options go to the engine's own parser, --help too."""


def engine_sim(context: typer.Context) -> None:
    """Stand in for an inference engine: the same HTTP, metrics and KV transfers, with no GPU.

    Takes the arguments of `vllm serve`, and refuses those that it refuses. --dialect says whose engine it is, --sim-*
    options how it behaves; --help lists them all.
    """
    # The operator must not need what this needs.
    main = import_module("disagg.engine_sim.main").main
    raise typer.Exit(main(context.args))
