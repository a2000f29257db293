"""SGLang pods: what each release is started with, and what a pair must share."""

from __future__ import annotations

from typing import Any

import pytest

from disagg.api.names import RoleName
from disagg.build.compatibility import difference
from disagg.build.engine_template import parts
from disagg.build.engines import sglang
from disagg.build.engines import sglang_release as since
from disagg.build.engines.engine import PairProtocol
from disagg.build.engines.flags import flags as read
from disagg.build.engines.sglang_kv import latent_attention
from disagg.build.engines.version import Release
from disagg.build.transfer import resolve
from tests.unit.engine_flags import flags, releases
from tests.unit.resources import container, overlaid, resource, template

ROLES = ("prefill", "decode")
IMAGE = "lmsysorg/sglang:v0.5.23-cu129"
LLAMA: dict[str, Any] = {"engine": {"kind": "sglang", "image": IMAGE}, "router": {"kind": "none"}}
DEEPSEEK: dict[str, Any] = LLAMA | {"model": {"uri": "hf://deepseek-ai/DeepSeek-R1-0528"}}
SHARED = {"cpu": "64Gi", "sharedFileSystem": {"claim": "kv", "path": "/kv"}}
DISK = {"cpu": "64Gi", "disk": {"size": "1000Gi", "path": "/disk"}}


def spec(base: dict[str, Any] = LLAMA, /, **more: object) -> dict[str, Any]:
    return overlaid(base, more)


def of_release(version: str, base: dict[str, Any] = LLAMA, /, **more: object) -> dict[str, Any]:
    return spec(overlaid(base, {"engine": {"image": f"lmsysorg/sglang:v{version}"}}), **more)


def args(role: str, wanted: dict[str, Any]) -> list[str]:
    found: list[str] = container(resource(**wanted), role)["args"]
    return found


def option(role: str, wanted: dict[str, Any], name: str) -> str | None:
    return read(args(role, wanted), name).get(name)


def env(role: str, wanted: dict[str, Any]) -> dict[str, Any]:
    found = container(resource(**wanted), role)["env"]
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in found}


def notes(role: str, wanted: dict[str, Any]) -> str:
    return " ".join(parts(resource(**wanted).spec, RoleName(role)).engine.notes)


def differ(wanted: dict[str, Any]) -> str | None:
    found = resource(**wanted)
    return difference(found.spec.engine.kind, template(found, "prefill"), template(found, "decode"))


def tensor(prefill: int, decode: int) -> dict[str, Any]:
    return {
        "prefill": {"parallelism": {"tensor": prefill}},
        "decode": {"parallelism": {"tensor": decode}},
    }


# What is served, and where it listens.


@pytest.mark.parametrize("role", ROLES)
def test_a_pod_serves_the_model_in_its_role(role: str) -> None:
    engine = container(
        resource(**spec(model={"servedName": "mine", "revision": "v2"}, **tensor(2, 2))),
        role,
    )
    assert engine["command"] == ["python3", "-m", "sglang.launch_server"]
    assert engine["args"][:6] == [
        "--model-path=org/llama",
        "--revision=v2",
        "--served-model-name=mine",
        "--host=0.0.0.0",
        "--port=8000",
        f"--disaggregation-mode={role}",
    ]


def test_without_a_revision_none_is_named() -> None:
    assert option("prefill", LLAMA, "--revision") is None


