"""An engine that the operator does not know: the user writes the arguments.

What it must do: serve HTTP on port 8000 and answer `/health` with 200 once its model is loaded.
"""

from __future__ import annotations

from disagg.api.names import RoleName
from disagg.api.router import RouterKind
from disagg.api.spec import Spec
from disagg.build.engines.engine import EnginePod, Metrics, PairProtocol, PodTemplateBody
from disagg.build.model_files import ModelFiles
from disagg.build.transfer import Transfer

METRICS: Metrics | None = None

SGLANG_BOOTSTRAP_PORT = 8998
"""SGLang's own default for `--disaggregation-bootstrap-port`."""


_DRAIN_SECONDS = 15
"""Long enough for an engine that does not drain: it is told to stop after routers have stopped sending."""


def protocol(transfer: Transfer) -> PairProtocol | None:
    """Nothing is known of it."""
    del transfer
    return None


def engine_pod(spec: Spec, role: RoleName, image: str, transfer: Transfer, model: ModelFiles) -> EnginePod:
    """How to start the user's image: with the user's arguments and nothing else."""
    del image, transfer, model
    # smg speaks SGLang's protocol and learns from this annotation where prefill and decode meet.
    bootstrap = role is RoleName.PREFILL and spec.router.kind is RouterKind.SMG
    drain = getattr(spec, role).drain_seconds
    return EnginePod(
        shared_memory="",
        drain_seconds=_DRAIN_SECONDS if drain is None else drain,
        annotations={"sglang.ai/bootstrap-port": str(SGLANG_BOOTSTRAP_PORT)} if bootstrap else {},
    )


def compatibility(template: PodTemplateBody) -> dict[str, str]:
    """Nothing is known of what its two ends compare."""
    del template
    return {}
