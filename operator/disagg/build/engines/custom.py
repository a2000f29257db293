"""An engine that the operator does not know: the user writes the arguments.

What it must do: serve HTTP on port 8000 and answer `/health` with 200 once its model is loaded.
"""

from __future__ import annotations

from disagg.api.names import RoleName
from disagg.api.spec import RouterKind, Spec
from disagg.build.engines.engine import EnginePod, huggingface_env

SGLANG_BOOTSTRAP_PORT = 8998
"""SGLang's own default for `--disaggregation-bootstrap-port`."""


def engine_pod(spec: Spec, role: RoleName) -> EnginePod:
    """How to start the user's image: with the user's arguments and nothing else."""
    secret = spec.model.token_secret
    # smg speaks SGLang's protocol and learns from this annotation where prefill and decode meet.
    bootstrap = role is RoleName.PREFILL and spec.router.kind is RouterKind.SMG
    return EnginePod(
        env=[huggingface_env(secret.name, secret.key)] if secret is not None else [],
        shared_memory=True,
        annotations={"sglang.ai/bootstrap-port": str(SGLANG_BOOTSTRAP_PORT)} if bootstrap else {},
    )