def test_only_prefill_has_a_bootstrap_port_and_tells_the_router_of_it() -> None:
    pods = {role: template(resource(**LLAMA), role) for role in ROLES}
    ports = {
        role: {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
        for role, pod in pods.items()
    }
    assert ports == {"prefill": {"http": 8000, "bootstrap": 8998}, "decode": {"http": 8000}}
    assert pods["prefill"]["metadata"]["annotations"]["sglang.ai/bootstrap-port"] == "8998"
    assert "annotations" not in pods["decode"]["metadata"]
    assert option("prefill", LLAMA, "--disaggregation-bootstrap-port") == "8998"
    assert option("decode", LLAMA, "--disaggregation-bootstrap-port") is None


def test_both_pods_work_on_a_request_at_once() -> None:
    assert sglang.protocol(resolve(resource(**LLAMA).spec)) is PairProtocol.CONCURRENT


# Releases.


@pytest.mark.parametrize(
    ("version", "image", "release", "note"),
    [
        (None, "lmsysorg/sglang:v0.5.6.post2-cu129", (0, 5, 6), ""),
        ("0.5.9", "registry:5000/mine@sha256:" + "0" * 64, (0, 5, 9), ""),
        (None, "lmsysorg/sglang:v0.5.23", since.NEWEST, ""),
        (None, "lmsysorg/sglang:v0.5.30", (0, 5, 30), "newer"),
        (None, "lmsysorg/sglang:latest", since.NEWEST, "does not tell"),
        ("0.5", "lmsysorg/sglang:latest", since.NEWEST, "does not tell"),
        (None, "lmsysorg/sglang:v0.5.2", since.OLDEST, "older than 0.5.6"),
    ],
)
def test_the_release_is_that_of_the_image_or_the_newest_known(
    version: str | None, image: str, release: Release, note: str
) -> None:
    found, told = since.started_as(version, image)
    assert found == release
    assert (note in " ".join(told)) if note else told == []


EVERYTHING: dict[str, Any] = {
    "plain": LLAMA,
    "dense with different sizes": spec(**tensor(4, 2)),
    "deepseek": spec(
        DEEPSEEK,
        prefill={"parallelism": {"tensor": 4, "data": 2, "expert": True}},
        decode={"parallelism": {"data": 8, "expert": True}},
    ),
    "prefill in stages": spec(
        prefill={"parallelism": {"tensor": 2, "pipeline": 2}}, decode=tensor(1, 2)["decode"]
    ),
    "adapters": spec(
        model={
            "lora": {
                "adapters": [{"name": "a", "uri": "hf://org/a"}, {"name": "b", "uri": "pvc://b/x"}],
                "maxRank": 32,
            }
        }
    ),
    "formats": spec(engine={"kvCacheDtype": "fp8", "attentionBackend": "fa3", "blockSize": 128}),
    "nvfp4": spec(engine={"kvCacheDtype": "nvfp4"}),
    "mooncake over tcp": spec(kvTransfer={"connector": "mooncake", "transport": "tcp"}),
    "mooncake over rdma": spec(kvTransfer={"connector": "mooncake", "transport": "rdma", "fabric": "roce"}),
    "efa": spec(kvTransfer={"transport": "rdma", "fabric": "efa"}),
    "files on a disk": spec(kvTransfer={"transport": "tcp", "offload": DISK}),
    "shared files": spec(kvTransfer={"transport": "tcp", "offload": SHARED}),
}
_OTHERS_READ = {
    # Triton, torch, CUDA, TileLang, TVM, FlashInfer, Hugging Face's hub, UCX, libfabric, Mooncake.
    *(
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "CUDA_CACHE_PATH",
        "TILELANG_CACHE_DIR",
        "TVM_FFI_CACHE_DIR",
    ),
    *("FLASHINFER_WORKSPACE_BASE", "XDG_CACHE_HOME", "HF_HOME", "MC_FORCE_TCP"),
}


@pytest.mark.parametrize("version", releases("sglang"))
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("case", EVERYTHING)
def test_a_release_accepts_every_argument_that_it_is_given(case: str, role: str, version: str) -> None:
    wanted = of_release(version, EVERYTHING[case])
    assert flags("sglang", version).refused(args(role, wanted)) == []


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("case", EVERYTHING)
def test_the_newest_release_reads_every_variable_of_its_own(case: str, role: str) -> None:
    found = parts(resource(**EVERYTHING[case]).spec, RoleName(role)).engine.env
    names = {variable["name"] for variable in found} - _OTHERS_READ
    assert [name for name in names if not flags("sglang", "0.5.23").reads(name)] == []


# Transfer.


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("version", "transfer", "backend", "variables"),
    [
        ("0.5.23", {"transport": "tcp"}, "nixl", {"SGLANG_DISAGGREGATION_NIXL_BACKEND": "UCX"}),
        ("0.5.9", {"transport": "tcp"}, "nixl", {"SGLANG_DISAGGREGATION_NIXL_BACKEND": "UCX"}),
        ("0.5.8", {"transport": "tcp"}, "nixl", {}),
        (
            "0.5.23",
            {"transport": "rdma", "fabric": "efa"},
            "nixl",
            {"SGLANG_DISAGGREGATION_NIXL_BACKEND": "LIBFABRIC"},
        ),
        ("0.5.23", {"connector": "mooncake", "transport": "rdma", "fabric": "roce"}, "mooncake", {}),
        ("0.5.13", {"connector": "mooncake", "transport": "tcp"}, "mooncake_tcp", {}),
        ("0.5.12", {"connector": "mooncake", "transport": "tcp"}, "mooncake", {"MC_FORCE_TCP": "1"}),
    ],
)
def test_both_roles_move_kv_cache_with_what_the_resource_names(
    role: str, version: str, transfer: dict[str, Any], backend: str, variables: dict[str, str]
) -> None:
    wanted = of_release(version, kvTransfer=transfer)
    own = parts(resource(**wanted).spec, RoleName(role)).engine.env
    given = {variable["name"]: variable.get("value") for variable in own}
    told = {
        name: given[name] for name in ("SGLANG_DISAGGREGATION_NIXL_BACKEND", "MC_FORCE_TCP") if name in given
    }
    assert option(role, wanted, "--disaggregation-transfer-backend") == backend
    assert told == variables


