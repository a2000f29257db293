"""vLLM's pods, by release. Facts are those of its released sources; issues are public ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from disagg.api.names import RoleName
from disagg.build.engine_template import parts
from disagg.build.engines import vllm
from disagg.build.engines.engine import STARTUP_SECONDS, EnginePod, PairProtocol
from disagg.build.engines.vllm_releases import Span, known
from disagg.build.transfer import resolve
from tests.unit.resources import container, overlaid, resource, template

ENGINE_ROLES = ("prefill", "decode")
RDMA = {"transport": "rdma", "fabric": "infiniband"}
CPU: dict[str, Any] = {"accelerator": {"perRank": 0}}
MOONCAKE: dict[str, Any] = {"kvTransfer": {"connector": "mooncake", "transport": "tcp"}}
LMCACHE: dict[str, Any] = {
    "kvTransfer": {"connector": "lmcache", "transport": "tcp"},
    "router": {"kind": "none"},
    "prefill": {"parallelism": {"tensor": 2}},
    "decode": {"parallelism": {"tensor": 2}},
}


def of(release: str, /, **spec: object) -> dict[str, Any]:
    """Fields of a resource that runs a release of vLLM."""
    return overlaid({"engine": {"image": f"vllm/vllm-openai:v{release}.0"}}, spec)


def args(role: str = "prefill", /, **spec: object) -> list[str]:
    return list(container(resource(**spec), role)["args"])


def environment(role: str = "prefill", /, **spec: object) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in container(resource(**spec), role)["env"]}


def values(role: str = "prefill", /, **spec: object) -> dict[str, str]:
    return {name: item["value"] for name, item in environment(role, **spec).items() if "value" in item}


def pod(role: str = "prefill", /, **spec: object) -> EnginePod:
    return parts(resource(**spec).spec, RoleName(role)).engine


def kv_config(role: str = "prefill", /, **spec: object) -> dict[str, Any]:
    (option,) = [arg for arg in args(role, **spec) if arg.startswith("--kv-transfer-config=")]
    return dict(json.loads(option.partition("=")[2]))


def children(role: str = "prefill", /, **spec: object) -> list[dict[str, Any]]:
    return list(kv_config(role, **spec)["kv_connector_extra_config"]["connectors"])


def with_offload(release: str = "0.33", /, **offload: object) -> dict[str, Any]:
    return of(release, kvTransfer={"transport": "tcp", "offload": {"cpu": "64Gi"} | offload})


class TestServing:
    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_the_model_comes_first_since_releases_differ_in_its_flag(self, role: str) -> None:
        wanted = resource(model={"servedName": "mine", "revision": "v2"})
        engine = container(wanted, role)
        assert engine["command"] == ["vllm", "serve"]
        assert engine["args"][:4] == ["org/llama", "--served-model-name=mine", "--revision=v2", "--port=8000"]

    def test_a_model_of_the_image_is_served_by_its_path(self) -> None:
        assert args(model={"uri": "/models/llama"})[0] == "/models/llama"

    def test_without_a_revision_there_is_no_flag_for_it(self) -> None:
        assert not any(arg.startswith("--revision") for arg in args())

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_each_role_has_its_own_parallelism(self, role: str) -> None:
        mine = {
            "prefill": ["--tensor-parallel-size=2"],
            "decode": ["--tensor-parallel-size=4", "--data-parallel-size=2", "--enable-expert-parallel"],
        }
        found = args(
            role,
            prefill={"parallelism": {"tensor": 2}},
            decode={"parallelism": {"tensor": 4, "data": 2, "expert": True}},
        )
        assert [arg for arg in found if "parallel" in arg] == mine[role]

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize("spec", [{}, CPU])
    def test_blocks_are_large_on_gpu_and_cpu(self, role: str, spec: dict[str, Any]) -> None:
        assert "--block-size=128" in args(role, **spec)

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_both_roles_have_the_block_size_of_the_resource(self, role: str) -> None:
        assert "--block-size=64" in args(role, engine={"blockSize": 64})

    @pytest.mark.parametrize("dtype", ["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4"])
    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_both_roles_have_the_number_format_of_the_resource(self, role: str, dtype: str) -> None:
        assert f"--kv-cache-dtype={dtype}" in args(role, engine={"kvCacheDtype": dtype})

    def test_an_image_without_the_connector_is_told(self) -> None:
        """vLLM ends with "NIXL is not available"."""
        cpu = {"engine": {"image": "vllm/vllm-openai-cpu:v0.32.0"}}
        assert any("pip install nixl" in note for note in pod(**cpu).notes)
        assert pod(**of("0.32")).notes == []
        assert pod(**cpu, **MOONCAKE).notes == []

    def test_a_number_format_that_the_release_lacks_is_told(self) -> None:
        nvfp4 = {"engine": {"kvCacheDtype": "nvfp4"}}
        assert any("nvfp4" in note for note in pod(**of("0.19", **nvfp4)).notes)
        assert pod(**of("0.20", **nvfp4)).notes == []

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize(
        ("release", "flag", "variable"), [("0.11", None, "X"), ("0.12", None, "X"), ("0.13", "X", None)]
    )
    def test_the_attention_backend_is_given_as_the_release_reads_it(
        self, role: str, release: str, flag: str | None, variable: str | None
    ) -> None:
        spec = of(release, engine={"attentionBackend": "X"})
        assert ("--attention-backend=X" in args(role, **spec)) == (flag is not None)
        assert values(role, **spec).get("VLLM_ATTENTION_BACKEND") == variable

    @pytest.mark.parametrize(("release", "quiet"), [("0.15", False), ("0.16", True), ("0.33", True)])
    def test_probes_are_not_logged_where_the_release_can_leave_them_out(
        self, release: str, quiet: bool
    ) -> None:
        assert ("--disable-access-log-for-endpoints=/health,/metrics" in args(**of(release))) == quiet

    def test_probes_work_with_an_api_key_since_health_needs_none(self) -> None:
        health = pod().health
        assert {health.startup, health.ready, health.live} == {"/health"}

    def test_a_router_that_keeps_connections_for_90_seconds_meets_no_reset(self) -> None:
        assert int(values()["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > 90

    @pytest.mark.parametrize(("release", "known_to_it"), [("0.13", False), ("0.14", True)])
    def test_the_server_waits_for_its_engine_as_long_as_the_startup_probe(
        self, release: str, known_to_it: bool
    ) -> None:
        found = values(**of(release)).get("VLLM_ENGINE_READY_TIMEOUT_S")
        assert found == (str(STARTUP_SECONDS) if known_to_it else None)

    @pytest.mark.parametrize(
        "name", ["VLLM_CACHE_ROOT", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"]
    )
    def test_compiled_kernels_are_where_any_user_can_write_and_a_restart_finds_them(self, name: str) -> None:
        mounts = {mount["mountPath"] for mount in container(resource())["volumeMounts"]}
        assert values()[name].startswith("/var/cache/kernels/")
        assert "/var/cache/kernels" in mounts

    def test_prefix_hashes_agree_between_pods(self) -> None:
        assert values("prefill")["PYTHONHASHSEED"] == values("decode")["PYTHONHASHSEED"]


class TestRelease:
    def test_it_is_that_of_the_image_that_the_role_runs(self) -> None:
        spec = of("0.33", prefill={"image": "vllm/vllm-openai:v0.11.0"})
        assert kv_config("prefill", **spec)["kv_role"] == "kv_both"
        assert kv_config("decode", **spec)["kv_role"] == "kv_consumer"

    def test_it_is_told_for_images_whose_tag_is_another_one(self) -> None:
        spec = {"engine": {"image": "ghcr.io/llm-d/llm-d-cuda:v0.3.1"}}
        assert any("set engine.version" in note for note in pod(**spec).notes)
        assert pod(**overlaid(spec, {"engine": {"version": "0.33.0"}})).notes == []

    def test_a_newer_one_than_any_known_is_started_like_the_newest_and_told(self) -> None:
        assert args(**of("0.99")) == args(**of("0.33"))
        assert any("newer" in note for note in pod(**of("0.99")).notes)

    @pytest.mark.parametrize(
        ("found", "like"), [(None, (0, 33)), ((0, 9, 1), (0, 11)), ((0, 18, 2), (0, 18)), ((1, 0), (0, 33))]
    )
    def test_an_unknown_one_is_taken_for_the_nearest_known(
        self, found: tuple[int, ...] | None, like: tuple[int, ...]
    ) -> None:
        assert known(found) == like

    @pytest.mark.parametrize(
        ("release", "within"), [((0, 15), False), ((0, 16), True), ((0, 28), True), ((0, 29), False)]
    )
    def test_a_span_holds_its_ends(self, release: tuple[int, ...], within: bool) -> None:
        assert (release in Span(first=(0, 16), last=(0, 28))) == within


class TestNixl:
    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize("release", ["0.11", "0.18", "0.33"])
    def test_vllm27083_decode_does_not_look_for_prefill_on_its_own_address(
        self, role: str, release: str
    ) -> None:
        assert environment(role, **of(release))["VLLM_NIXL_SIDE_CHANNEL_HOST"]["valueFrom"] == {
            "fieldRef": {"fieldPath": "status.podIP"}
        }

    def test_ray60817_the_address_is_that_of_the_pod_and_not_of_the_node(self) -> None:
        assert environment()["VLLM_HOST_IP"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}

    def test_vllm18209_a_service_called_vllm_does_not_set_its_port(self) -> None:
        assert template(resource("vllm"))["spec"]["enableServiceLinks"] is False

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize("name", ["VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT"])
    def test_an_overlay_that_takes_the_side_channel_away_breaks_the_pair(self, role: str, name: str) -> None:
        assert name in pod(role).required_env

    def test_0_11_does_not_handshake_on_the_port_of_its_kv_events(self) -> None:
        assert values(**of("0.11"))["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "5600"

    @pytest.mark.parametrize(
        ("release", "last"), [("0.11", 5607), ("0.12", 5601), ("0.33", 5601)], ids=["0.11", "0.12", "0.33"]
    )
    def test_the_port_of_each_rank_is_declared(self, release: str, last: int) -> None:
        spec = of(release, decode={"parallelism": {"tensor": 4, "data": 2}})
        ports = [port["containerPort"] for port in container(resource(**spec), "decode")["ports"]]
        assert ports == [8000, *range(5600, last + 1)]

    @pytest.mark.parametrize(
        ("release", "prefill", "decode"),
        [
            ("0.11", "kv_both", "kv_both"),
            ("0.18", "kv_both", "kv_both"),
            ("0.19", "kv_producer", "kv_consumer"),
            ("0.33", "kv_producer", "kv_consumer"),
        ],
    )
    def test_roles_are_as_the_release_documents_them(self, release: str, prefill: str, decode: str) -> None:
        assert kv_config("prefill", **of(release))["kv_role"] == prefill
        assert kv_config("decode", **of(release))["kv_role"] == decode

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize(
        ("transfer", "backend"),
        [
            ({"transport": "tcp"}, "UCX"),
            (RDMA, "UCX"),
            (RDMA | {"backend": "uccl"}, "UCCL"),
            ({"transport": "rdma", "fabric": "efa"}, "LIBFABRIC"),
        ],
        ids=["tcp", "infiniband", "uccl", "efa"],
    )
    def test_vllm27055_the_backend_is_the_one_that_the_fabric_needs(
        self, role: str, transfer: dict[str, Any], backend: str
    ) -> None:
        assert kv_config(role, kvTransfer=transfer)["kv_connector_extra_config"]["backends"] == [backend]

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize(
        ("accelerator", "device"),
        [
            ({}, "cuda"),
            ({"resource": "amd.com/gpu"}, "cuda"),
            ({"resource": "gpu.intel.com/xe"}, "xpu"),
            ({"resource": "google.com/tpu"}, "cpu"),
            ({"perRank": 0}, "cpu"),
        ],
    )
    def test_buffers_are_where_nixl_reaches_them(
        self, role: str, accelerator: dict[str, Any], device: str
    ) -> None:
        assert kv_config(role, accelerator=accelerator)["kv_buffer_device"] == device

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize("policy", ["fail", "recompute"])
    def test_what_becomes_of_a_failed_load_is_said_where_the_release_asks(
        self, role: str, policy: str
    ) -> None:
        transfer = {"kvTransfer": {"transport": "tcp", "loadFailurePolicy": policy}}
        assert "kv_load_failure_policy" not in kv_config(role, **of("0.12", **transfer))
        # The first releases with it recomputed by default.
        assert kv_config(role, **of("0.13", **transfer))["kv_load_failure_policy"] == policy

    @pytest.mark.parametrize(
        ("release", "by_config", "by_variable"),
        [("0.11", None, "300"), ("0.21", None, "300"), ("0.22", 120, None), ("0.33", 120, None)],
    )
    def test_a_lease_is_long_enough_for_a_queue_before_decode(
        self, release: str, by_config: int | None, by_variable: str | None
    ) -> None:
        extra = kv_config("prefill", **of(release))["kv_connector_extra_config"]
        assert extra.get("kv_lease_duration") == by_config
        assert values("prefill", **of(release)).get("VLLM_NIXL_ABORT_REQUEST_TIMEOUT") == by_variable

    @pytest.mark.parametrize("release", ["0.21", "0.33"])
    def test_the_lease_is_prefills_alone(self, release: str) -> None:
        assert "kv_lease_duration" not in kv_config("decode", **of(release))["kv_connector_extra_config"]
        assert "VLLM_NIXL_ABORT_REQUEST_TIMEOUT" not in values("decode", **of(release))

    def test_the_lease_of_the_resource_counts(self) -> None:
        extra = kv_config(kvTransfer={"transport": "tcp", "leaseSeconds": 60})["kv_connector_extra_config"]
        assert extra["kv_lease_duration"] == 60

    @pytest.mark.parametrize(
        ("release", "kept"),
        [("0.17", False), ("0.18", True), ("0.21", True), ("0.22", False), ("0.33", False)],
    )
    def test_the_hybrid_manager_is_kept_where_vllm_would_turn_it_off(self, release: str, kept: bool) -> None:
        for role in ENGINE_ROLES:
            assert ("--no-disable-hybrid-kv-cache-manager" in args(role, **of(release))) == kept

    @pytest.mark.parametrize(
        "spec",
        [
            of("0.18", **CPU),
            of("0.18", kvTransfer={"transport": "tcp", "offload": {"cpu": "1Gi"}}),
            of("0.20", kvTransfer={"transport": "tcp", "connector": "mooncake"}),
            of("0.19", engine={"args": ["--kv-events-config={}"]}),
        ],
        ids=["cpu", "offload", "mooncake", "events"],
    )
    def test_the_hybrid_manager_is_not_kept_where_vllm_would_not_start_with_it(
        self, spec: dict[str, Any]
    ) -> None:
        assert "--no-disable-hybrid-kv-cache-manager" not in args(**spec)


class TestStopping:
    @pytest.mark.parametrize(
        ("release", "linger", "drain"),
        [("0.17", 360, 0), ("0.18", 300, 60), ("0.21", 300, 60), ("0.22", 0, 180)],
    )
    def test_vllm34730_prefill_stays_until_decode_has_pulled(
        self, release: str, linger: int, drain: int
    ) -> None:
        found = pod("prefill", **of(release))
        assert (found.linger_seconds, found.drain_seconds) == (linger, drain)

    @pytest.mark.parametrize(
        ("release", "linger", "drain"), [("0.17", 300, 0), ("0.18", 0, 300), ("0.33", 0, 300)]
    )
    def test_vllm24885_decode_stays_until_its_answers_are_written(
        self, release: str, linger: int, drain: int
    ) -> None:
        found = pod("decode", **of(release))
        assert (found.linger_seconds, found.drain_seconds) == (linger, drain)

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    @pytest.mark.parametrize(("release", "told"), [("0.17", False), ("0.18", True), ("0.33", True)])
    def test_the_engine_is_told_how_long_it_may_drain(self, role: str, release: str, told: bool) -> None:
        found = [arg for arg in args(role, **of(release)) if arg.startswith("--shutdown-timeout")]
        assert found == ([f"--shutdown-timeout={pod(role, **of(release)).drain_seconds}"] if told else [])

    def test_a_release_that_cannot_drain_is_told(self) -> None:
        assert any("cannot drain" in note for note in pod(**of("0.17")).notes)


class TestMooncake:
    @pytest.mark.parametrize("transfer", [{"transport": "tcp"}, RDMA], ids=["tcp", "rdma"])
    def test_it_moves_bytes_over_the_transport_of_the_resource(self, transfer: dict[str, Any]) -> None:
        config = kv_config(kvTransfer=transfer | {"connector": "mooncake"})
        assert config["kv_connector"] == "MooncakeConnector"
        assert config["kv_connector_extra_config"] == {"mooncake_protocol": transfer["transport"]}

    @pytest.mark.parametrize("release", ["0.16", "0.33"])
    def test_it_has_one_role_in_each_release_as_it_refuses_requests_of_the_other(self, release: str) -> None:
        assert kv_config("prefill", **of(release, **MOONCAKE))["kv_role"] == "kv_producer"
        assert kv_config("decode", **of(release, **MOONCAKE))["kv_role"] == "kv_consumer"

    def test_the_router_finds_the_bootstrap_server_of_prefill(self) -> None:
        prefill, decode = (pod(role, **MOONCAKE) for role in ENGINE_ROLES)
        assert prefill.ports == {"bootstrap": 8998}
        assert prefill.annotations == {"vllm.ai/bootstrap-port": "8998"}
        assert values("prefill", **MOONCAKE)["VLLM_MOONCAKE_BOOTSTRAP_PORT"] == "8998"
        assert decode.ports == {}
        assert decode.annotations == {}

    def test_prefill_keeps_blocks_for_the_lease(self) -> None:
        assert values("prefill", **MOONCAKE)["VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT"] == "300"

    def test_nothing_is_left_of_nixl(self) -> None:
        assert not any("NIXL" in name for name in environment(**MOONCAKE))

    def test_releases_without_a_bootstrap_server_are_told(self) -> None:
        assert any("bootstrap" in note for note in pod(**of("0.15", **MOONCAKE)).notes)
        assert pod(**of("0.16", **MOONCAKE)).notes == pod(**of("0.16")).notes

    def test_ranks_of_prefill_that_the_router_does_not_tell_apart_are_told(self) -> None:
        """vllm-router sends decode to the first rank's engine, whichever has computed the prompt."""
        several = {"parallelism": {"data": 2}}
        assert any("data-parallel" in note for note in pod("prefill", **MOONCAKE, prefill=several).notes)
        assert pod("prefill", **MOONCAKE, decode=several).notes == []
        assert pod("prefill", prefill=several).notes == []

    @pytest.mark.parametrize(
        ("connector", "protocol"),
        [("nixl", PairProtocol.SEQUENTIAL), ("mooncake", PairProtocol.CONCURRENT), ("lmcache", None)],
    )
    def test_a_router_pairs_pods_as_the_connector_does(
        self, connector: str, protocol: PairProtocol | None
    ) -> None:
        wanted = resource(kvTransfer={"connector": connector, "transport": "tcp"}, router={"kind": "none"})
        assert vllm.protocol(resolve(wanted.spec)) == protocol


