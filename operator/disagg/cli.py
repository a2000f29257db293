"""`disagg`: the command line."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer
import uvloop

from disagg.api.crd import crd_yaml
from disagg.cluster.errors import ApiError
from disagg.commands.common import (
    TopologyLevel,
    TopologyPreset,
    failure,
    help_of,
    level_overrides,
)
from disagg.commands.engine_sim import PASS_THROUGH, engine_sim
from disagg.commands.render import render
from disagg.commands.topology import topology
from disagg.reconcile import log
from disagg.reconcile.operator import Settings, run
from disagg.reconcile.pod_groups import PodGroupMode

_MAX_PORT = 65535

app = typer.Typer(
    help="Disaggregated LLM inference on Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command(help=help_of(render))(render)
app.command(help=help_of(topology))(topology)
app.command(help=help_of(engine_sim), context_settings=PASS_THROUGH)(engine_sim)


@app.command()
def crd() -> None:
    """Print the CustomResourceDefinition."""
    sys.stdout.write(crd_yaml())


@app.command()
def operator(  # noqa: PLR0913 - one parameter an option
    *,
    namespace: Annotated[
        list[str] | None, typer.Option(help="Watch this namespace only; may be repeated. Default: all.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Resources reconciled at once.")] = 4,
    resync_seconds: Annotated[
        float, typer.Option(min=1, help="How often a resource is looked at with no event, give or take 20 %.")
    ] = 300,
    log_level: Annotated[log.LogLevel, typer.Option(help="Least severity to log.")] = log.LogLevel.INFO,
    log_format: Annotated[log.LogFormat, typer.Option(help="How log lines look.")] = log.LogFormat.TEXT,
    http_address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where /healthz, /readyz and /metrics listen.")
    ] = "0.0.0.0:8080",
    leader_elect: Annotated[
        bool, typer.Option(help="Take turns with other operators by a Lease in POD_NAMESPACE.")
    ] = False,
    topology_preset: TopologyPreset = "generic",
    topology_level: TopologyLevel = None,
    pod_group: Annotated[
        PodGroupMode,
        typer.Option(help="Pack groups that must be packed by PodGroup: where it works, or as said."),
    ] = PodGroupMode.AUTO,
) -> None:
    """Run the operator, with the credentials of its pod or of KUBECONFIG."""
    host, _, port = http_address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise typer.BadParameter(
            f"--http-address {http_address}: HOST:PORT is expected, such as 0.0.0.0:8080"
        )
    levels = level_overrides(topology_preset, topology_level)
    log.configure(log_level, log_format)
    settings = Settings(
        namespaces=tuple(namespace or ()),
        workers=workers,
        resync_seconds=resync_seconds,
        http_host=host,
        http_port=int(port),
        leader_elect=leader_elect,
        topology_preset=topology_preset,
        topology_levels=levels,
        pod_group=pod_group,
    )
    try:
        uvloop.run(run(settings))
    except (ApiError, OSError) as error:
        raise failure(str(error)) from error
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(0) from None


if __name__ == "__main__":
    app()