def test_a_release_whose_nixl_knows_ucx_only_says_so_on_efa() -> None:
    efa = {"transport": "rdma", "fabric": "efa"}
    assert "UCX only" in notes("prefill", of_release("0.5.8", kvTransfer=efa))
    assert "UCX only" not in notes("prefill", of_release("0.5.9", kvTransfer=efa))


def test_each_role_waits_for_the_other_for_as_long_as_kv_cache_is_kept() -> None:
    for transfer, seconds in (
        ({"transport": "tcp"}, "120"),
        ({"transport": "tcp", "leaseSeconds": 200}, "200"),
    ):
        wanted = spec(kvTransfer=transfer)
        prefill, decode = env("prefill", wanted), env("decode", wanted)
        assert prefill["SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT"] == seconds
        assert decode["SGLANG_DISAGGREGATION_WAITING_TIMEOUT"] == seconds


# Parallelism.


@pytest.mark.parametrize(
    ("version", "role", "parallelism", "expected"),
    [
        ("0.5.23", "prefill", {"tensor": 4}, ["--tp-size=4"]),
        ("0.5.23", "prefill", {"tensor": 2, "pipeline": 4}, ["--tp-size=2", "--pp-size=4"]),
        ("0.5.23", "decode", {"tensor": 2, "data": 4}, ["--tp-size=8", "--attn-dp-size=4"]),
        ("0.5.22", "decode", {"data": 8}, ["--tp-size=8", "--attn-dp-size=8"]),
        ("0.5.21", "decode", {"data": 8}, ["--tp-size=8", "--dp-size=8", "--enable-dp-attention"]),
        (
            "0.5.7",
            "decode",
            {"data": 8},
            ["--tp-size=8", "--dp-size=8", "--enable-dp-attention", "--prefill-round-robin-balance"],
        ),
        ("0.5.7", "prefill", {"data": 8}, ["--tp-size=8", "--dp-size=8", "--enable-dp-attention"]),
        ("0.5.23", "prefill", {"tensor": 8, "expert": True}, ["--tp-size=8", "--ep-size=8"]),
        (
            "0.5.23",
            "prefill",
            {"tensor": 2, "pipeline": 2, "data": 2, "expert": True},
            ["--tp-size=4", "--pp-size=2", "--attn-dp-size=2", "--ep-size=4"],
        ),
        ("0.5.23", "prefill", {"expert": True}, ["--tp-size=1"]),
    ],
)
def test_a_replica_is_spread_as_the_resource_says(
    version: str, role: str, parallelism: dict[str, Any], expected: list[str]
) -> None:
    found = args(role, of_release(version, DEEPSEEK, **{role: {"parallelism": parallelism}}))
    start = found.index(expected[0])
    assert [*found[start : start + len(expected)], found[start + len(expected)]] == [
        *expected,
        "--page-size=64",
    ]


# The cache.


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("version", "dtype", "name"),
    [
        ("0.5.23", "auto", "auto"),
        ("0.5.23", "bfloat16", "bfloat16"),
        ("0.5.23", "fp8", "fp8_e4m3"),
        ("0.5.23", "fp8_e5m2", "fp8_e5m2"),
        ("0.5.16", "nvfp4", "nvfp4"),
        ("0.5.15", "nvfp4", "fp4_e2m1"),
    ],
)
def test_a_number_format_is_called_what_the_release_calls_it(
    role: str, version: str, dtype: str, name: str
) -> None:
    assert option(role, of_release(version, engine={"kvCacheDtype": dtype}), "--kv-cache-dtype") == name