class TestLMCache:
    def settings(self, role: str, /, **spec: object) -> dict[str, Any]:
        file = pod(role, **overlaid(LMCACHE, spec)).config_file
        assert file is not None
        return {
            key: json.loads(value) for key, value in (line.split(": ") for line in file.text.splitlines())
        }

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_it_reads_the_file_that_the_pod_has(self, role: str) -> None:
        file = pod(role, **LMCACHE).config_file
        assert file is not None
        assert kv_config(role, **LMCACHE)["kv_connector"] == "LMCacheConnectorV1"
        assert values(role, **LMCACHE)["LMCACHE_CONFIG_FILE"] == f"/etc/disagg/{file.name}"

    def test_prefill_sends(self) -> None:
        settings = self.settings("prefill")
        assert settings["enable_pd"]
        assert settings["pd_role"] == "sender"
        assert settings["save_unfull_chunk"], "the end of a prompt would not arrive"

    def test_decode_receives_with_ports_for_each_rank_that_are_declared(self) -> None:
        settings = self.settings("decode")
        assert settings["pd_role"] == "receiver"
        assert [*settings["pd_peer_init_port"], *settings["pd_peer_alloc_port"]] == [7300, 7301, 7400, 7401]
        assert list(pod("decode", **LMCACHE).ports.values()) == [7300, 7301, 7400, 7401]

    def test_decode_is_asked_at_the_address_of_the_pod(self) -> None:
        host = environment("decode", **LMCACHE)["LMCACHE_PD_PEER_HOST"]
        assert host["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}

    @pytest.mark.parametrize(
        ("spec", "backend", "device"),
        [
            ({}, "UCX", "cuda"),
            (CPU, "UCX", "cpu"),
            ({"kvTransfer": {"transport": "rdma", "fabric": "efa"}}, "LIBFABRIC", "cuda"),
        ],
        ids=["gpu", "cpu", "efa"],
    )
    def test_buffers_and_backend_are_those_of_the_hardware(
        self, spec: dict[str, Any], backend: str, device: str
    ) -> None:
        settings = self.settings("decode", **spec)
        assert (settings["nixl_backends"], settings["pd_buffer_device"]) == ([backend], device)

    def test_vllm52617_users_are_warned_of_wrong_text(self) -> None:
        assert any("vllm#52617" in note for note in pod(**LMCACHE).notes)


class TestOffload:
    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_what_moves_kv_cache_comes_before_what_keeps_it(self, role: str) -> None:
        first, second = children(role, **with_offload())
        assert first == {
            key: value
            for key, value in kv_config(role, **of("0.33")).items()
            if key != "kv_load_failure_policy"
        }
        assert second["kv_connector"] == "OffloadingConnector"

    def test_both_roles_load_as_prefill_does_from_its_tiers(self) -> None:
        assert kv_config("prefill", **with_offload())["kv_role"] == "kv_both"

    def test_what_becomes_of_a_failed_load_is_said_in_the_outermost_configuration(self) -> None:
        assert kv_config(**with_offload())["kv_load_failure_policy"] == "fail"
        assert "kv_load_failure_policy" not in children(**with_offload())[0]

    @pytest.mark.parametrize(("parallelism", "gib"), [({"tensor": 4}, 64), ({"tensor": 2, "data": 2}, 32)])
    def test_the_size_of_a_pod_is_divided_among_its_engines(
        self, parallelism: dict[str, int], gib: int
    ) -> None:
        spec = overlaid(with_offload(), {"decode": {"parallelism": parallelism}})
        extra = children("decode", **spec)[1]["kv_connector_extra_config"]
        assert extra["cpu_bytes_to_use"] == gib << 30
        assert pod("decode", **spec).memory == 64 << 30

    def test_memory_alone_is_no_tiering(self) -> None:
        assert children(**with_offload())[1]["kv_connector_extra_config"] == {"cpu_bytes_to_use": 64 << 30}

    def test_tiers_are_named_with_the_spec_without_which_vllm_ignores_them(self) -> None:
        spec = with_offload(
            disk={"size": "1Ti", "storageClass": "nvme"}, sharedFileSystem={"claim": "kv", "path": "/kv"}
        )
        extra = children(**spec)[1]["kv_connector_extra_config"]
        assert extra["spec_name"] == "TieringOffloadingSpec"
        assert extra["secondary_tiers"] == [
            {"type": "fs", "root_dir": "/var/lib/disagg/kv-disk"},
            {"type": "fs", "root_dir": "/kv"},
        ]
        assert [volume.path for volume in pod(**spec).volumes] == ["/var/lib/disagg/kv-disk", "/kv"]

    def test_a_disk_that_the_node_would_evict_the_pod_for_is_left_out(self) -> None:
        spec = with_offload(disk={"size": "1Ti"})
        assert "secondary_tiers" not in children(**spec)[1]["kv_connector_extra_config"]
        assert pod(**spec).volumes == []
        assert any("storageClass" in note for note in pod(**spec).notes)

    def test_tiers_that_the_release_lacks_are_left_out_and_told(self) -> None:
        spec = with_offload("0.22", sharedFileSystem={"claim": "kv"})
        assert children(**spec)[1]["kv_connector_extra_config"] == {"cpu_bytes_to_use": 64 << 30}
        assert pod(**spec).volumes == []
        assert any("sharedFileSystem are left out" in note for note in pod(**spec).notes)

    @pytest.mark.parametrize(
        "spec",
        [
            with_offload("0.13"),
            overlaid(with_offload(), CPU),
            overlaid(with_offload(), {"kvTransfer": {"connector": "lmcache"}, "router": {"kind": "none"}}),
        ],
        ids=["sizes in blocks", "cpu", "lmcache"],
    )
    def test_where_it_cannot_be_it_is_left_out_and_told(self, spec: dict[str, Any]) -> None:
        assert kv_config(**spec)["kv_connector"] != "MultiConnector"
        assert pod(**spec).memory == 0
        assert any("offload is left out" in note for note in pod(**spec).notes)


class TestLora:
    def spec(self, count: int = 2, **lora: object) -> dict[str, Any]:
        adapters = [{"name": f"a{number}", "uri": f"pvc://adapters/{number}"} for number in range(count)]
        return {"model": {"lora": {"adapters": adapters} | lora}}

    @pytest.mark.parametrize("role", ENGINE_ROLES)
    def test_both_roles_load_the_adapters(self, role: str) -> None:
        found = args(role, **self.spec())
        at = found.index("--lora-modules")
        assert [json.loads(module) for module in found[at + 1 : at + 3]] == [
            {"name": "a0", "path": "/adapters/adapters/0"},
            {"name": "a1", "path": "/adapters/adapters/1"},
        ]
        assert found[at + 3].startswith("--")
        assert "--enable-lora" in found

    @pytest.mark.parametrize(
        ("count", "lora", "slots", "kept"),
        [(2, {}, 2, 2), (12, {}, 8, 12), (12, {"maxAdapters": 4}, 4, 12), (1, {"maxAdapters": 4}, 4, 4)],
    )
    def test_adapters_without_a_slot_wait_in_memory(
        self, count: int, lora: dict[str, Any], slots: int, kept: int
    ) -> None:
        found = args(**self.spec(count, **lora))
        assert f"--max-loras={slots}" in found
        assert f"--max-cpu-loras={kept}" in found

    @pytest.mark.parametrize(("rank", "flag"), [(16, 16), (20, 32), (300, 320), (512, 512)])
    def test_a_rank_that_vllm_does_not_have_becomes_the_next_larger_one(self, rank: int, flag: int) -> None:
        assert f"--max-lora-rank={flag}" in args(**self.spec(maxRank=rank))

    def test_without_adapters_there_is_no_flag_of_them(self) -> None:
        assert not any("lora" in arg for arg in args())
