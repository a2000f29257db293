"""TensorRT-LLM's pods, by release. Issues are public ones of NVIDIA/TensorRT-LLM."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from disagg.api.names import RoleName
from disagg.build.annotation_file import ENGINE_FILE_ANNOTATION
from disagg.build.engine_template import parts
from disagg.build.engines import trtllm
from disagg.build.engines.engine import EnginePod, PairProtocol
from disagg.build.engines.trtllm_config import laid_over
from disagg.build.engines.trtllm_releases import known
from disagg.build.transfer import resolve
from tests.unit.engine_flags import FlagList, flags
from tests.unit.resources import container, overlaid, resource, template

ENGINE_ROLES = ("prefill", "decode")
IMAGE = "nvcr.io/nvidia/tensorrt-llm/release"
EFA = {"transport": "rdma", "fabric": "efa"}
CONFIG_VOLUME = "engine-config"


def of(release: str = "1.3", /, **spec: object) -> dict[str, Any]:
    """Fields of a resource that runs a release of TensorRT-LLM."""
    return overlaid({"engine": {"kind": "trtllm", "image": f"{IMAGE}:{release}.0"}}, spec)


def args(role: str = "prefill", release: str = "1.3", /, **spec: object) -> list[str]:
    return list(container(resource(**of(release, **spec)), role)["args"])


def config(role: str = "prefill", release: str = "1.3", /, **spec: object) -> dict[str, Any]:
    """The file as the engine reads it."""
    annotations = template(resource(**of(release, **spec)), role)["metadata"]["annotations"]
    return dict(yaml.safe_load(annotations[ENGINE_FILE_ANNOTATION]))


def environment(role: str = "prefill", release: str = "1.3", /, **spec: object) -> dict[str, str]:
    env = container(resource(**of(release, **spec)), role)["env"]
    return {variable["name"]: variable["value"] for variable in env}


def pod(role: str = "prefill", release: str = "1.3", /, **spec: object) -> EnginePod:
    return parts(resource(**of(release, **spec)).spec, RoleName(role)).engine


def compatibility(role: str = "prefill", release: str = "1.3", /, **spec: object) -> dict[str, str]:
    return trtllm.compatibility(template(resource(**of(release, **spec)), role))


def file_flag(arguments: list[str]) -> str:
    (flag,) = (arg.partition("=")[0] for arg in arguments if arg.endswith("/config.yaml"))
    return flag


class TestServing:
    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_the_model_is_served_to_other_pods_by_the_backend_that_can_transfer(self, role: str) -> None:
        engine = container(resource(**of()), role)
        assert engine["command"] == ["trtllm-serve"]
        assert engine["args"][:4] == ["org/llama", "--host=0.0.0.0", "--port=8000", "--backend=pytorch"]

    def test_a_model_in_a_volume_is_served_by_its_path(self) -> None:
        assert args(model={"uri": "pvc://models/llama"})[0] == "/model/llama"

    @pytest.mark.parametrize(
        ("release", "flag"),
        [("1.1", "--extra_llm_api_options"), ("1.2", "--extra_llm_api_options"), ("1.3", "--config")],
    )
    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_the_configuration_file_is_where_the_flag_of_the_release_says(
        self, role: str, release: str, flag: str
    ) -> None:
        wanted = resource(**of(release))
        (mount,) = (item for item in container(wanted, role)["volumeMounts"] if item["name"] == CONFIG_VOLUME)
        (volume,) = (
            item for item in template(wanted, role)["spec"]["volumes"] if item["name"] == CONFIG_VOLUME
        )
        (item,) = volume["downwardAPI"]["items"]
        assert f"{flag}={mount['mountPath']}/{item['path']}" in args(role, release)
        assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{ENGINE_FILE_ANNOTATION}']"

    def test_the_name_that_requests_ask_for_is_told_since_1_3(self) -> None:
        named = {"model": {"servedName": "mine"}}
        assert "--served_model_name=mine" in args(**named)
        assert not [arg for arg in args("prefill", "1.2", **named) if arg.startswith("--served_model_name")]

    @pytest.mark.parametrize("release", ["1.1", "1.2", "1.3"])
    def test_the_revision_is_told_by_the_file_in_all_releases(self, release: str) -> None:
        assert config("prefill", release, model={"revision": "abc"})["revision"] == "abc"
        assert "revision" not in config("prefill", release)

    def test_the_image_that_the_role_runs_tells_the_release(self) -> None:
        wanted = of("1.3", prefill={"image": f"{IMAGE}:1.2.1"})
        assert file_flag(container(resource(**wanted), "prefill")["args"]) == "--extra_llm_api_options"
        assert file_flag(container(resource(**wanted), "decode")["args"]) == "--config"

    def test_compiled_kernels_are_kept_in_the_kernels_volume(self) -> None:
        wanted = resource(**of(engine={"kernelCache": {"claim": "kernels"}}))
        (mount,) = (item for item in container(wanted)["volumeMounts"] if item["name"] == "kernels")
        caches = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRTLLM_DG_CACHE_DIR", "CUDA_CACHE_PATH")
        assert all(environment()[name].startswith(f"{mount['mountPath']}/") for name in caches)

    def test_ranks_have_shared_memory(self) -> None:
        (shm,) = (item for item in template(resource(**of()))["spec"]["volumes"] if item["name"] == "shm")
        assert shm["emptyDir"] == {"medium": "Memory"}


class TestParallelism:
    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ({}, ["--tp_size=1", "--pp_size=1"]),
            ({"tensor": 4}, ["--tp_size=4", "--pp_size=1"]),
            ({"tensor": 2, "pipeline": 4}, ["--tp_size=2", "--pp_size=4"]),
            ({"tensor": 8, "expert": True}, ["--tp_size=8", "--pp_size=1", "--ep_size=8"]),
            ({"data": 8, "expert": True}, ["--tp_size=8", "--pp_size=1", "--ep_size=8"]),
        ],
    )
    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_ranks_are_those_of_the_role(
        self, role: str, wanted: dict[str, Any], expected: list[str]
    ) -> None:
        sizes = [arg for arg in args(role, **{role: {"parallelism": wanted}}) if "_size=" in arg]
        assert sizes == expected

    def test_data_parallelism_is_attention_data_parallelism(self) -> None:
        spread = {"decode": {"parallelism": {"data": 8}}}
        assert config("decode", **spread)["enable_attention_dp"] is True
        assert "enable_attention_dp" not in config("prefill", **spread)


class TestTransfer:
    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize(("connector", "backend"), [("nixl", "NIXL"), ("mooncake", "MOONCAKE")])
    def test_the_connector_is_named_and_not_left_to_a_default(
        self, role: str, connector: str, backend: str
    ) -> None:
        transfer = {"connector": connector, "transport": "tcp"}
        assert config(role, kvTransfer=transfer)["cache_transceiver_config"]["backend"] == backend

    def test_prefill_hands_over_without_the_overlap_scheduler(self) -> None:
        assert config("prefill")["disable_overlap_scheduler"] is True
        assert "disable_overlap_scheduler" not in config("decode")

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_7575_kv_cache_that_nobody_pulls_is_given_up_after_the_lease(self, role: str) -> None:
        """Without a timeout blocks of cancelled requests are lost until the pool is empty."""
        long = {"transport": "tcp", "leaseSeconds": 600}
        timeouts = [
            config(role, "1.3", **spec)["cache_transceiver_config"]["kv_transfer_timeout_ms"]
            for spec in ({}, {"kvTransfer": long})
        ]
        assert timeouts == [300_000, 600_000]

    def test_1_1_knows_no_timeout_and_would_not_start_with_one(self) -> None:
        assert config("prefill", "1.1")["cache_transceiver_config"] == {"backend": "NIXL"}
        assert any("leaseSeconds has no effect" in text for text in pod("prefill", "1.1").notes)

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize(
        ("transfer", "expected"), [({"transport": "tcp"}, "UCX"), (EFA, "LIBFABRIC")], ids=["tcp", "efa"]
    )
    def test_nixl_is_told_what_to_move_bytes_with(
        self, role: str, transfer: dict[str, Any], expected: str
    ) -> None:
        assert environment(role, kvTransfer=transfer)["TRTLLM_NIXL_KVCACHE_BACKEND"] == expected

    def test_mooncake_has_no_backend_of_nixl(self) -> None:
        mooncake = {"connector": "mooncake", "transport": "tcp"}
        assert "TRTLLM_NIXL_KVCACHE_BACKEND" not in environment(kvTransfer=mooncake)

    def test_nixl_of_1_1_has_one_backend(self) -> None:
        assert "TRTLLM_NIXL_KVCACHE_BACKEND" not in environment("prefill", "1.1")

    def test_a_fabric_that_1_1_cannot_use_is_told(self) -> None:
        assert any("KV cache crosses TCP" in text for text in pod("prefill", "1.1", kvTransfer=EFA).notes)

    def test_an_image_without_the_plugin_for_efa_is_told(self) -> None:
        own = {"engine": {"kind": "trtllm", "image": "registry.local/trtllm-efa:1.3.0"}}
        assert any("no plugin of NIXL for libfabric" in text for text in pod(kvTransfer=EFA).notes)
        assert not parts(resource(**own, kvTransfer=EFA).spec, RoleName.PREFILL).engine.notes

    def test_prefill_answers_before_decode_is_asked(self) -> None:
        assert trtllm.protocol(resolve(resource(**of()).spec)) is PairProtocol.CONTEXT_FIRST

    def test_decode_never_computes_a_prompt_again(self) -> None:
        policy = {"transport": "tcp", "loadFailurePolicy": "recompute"}
        assert any("recompute has no effect" in text for text in pod(kvTransfer=policy).notes)


class TestCache:
    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_both_ends_have_blocks_of_one_size(self, role: str) -> None:
        assert config(role)["kv_cache_config"]["tokens_per_block"] == 32
        assert config(role, engine={"blockSize": 64})["kv_cache_config"]["tokens_per_block"] == 64

    def test_1_1_may_not_know_the_size_of_blocks_so_it_is_told_only_if_somebody_asks(self) -> None:
        assert "tokens_per_block" not in config("prefill", "1.1")["kv_cache_config"]
        asked = config("prefill", "1.1", engine={"blockSize": 64})
        assert asked["kv_cache_config"]["tokens_per_block"] == 64

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [("auto", "auto"), ("fp8", "fp8"), ("fp8_e4m3", "fp8"), ("nvfp4", "nvfp4"), ("bfloat16", "auto")],
    )
    def test_number_formats_have_the_engines_names(self, wanted: str, expected: str) -> None:
        assert config(engine={"kvCacheDtype": wanted})["kv_cache_config"]["dtype"] == expected

    def test_the_attention_backend_is_the_users(self) -> None:
        assert config(engine={"attentionBackend": "FLASHINFER"})["attn_backend"] == "FLASHINFER"
        assert "attn_backend" not in config()

    def test_cpu_memory_is_divided_among_the_ranks_each_of_which_takes_its_own(self) -> None:
        spec = {
            "kvTransfer": {"transport": "tcp", "offload": {"cpu": "64Gi"}},
            "decode": {"parallelism": {"tensor": 4}, "resources": {"requests": {"memory": "64Gi"}}},
        }
        assert config("decode", **spec)["kv_cache_config"]["host_cache_size"] == 16 * 2**30
        requested = container(resource(**of("1.3", **spec)), "decode")["resources"]["requests"]["memory"]
        assert int(requested) == 128 * 2**30

    def test_without_offload_there_is_no_host_cache(self) -> None:
        assert "host_cache_size" not in config()["kv_cache_config"]

    @pytest.mark.parametrize(
        "tier", [{"disk": {"size": "1Ti"}}, {"sharedFileSystem": {"claim": "kv"}}], ids=["disk", "shared"]
    )
    def test_tiers_that_it_does_not_have_are_left_out_and_told(self, tier: dict[str, Any]) -> None:
        spec = {"kvTransfer": {"transport": "tcp", "offload": {"cpu": "64Gi"} | tier}}
        names = {volume["name"] for volume in template(resource(**of("1.3", **spec)))["spec"]["volumes"]}
        assert not {name for name in names if name.startswith("kv-")}
        assert any("are left out" in text for text in pod(**spec).notes)


class TestConfig:
    def test_the_users_options_are_laid_over(self) -> None:
        wanted = {
            "kv_cache_config": {"free_gpu_memory_fraction": 0.8, "tokens_per_block": 128},
            "cuda_graph_config": {"batch_sizes": [1, 2]},
        }
        found = config(engine={"config": wanted})
        assert found["kv_cache_config"]["free_gpu_memory_fraction"] == 0.8
        assert found["kv_cache_config"]["tokens_per_block"] == 128
        assert found["kv_cache_config"]["enable_block_reuse"] is True
        assert found["cuda_graph_config"] == {"batch_sizes": [1, 2]}

    @pytest.mark.parametrize(
        ("base", "overlay", "expected"),
        [
            ({"a": 1}, {}, {"a": 1}),
            ({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}),
            ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
            ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
            ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
            ({"a": {"b": 1}}, {"a": 2}, {"a": 2}),
            ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
            ({}, {"a": {"b": None}}, {"a": {}}),
        ],
    )
    def test_blocks_are_merged_the_rest_is_replaced_and_null_removes(
        self, base: dict[str, Any], overlay: dict[str, Any], expected: dict[str, Any]
    ) -> None:
        assert laid_over(base, overlay) == expected

    @pytest.mark.parametrize(
        ("changed", "option"),
        [
            ({"cache_transceiver_config": {"backend": "UCX"}}, "cache_transceiver_config.backend"),
            ({"cache_transceiver_config": None}, "cache_transceiver_config.backend"),
            ({"disable_overlap_scheduler": False}, "disable_overlap_scheduler"),
            ({"return_perf_metrics": False}, "return_perf_metrics"),
        ],
    )
    def test_an_option_that_something_depends_on_is_the_users_to_change_and_told(
        self, changed: dict[str, Any], option: str
    ) -> None:
        (text,) = pod(engine={"config": changed}).notes
        assert text.startswith(f"engine.config changes {option}: ")

    def test_what_the_operator_renders_is_told_of_in_no_note(self) -> None:
        assert [pod(role).notes for role in ENGINE_ROLES] == [[], []]


class TestReleases:
    @pytest.mark.parametrize(
        ("tag", "assumed"),
        [
            ("1.1.0", (1, 1)),
            ("1.2.1", (1, 2)),
            ("1.3.0rc27", (1, 3)),
            ("1.0.0", (1, 1)),
            ("1.4.0rc1", (1, 3)),
            ("latest", (1, 3)),
        ],
    )
    def test_an_unknown_release_is_started_like_the_nearest_known_one(
        self, tag: str, assumed: tuple[int, ...]
    ) -> None:
        image = {"engine": {"kind": "trtllm", "image": f"{IMAGE}:{tag}"}}
        started = container(resource(**image))["args"]
        assert file_flag(started) == file_flag(args("prefill", ".".join(map(str, assumed))))

    @pytest.mark.parametrize("tag", ["1.0.0", "1.4.0rc1", "latest"])
    def test_an_unknown_release_is_told(self, tag: str) -> None:
        image = {"engine": {"kind": "trtllm", "image": f"{IMAGE}:{tag}"}}
        assert any(
            "started like" in text for text in parts(resource(**image).spec, RoleName.DECODE).engine.notes
        )

    def test_the_release_is_the_users_where_the_tag_does_not_tell_it(self) -> None:
        image = {"engine": {"kind": "trtllm", "image": "mine/trtllm:v7", "version": "1.2.1"}}
        assert file_flag(container(resource(**image))["args"]) == "--extra_llm_api_options"

    def test_a_release_without_gauges_cannot_be_scaled_by_them(self) -> None:
        scaled = {"prefill": {"autoscaling": {"maxReplicas": 4}}}
        assert any("autoscaling needs" in text for text in pod("prefill", "1.2", **scaled).notes)
        assert not pod("prefill", "1.3", **scaled).notes

    def test_mooncake_came_with_1_2(self) -> None:
        mooncake = {"kvTransfer": {"connector": "mooncake", "transport": "tcp"}}
        assert any(
            "mooncake needs TensorRT-LLM 1.2" in text for text in pod("prefill", "1.1", **mooncake).notes
        )
        assert not pod("prefill", "1.2", **mooncake).notes

    def test_known_releases_go_from_the_oldest_to_the_newest(self) -> None:
        assert [known(found) for found in ((0, 21), (1, 2, 1), (2, 0), None)] == [
            (1, 1),
            (1, 2),
            (1, 3),
            (1, 3),
        ]


ALL_OPTIONS = of(
    "1.2",
    model={"revision": "abc"},
    engine={"attentionBackend": "TRTLLM", "kvCacheDtype": "fp8", "blockSize": 64},
    kvTransfer={"transport": "tcp", "offload": {"cpu": "8Gi"}},
    decode={"parallelism": {"data": 4, "pipeline": 2, "expert": True}},
)
"""Fields that have everything rendered that 1.2 knows."""


class TestWhatTheReleaseAccepts:
    @pytest.fixture
    def known(self) -> FlagList:
        return flags("trtllm", "1.2")

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_every_argument_is_one_of_the_release(self, role: str, known: FlagList) -> None:
        assert known.refused(container(resource(**ALL_OPTIONS), role)["args"]) == []

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize("connector", ["nixl", "mooncake"])
    def test_every_option_of_the_file_is_one_of_the_release_which_refuses_others(
        self, role: str, connector: str, known: FlagList
    ) -> None:
        wanted = overlaid(ALL_OPTIONS, {"kvTransfer": {"connector": connector}})
        annotations = template(resource(**wanted), role)["metadata"]["annotations"]
        assert known.unknown_options(yaml.safe_load(annotations[ENGINE_FILE_ANNOTATION])) == []

    def test_the_variable_of_nixl_is_read(self, known: FlagList) -> None:
        assert known.reads("TRTLLM_NIXL_KVCACHE_BACKEND")


class TestHealthAndMetrics:
    @pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
    def test_12313_no_probe_waits_for_a_generation(self, probe: str) -> None:
        """A hanging worker answers /health, but /health_generate waits in the queue: it would end busy pods."""
        assert container(resource(**of()))[probe]["httpGet"]["path"] == "/health"

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_4926_metrics_are_served_for_prometheus(self, role: str) -> None:
        """/metrics is JSON; what Prometheus reads is there with one option, and has gauges with another."""
        assert trtllm.METRICS is not None
        assert trtllm.METRICS.path == "/prometheus/metrics"
        assert config(role)["return_perf_metrics"] is True
        assert config(role)["enable_iter_perf_stats"] is True


class TestStopping:
    def times(self, role: str, /, **spec: object) -> tuple[int, int]:
        made = template(resource(**of("1.3", **spec)), role)["spec"]
        before = made["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        return before, made["terminationGracePeriodSeconds"]

    def test_prefill_stays_until_decode_can_have_pulled_everything(self) -> None:
        """It ends once it has answered, and what decode has yet to pull would be gone."""
        before, grace = self.times("prefill")
        assert before == 15 + 300
        assert grace >= before + 60

    def test_prefill_stays_for_the_users_lease(self) -> None:
        before, _ = self.times("prefill", kvTransfer={"transport": "tcp", "leaseSeconds": 60})
        assert before == 15 + 60

    def test_decode_is_told_to_stop_at_once_since_it_finishes_its_answers(self) -> None:
        before, grace = self.times("decode")
        assert before == 15
        assert grace >= before + 300

    @pytest.mark.parametrize("seconds", [300, 400])
    def test_the_users_drain_is_all_that_prefill_takes(self, seconds: int) -> None:
        before, grace = self.times("prefill", prefill={"drainSeconds": seconds})
        assert before == 15 + 300
        assert grace == 15 + seconds + 30


class TestAdapters:
    def test_adapters_are_left_out_and_told_since_requests_name_them_by_path(self) -> None:
        adapters = {"lora": {"adapters": [{"name": "sql", "uri": "hf://org/sql"}]}}
        assert "lora_config" not in config(model=adapters)
        assert any("model.lora is left out" in text for text in pod(model=adapters).notes)


class TestCompatibility:
    def test_the_roles_agree_whatever_their_parallelism(self) -> None:
        spec = {
            "prefill": {"parallelism": {"tensor": 1}, "args": ["--max_batch_size=8"]},
            "decode": {"parallelism": {"data": 4, "expert": True}},
        }
        assert compatibility("prefill", **spec) == compatibility("decode", **spec)

    @pytest.mark.parametrize(
        ("item", "spec"),
        [
            ("release", {"prefill": {"image": f"{IMAGE}:1.3.0rc5"}}),
            ("model", {"model": {"uri": "hf://org/another"}}),
            ("revision", {"model": {"revision": "abc"}}),
            ("kv_cache_config.dtype", {"engine": {"kvCacheDtype": "fp8"}}),
            ("kv_cache_config.tokens_per_block", {"engine": {"blockSize": 64}}),
            (
                "cache_transceiver_config.backend",
                {"kvTransfer": {"connector": "mooncake", "transport": "tcp"}},
            ),
            ("attn_backend", {"engine": {"attentionBackend": "FLASHINFER"}}),
            (
                "TRTLLM_NIXL_KVCACHE_BACKEND",
                {"prefill": {"env": [{"name": "TRTLLM_NIXL_KVCACHE_BACKEND", "value": "LIBFABRIC"}]}},
            ),
        ],
    )
    def test_what_the_two_ends_must_share_is_read_from_the_pod(self, item: str, spec: dict[str, Any]) -> None:
        plain, other = compatibility(), compatibility("prefill", **spec)
        assert plain[item] != other[item]

    def test_an_overlay_on_the_file_is_seen(self) -> None:
        file = "kv_cache_config: {tokens_per_block: 128}"
        overlay = {"podTemplate": {"metadata": {"annotations": {ENGINE_FILE_ANNOTATION: file}}}}
        found = compatibility("prefill", prefill=overlay)
        assert found["kv_cache_config.tokens_per_block"] == "128"
        assert found["cache_transceiver_config.backend"] == ""

    @pytest.mark.parametrize("file", ["", "a: [", "- a list", "kv_cache_config: text"])
    def test_a_file_that_is_none_stops_nothing(self, file: str) -> None:
        overlay = {"podTemplate": {"metadata": {"annotations": {ENGINE_FILE_ANNOTATION: file}}}}
        assert compatibility("prefill", prefill=overlay)["kv_cache_config.tokens_per_block"] == "32"

    @pytest.mark.parametrize(
        "words",
        [
            {"command": ["trtllm-serve"], "args": ["org/llama", "--port=8000"]},
            {"command": ["/usr/local/bin/trtllm-serve", "serve", "org/llama"], "args": []},
            {"args": ["trtllm-serve", "--port=8000", "org/llama"]},
        ],
    )
    def test_the_model_is_the_first_word_after_the_command(self, words: dict[str, Any]) -> None:
        found = trtllm.compatibility({"spec": {"containers": [{"name": "engine"} | words]}})
        assert found["model"] == "org/llama"

    def test_without_the_engines_container_there_is_nothing_to_compare(self) -> None:
        assert trtllm.compatibility({"spec": {"containers": [{"name": "sidecar"}]}}) == {}