def test_a_page_has_64_tokens_unless_the_resource_says_another_number() -> None:
    assert option("decode", LLAMA, "--page-size") == "64"
    assert option("decode", spec(engine={"blockSize": 16}), "--page-size") == "16"


def test_format_and_attention_backend_are_the_engines_choice_by_default() -> None:
    assert read(args("prefill", LLAMA), "--kv-cache-dtype", "--attention-backend") == {}
    assert option("decode", spec(engine={"attentionBackend": "fa3"}), "--attention-backend") == "fa3"


# Reports.


@pytest.mark.parametrize("role", ROLES)
def test_metrics_and_cached_tokens_are_reported(role: str) -> None:
    assert {"--enable-metrics", "--enable-cache-report"} <= set(args(role, LLAMA))


def test_probes_and_scrapes_are_not_in_the_access_log() -> None:
    newer, older = args("prefill", of_release("0.5.8")), args("prefill", of_release("0.5.7"))
    start = newer.index("--uvicorn-access-log-exclude-prefixes")
    assert newer[start + 1 : start + 4] == ["/health", "/metrics", "--enable-metrics"]
    assert "--log-level-http=warning" in older


def test_a_request_waits_by_the_names_of_all_releases() -> None:
    assert sglang.METRICS is not None
    assert {"sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_prealloc_queue_reqs"} <= set(
        sglang.METRICS.waiting
    )


# LoRA.


@pytest.mark.parametrize("role", ROLES)
def test_both_roles_load_the_adapters_and_keep_a_slot_for_requests_without_one(role: str) -> None:
    adapters = [{"name": "a", "uri": "hf://org/a"}, {"name": "b", "uri": "pvc://claim/b"}]
    found = args(role, spec(model={"lora": {"adapters": adapters, "maxRank": 64}}))
    start = found.index("--enable-lora")
    assert found[start:] == [
        "--enable-lora",
        "--lora-paths",
        "a=org/a",
        "b=/adapters/claim/b",
        "--max-loras-per-batch=3",
        "--max-lora-rank=64",
    ]


@pytest.mark.parametrize(("wanted", "slots"), [({"maxAdapters": 4}, "5"), ({}, "9")])
def test_a_batch_uses_eight_adapters_at_most_unless_the_resource_says_more(
    wanted: dict[str, int], slots: str
) -> None:
    adapters = [{"name": f"a{number}", "uri": "hf://org/a"} for number in range(20)]
    lora = spec(model={"lora": {"adapters": adapters} | wanted})
    assert option("decode", lora, "--max-loras-per-batch") == slots


def test_how_requests_name_an_adapter_is_told() -> None:
    """A request for the adapter's name alone is answered by the model without it, or not at all."""
    adapters = [{"name": "a", "uri": "hf://org/a"}]
    assert "lora_path" in notes("decode", spec(model={"lora": {"adapters": adapters}}))
    assert "lora_path" not in notes("decode", spec())


# Offload.


def offload(tiers: dict[str, Any], version: str = "0.5.23", base: dict[str, Any] = LLAMA) -> dict[str, Any]:
    return of_release(version, base, kvTransfer={"transport": "tcp", "offload": tiers})


def test_cpu_memory_is_divided_among_ranks_and_added_to_the_pod() -> None:
    wanted = spec(
        offload({"cpu": "100G"}),
        prefill={"parallelism": {"tensor": 2}, "resources": {"limits": {"memory": "200G"}}},
    )
    assert "--enable-hierarchical-cache" in args("prefill", wanted)
    assert option("prefill", wanted, "--hicache-size") == "50"
    memory = {"requests": "300000000000", "limits": "300000000000"}
    resources = container(resource(**wanted), "prefill")["resources"]
    assert {kind: resources[kind]["memory"] for kind in memory} == memory


