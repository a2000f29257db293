"""Real vLLM in the stand-in's place, for the conformance suite: `make e2e-vllm` asks for it.

Engines of equal arguments are one process where tests share theirs, across files too: a start takes most of a minute.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from e2e.lifetime import bound_with_all
from e2e.real_vllm import installation, is_installed, tiny_model
from tests.engine_sim.processes import Engine, Engines, Program

IS_WANTED = os.environ.get("DISAGG_E2E_VLLM") == "1"
"""Whether the suite runs against real engines."""

ADAPTERS = ("poet", "new")
_START_SECONDS = 600.0
_OF_CPUS = ("--enforce-eager", "--dtype=float32", "--block-size=32")
"""What a CPU wants: 16-bit floats break on some, and attention takes blocks of this size only."""
_SCALE = "--sim-time-scale"


class RealEngines(Engines):
    """Starts vLLM; of the stand-in's own flags it forgets the scale of time, and takes no other."""

    def __init__(self, folder: Path, *, shared: bool) -> None:
        # An installation takes longer than any test may.
        assert is_installed(), "run `python -m e2e.real_vllm` first, as `make e2e-vllm` does"
        super().__init__(folder, _program(folder))
        self._shared: dict[tuple[object, ...], Engine] | None = {} if shared else None

    def start(self, *arguments: str, **environment: str) -> Engine:
        """Start one, or find one that was started so."""
        # Each has a side channel of its own, so that is no difference.
        variables = {name: each for name, each in environment.items() if "SIDE_CHANNEL" not in name}
        key = (*arguments, *sorted(variables.items()))
        found = None if self._shared is None else self._shared.get(key)
        if found is None or found.process.poll() is not None:
            found = super().start(*_real(arguments), **environment)
            if self._shared is not None:
                self._shared[key] = found
        return found


def _real(arguments: Sequence[str]) -> list[str]:
    words = list(arguments)
    if _SCALE in words:
        at = words.index(_SCALE)
        del words[at : at + 2]
    assert not any(word.startswith("--sim-") for word in words), words
    return ["serve", *(word for word in words if word != "serve"), *_OF_CPUS]


def _program(folder: Path) -> Program:
    # Models and adapters are named as folders of the one that engines start in.
    tiny_model.write(folder / "org" / "model")
    for name in ADAPTERS:
        tiny_model.write_adapter(folder / "adapters" / name)
    found = installation()
    environment = {
        "PATH": f"{found.programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # Engines share few cores: one thread each, wherever it may run.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "UCX_TLS": "tcp,self,sm",
    }
    # Number 1 of a process namespace: what it has started ends with it, however that ends.
    command = bound_with_all([str(found.programs / "vllm")])
    return Program(command, environment, folder, _START_SECONDS, is_stand_in=False, is_isolated=True)
