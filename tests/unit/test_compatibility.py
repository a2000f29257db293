"""The hash over what prefill and decode must share: it follows what runs, whoever has written it."""

from __future__ import annotations

from typing import Any

import pytest

from disagg.api.engine import EngineKind
from disagg.api.names import KV_COMPATIBILITY_LABEL, RoleName, Workload
from disagg.build.compatibility import difference, items
from disagg.build.pod_template import pod_templates
from tests.unit.resources import overlaid, resource

ENGINES: dict[str, dict[str, Any]] = {
    "vllm": {"engine": {"kind": "vllm", "image": "vllm/vllm-openai:v0.33.0"}},
    "vllm 0.18": {"engine": {"kind": "vllm", "image": "vllm/vllm-openai:v0.18.0"}},
    "sglang": {
        "engine": {"kind": "sglang", "image": "lmsysorg/sglang:v0.5.23"},
        "router": {"image": "smg:1"},
    },
    "trtllm": {"engine": {"kind": "trtllm", "image": "tensorrt-llm/release:1.2.0"}},
}


def hash_of(role: str, /, **spec: object) -> str:
    template = pod_templates(resource(**spec))[Workload(RoleName(role))].body
    return str(template["metadata"]["labels"][KV_COMPATIBILITY_LABEL])


def with_args(engine: dict[str, Any], *more: str) -> dict[str, Any]:
    """An overlay on prefill whose arguments are those that are rendered, and `more`."""
    template = pod_templates(resource(**engine))[Workload(RoleName.PREFILL)].body
    args = [*template["spec"]["containers"][0]["args"], *more]
    return overlaid(engine, {"prefill": overlay(args=args)})


def overlay(**container: object) -> dict[str, Any]:
    return {"podTemplate": {"spec": {"containers": [{"name": "engine"} | container]}}}


def env(name: str, value: str) -> dict[str, Any]:
    return overlay(env=[{"name": name, "value": value}])


@pytest.mark.parametrize("engine", ENGINES)
def test_both_roles_have_the_same_hash(engine: str) -> None:
    found = {hash_of(role, **ENGINES[engine]) for role in ("prefill", "decode")}
    assert len(found) == 1


def test_a_hash_is_a_valid_label() -> None:
    assert len(hash_of("prefill")) == 16


def test_a_custom_engine_has_none() -> None:
    template = pod_templates(resource(engine={"kind": "custom"}))[Workload(RoleName.PREFILL)].body
    assert KV_COMPATIBILITY_LABEL not in template["metadata"]["labels"]


LIBFABRIC = (
    '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_producer",'
    '"kv_connector_extra_config":{"backends":["LIBFABRIC"]}}'
)
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("vllm", {"prefill": overlay(image="vllm/vllm-openai:v0.32.0")}),
    ("vllm", {"prefill": overlay(image="registry.local/vllm@sha256:0123")}),
    *(
        (release, with_args(ENGINES[release], *args))
        for release in ("vllm", "vllm 0.18")
        for args in (
            ("--dtype=float16",),
            ("--dtype", "float16"),
            ("--kv-cache-dtype=fp8",),
            ("--kv_cache_dtype=fp8",),
            ("--attention-backend=FLASHINFER",),
            ("--disable-hybrid-kv-cache-manager",),
            ('--kv-transfer-config={"kv_connector":"MooncakeConnector","kv_role":"kv_producer"}',),
            (LIBFABRIC,),
        )
    ),
    ("vllm", with_args(ENGINES["vllm"], '--speculative-config={"method":"eagle","model":"a","num_speculative_tokens":2}')),
    ("vllm", with_args(ENGINES["vllm"], '--kv-transfer-config={"kv_connector":"NixlPushConnector","kv_role":"kv_producer"}')),
    ("vllm 0.18", with_args(ENGINES["vllm 0.18"], "--block-size=64")),
    ("sglang", {"prefill": overlay(image="lmsysorg/sglang:v0.5.22")}),
    *(
        ("sglang", with_args(ENGINES["sglang"], *args))
        for args in (
            ("--page-size=1",),
            ("--kv-cache-dtype=fp8_e5m2",),
            ("--disaggregation-transfer-backend", "mooncake"),
        )
    ),
    ("sglang", {"prefill": env("SGLANG_DISAGGREGATION_NIXL_BACKEND", "LIBFABRIC")}),
    ("trtllm", {"prefill": overlay(image="tensorrt-llm/release:1.1.0")}),
    ("trtllm", {"prefill": env("TRTLLM_NIXL_KVCACHE_BACKEND", "LIBFABRIC")}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "change"), CHANGES, ids=lambda value: value if isinstance(value, str) else str(value)[-60:]
)
def test_an_overlay_that_changes_what_is_shared_changes_the_hash(engine: str, change: dict[str, Any]) -> None:
    wanted = overlaid(ENGINES[engine], change)
    assert hash_of("prefill", **wanted) != hash_of("decode", **wanted)


@pytest.mark.parametrize(
    ("engine", "change"),
    [
        ("vllm", with_args(ENGINES["vllm"], "--max-num-seqs=8")),
        ("vllm", with_args(ENGINES["vllm"], "--gpu-memory-utilization", "0.9")),
        (
            "vllm",
            overlaid(with_args(ENGINES["vllm"], "--dtype=half"), {"decode": {"args": ["--dtype=float16"]}}),
        ),
        ("vllm", {"prefill": env("NCCL_DEBUG", "INFO")}),
        ("vllm", {"prefill": {"parallelism": {"tensor": 2}}, "decode": {"parallelism": {"tensor": 4}}}),
        ("sglang", with_args(ENGINES["sglang"], "--mem-fraction-static=0.9")),
        ("trtllm", {"prefill": {"parallelism": {"tensor": 2}}}),
    ],
    ids=str,
)
def test_what_each_side_may_have_for_itself_changes_no_hash(engine: str, change: dict[str, Any]) -> None:
    wanted = overlaid(ENGINES[engine], change)
    assert hash_of("prefill", **wanted) == hash_of("decode", **wanted)


def test_a_difference_names_the_item_and_both_values() -> None:
    wanted = resource(**with_args(ENGINES["vllm"], "--kv-cache-dtype=fp8"))
    templates = pod_templates(wanted)
    prefill, decode = (templates[Workload(role)].body for role in (RoleName.PREFILL, RoleName.DECODE))
    found = difference(wanted.spec.engine.kind, prefill, decode)
    assert found is not None
    assert "fp8 in prefill" in found
    assert set(items(wanted.spec.engine.kind, prefill)) == set(items(wanted.spec.engine.kind, decode))


def test_what_one_release_alone_compares_is_no_difference_where_it_is_none() -> None:
    bodies = (
        pod_templates(resource(engine={"image": f"vllm/vllm-openai:v{release}"}))[
            Workload(RoleName.DECODE)
        ].body
        for release in ("0.32.0", "0.20.0")
    )
    found = difference(EngineKind.VLLM, *bodies)
    assert found is not None
    assert "vLLM (0.32.0 in prefill, 0.20.0 in decode)" in found
    assert "(none in prefill, none in decode)" not in found