def test_memory_that_no_rank_gets_a_gigabyte_of_is_raised_and_told() -> None:
    wanted = spec(offload({"cpu": "1G"}), prefill={"parallelism": {"tensor": 4}})
    assert option("prefill", wanted, "--hicache-size") == "1"
    assert parts(resource(**wanted).spec, RoleName.PREFILL).engine.memory == 4 * 10**9
    assert "raised to 4 GB" in notes("prefill", wanted)


def test_decode_keeps_no_tiers_of_its_own() -> None:
    for tiers in ({"cpu": "64Gi"}, DISK):
        engine = parts(resource(**offload(tiers)).spec, RoleName.DECODE).engine
        assert not [arg for arg in engine.args if "hicache" in arg or "offload" in arg]
        assert (engine.memory, engine.volumes) == (0, [])


def test_decode_files_answers_where_prefill_reads_them() -> None:
    wanted = offload(SHARED)
    assert {"--disaggregation-decode-enable-offload-kvcache", "--hicache-storage-backend=file"} <= set(
        args("decode", wanted)
    )
    assert "--enable-hierarchical-cache" not in args("decode", wanted)
    folders = {env(role, wanted)["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"] for role in ROLES}
    assert len(folders) == 1
    assert folders.pop().startswith("/kv/")
    mounts = [mount["name"] for mount in container(resource(**wanted), "decode")["volumeMounts"]]
    assert "kv-shared" in mounts


@pytest.mark.parametrize(("base", "files"), [(LLAMA, False), (DEEPSEEK, True)])
def test_decode_files_nothing_that_is_cut_for_other_ranks_than_prefills(
    base: dict[str, Any], files: bool
) -> None:
    wanted = spec(offload(SHARED, base=base), **tensor(4, 2))
    assert ("--disaggregation-decode-enable-offload-kvcache" in args("decode", wanted)) is files


def test_files_of_other_formats_are_kept_apart() -> None:
    folders = {
        env("prefill", wanted)["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"]
        for wanted in (
            offload(SHARED),
            spec(offload(SHARED), engine={"kvCacheDtype": "fp8"}),
            spec(offload(SHARED), engine={"blockSize": 16}),
            spec(offload(SHARED), model={"uri": "hf://org/other", "servedName": "llama"}),
        )
    }
    assert len(folders) == 4


def test_a_disk_is_bounded_since_a_pod_that_overfills_it_is_evicted() -> None:
    wanted = spec(offload(DISK), prefill={"parallelism": {"tensor": 2}})
    limit = int(env("prefill", wanted)["SGLANG_HICACHE_FILE_BACKEND_MAX_SIZE"])
    assert 0.9 * 1000 * 2**30 < 2 * limit < 1000 * 2**30


def test_a_disk_that_a_release_would_overfill_is_not_used() -> None:
    wanted = offload(DISK, "0.5.13")
    assert option("prefill", wanted, "--hicache-storage-backend") is None
    assert "/disk" not in [
        mount["mountPath"] for mount in container(resource(**wanted), "prefill")["volumeMounts"]
    ]
    assert "without end" in notes("prefill", wanted)


def test_files_are_not_used_where_a_release_would_mix_adapters() -> None:
    adapters = {"lora": {"adapters": [{"name": "a", "uri": "hf://org/a"}]}}
    for version, used in (("0.5.19", None), ("0.5.20", "file")):
        wanted = spec(offload(SHARED, version), model=adapters)
        assert option("prefill", wanted, "--hicache-storage-backend") == used


def test_of_a_disk_and_a_shared_file_system_the_shared_one_is_used_and_told() -> None:
    wanted = offload(SHARED | DISK)
    assert env("prefill", wanted)["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"].startswith("/kv/")
    assert "disk is not used" in notes("prefill", wanted)


def test_a_release_that_wants_more_memory_than_the_accelerator_has_says_so() -> None:
    assert "starts only if" in notes("prefill", offload({"cpu": "64Gi"}, "0.5.14"))
    assert "starts only if" not in notes("prefill", offload({"cpu": "64Gi"}, "0.5.15"))


# Kernels.


