"""The engines, by `engine.kind`."""

from __future__ import annotations

from disagg.api.engine import EngineKind
from disagg.build.engines import custom, sglang, trtllm, vllm
from disagg.build.engines.engine import EngineModule

ENGINES: dict[EngineKind, EngineModule] = {
    EngineKind.VLLM: vllm,
    EngineKind.SGLANG: sglang,
    EngineKind.TRTLLM: trtllm,
    EngineKind.CUSTOM: custom,
}