def test_compiled_kernels_are_kept_in_the_folder_that_the_pod_mounts() -> None:
    found = env("decode", LLAMA)
    for name in ("SGLANG_CACHE_DIR", "SGLANG_DG_CACHE_DIR", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"):
        assert found[name].startswith("/var/cache/kernels/")


# What a pair must share.


@pytest.mark.parametrize(
    ("item", "change"),
    [
        ("model", ["--model-path=org/other"]),
        ("model", ["--model", "org/other"]),
        ("page size", ["--page-size", "16"]),
        ("KV cache format", ["--kv-cache-dtype=fp8_e5m2"]),
        ("transfer", ["--disaggregation-transfer-backend=mooncake"]),
        ("attention tensor-parallel size", ["--tp-size=2"]),
        ("attention tensor-parallel size", ["--tensor-parallel-size", "2"]),
        ("attention tensor-parallel size", ["--tp", "2"]),
        ("attention tensor-parallel size", ["--tp", "4", "--attn-dp-size=2"]),
        ("attention tensor-parallel size", ["--tp", "4", "--dp-size", "2", "--enable-dp-attention"]),
        ("attention tensor-parallel size", ["--tp-size=many"]),
        ("speculative decoding", ["--speculative-algorithm=EAGLE"]),
    ],
)
def test_what_one_role_has_otherwise_is_a_difference(item: str, change: list[str]) -> None:
    assert differ(LLAMA) is None
    found = differ(spec(decode={"args": change}))
    assert found is not None
    assert found.startswith(item)
    assert ", " not in found.partition(" (")[0]


def test_an_overlay_counts() -> None:
    overlay = {
        "spec": {"containers": [{"name": "engine", "args": ["--model-path=org/llama", "--page-size=1"]}]}
    }
    assert "page size" in (differ(spec(decode={"podTemplate": overlay})) or "")


def test_another_release_in_one_role_is_a_difference_and_another_build_of_one_is_not() -> None:
    assert "release" in (differ(spec(decode={"image": "lmsysorg/sglang:v0.5.22"})) or "")
    assert differ(spec(decode={"image": "mine/sglang:v0.5.23-rocm700"})) is None
    assert "release" in (differ(spec(decode={"image": "lmsysorg/sglang:latest"})) or "")


def test_another_library_below_nixl_in_one_role_is_a_difference() -> None:
    other = [{"name": "SGLANG_DISAGGREGATION_NIXL_BACKEND", "value": "UCCL"}]
    assert "transfer" in (differ(spec(decode={"env": other})) or "")


def test_mooncake_over_tcp_is_the_same_however_a_release_is_told() -> None:
    over_tcp = spec(kvTransfer={"connector": "mooncake", "transport": "tcp"})
    told = {
        "args": ["--disaggregation-transfer-backend=mooncake"],
        "env": [{"name": "MC_FORCE_TCP", "value": "1"}],
    }
    assert differ(spec(over_tcp, decode=told)) is None


def test_replicas_of_attention_need_not_be_equally_many() -> None:
    assert differ(spec(prefill={"parallelism": {"data": 2}}, decode={"parallelism": {"data": 8}})) is None


def test_models_of_latent_attention_are_known_by_name() -> None:
    known = (
        "deepseek-ai/DeepSeek-V3.2",
        "nvidia/DeepSeek-R1-0528-FP4",
        "moonshotai/Kimi-K2-Instruct",
        "zai-org/GLM-5",
    )
    others = (
        "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
        "moonshotai/Kimi-Dev-72B",
        "meta-llama/Llama-3.3-70B",
    )
    assert [name for name in known if not latent_attention(name)] == []
    assert [name for name in others if latent_attention(name)] == []


# Public bugs that a manifest prevents.


@pytest.mark.parametrize("role", ROLES)
def test_sglang_12779_and_13657_a_dead_prefill_pod_has_no_decode_pods_killed(role: str) -> None:
    engine = container(resource(**LLAMA), role)
    paths = {name: engine[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    # With generation switched off, /health is answered by the HTTP server alone, and /health_generate as ever.
    assert paths == {"startup": "/health_generate", "readiness": "/health_generate", "liveness": "/health"}
    assert env(role, LLAMA)["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "false"


@pytest.mark.parametrize("role", ROLES)
def test_sglang_10110_and_10204_a_request_whose_pair_is_gone_does_not_wait_for_five_minutes(
    role: str,
) -> None:
    waits = [
        int(value)
        for name, value in env(role, LLAMA).items()
        if name.endswith(("BOOTSTRAP_TIMEOUT", "WAITING_TIMEOUT"))
    ]
    assert len(waits) == 1
    assert waits[0] < 300


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("version", "connector", "staged"),
    [
        ("0.5.23", "nixl", True),
        ("0.5.12", "nixl", True),
        ("0.5.11", "nixl", False),
        ("0.5.10", "mooncake", True),
        ("0.5.9", "mooncake", False),
    ],
)
def test_sglang_15674_heads_that_are_cut_anew_go_through_a_buffer_or_not_at_all(
    version: str,
    connector: str,
    staged: bool,
    role: str,
) -> None:
    wanted = of_release(version, kvTransfer={"connector": connector, "transport": "tcp"}, **tensor(1, 4))
    assert env(role, wanted).get("SGLANG_DISAGG_STAGING_BUFFER") == ("true" if staged else None)
    assert (differ(wanted) is None) is staged


def test_sglang_15674_equal_roles_need_no_buffer() -> None:
    assert "SGLANG_DISAGG_STAGING_BUFFER" not in env("prefill", spec(**tensor(4, 4)))


def test_a_model_of_latent_attention_would_not_start_with_the_buffer_and_needs_none() -> None:
    wanted = spec(DEEPSEEK, **tensor(8, 4))
    assert "SGLANG_DISAGG_STAGING_BUFFER" not in env("decode", wanted)
    assert differ(wanted) is None


def test_who_knows_that_a_model_needs_no_buffer_can_say_so() -> None:
    unknown = spec(**tensor(8, 4))
    assert "latent attention" in notes("decode", unknown)
    without = [{"name": "SGLANG_DISAGG_STAGING_BUFFER", "value": "false"}]
    assert differ(spec(unknown, engine={"env": without})) is None


@pytest.mark.parametrize(
    ("version", "connector", "hangs"),
    [("0.5.22", "nixl", True), ("0.5.23", "nixl", False), ("0.5.22", "mooncake", False)],
)
def test_sglang_37697_a_release_that_can_hang_on_long_prompts_says_so(
    version: str, connector: str, hangs: bool
) -> None:
    wanted = of_release(version, kvTransfer={"connector": connector, "transport": "tcp"}, **tensor(4, 8))
    assert ("can hang" in notes("decode", wanted)) is hangs


def test_a_buffer_in_one_role_only_is_a_difference() -> None:
    one = [{"name": "SGLANG_DISAGG_STAGING_BUFFER", "value": "true"}]
    assert "staging buffer" in (differ(spec(decode={"env": one})) or "")


@pytest.mark.parametrize(("version", "equal"), [("0.5.21", False), ("0.5.22", True)])
def test_llm_d_2433_sliding_windows_go_between_equal_roles_only_before_0_5_22(
    version: str, equal: bool
) -> None:
    gpt_oss = of_release(version, model={"uri": "hf://openai/gpt-oss-120b"}, **tensor(1, 4))
    assert (differ(gpt_oss) is None) is equal


def test_prefill_in_stages_is_staged_by_mooncake_only() -> None:
    stages = {"prefill": {"parallelism": {"pipeline": 2}}, "decode": {"parallelism": {"tensor": 2}}}
    assert "SGLANG_DISAGG_STAGING_BUFFER" not in env("prefill", spec(**stages))
    mooncake = spec(kvTransfer={"connector": "mooncake", "transport": "tcp"}, **stages)
    assert env("prefill", mooncake)["SGLANG_DISAGG_STAGING_BUFFER"] == "true"


@pytest.mark.parametrize("role", ROLES)
def test_sglang_20851_idle_connections_outlive_a_routers(role: str) -> None:
    assert env(role, of_release("0.5.10"))["SGLANG_TIMEOUT_KEEP_ALIVE"] == "120"
    assert "SGLANG_TIMEOUT_KEEP_ALIVE" not in env(role, of_release("0.5.9"))


@pytest.mark.parametrize("role", ROLES)
def test_a_pod_tells_the_other_role_its_own_address(role: str) -> None:
    assert env(role, LLAMA)["SGLANG_HOST_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}


@pytest.mark.parametrize(("role", "seconds"), [("prefill", 15 + 60 + 120 + 30), ("decode", 15 + 300 + 30)])
def test_the_grace_period_ends_a_drain_that_sglang_would_not(role: str, seconds: int) -> None:
    assert template(resource(**LLAMA), role)["spec"]["terminationGracePeriodSeconds"] == seconds
