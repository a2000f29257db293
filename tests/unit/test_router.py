"""Routers: what is rendered for each, and the public bugs that it prevents."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from disagg.api.names import RoleName, Workload
from disagg.api.router import RouterKind
from disagg.build.annotation_file import ROUTER_FILE_ANNOTATION
from disagg.build.engines.engine import STARTUP_SECONDS
from disagg.build.pod_template import pod_templates
from disagg.build.router import router_kind, router_template
from disagg.build.routers.trtllm import AUTH_KEY
from tests.unit.resources import SMG, container, objects, overlaid, resource, template

TRTLLM: dict[str, Any] = {"engine": {"kind": "trtllm", "image": "nvcr.io/nvidia/tensorrt-llm/release:1.3.0"}}
SGLANG: dict[str, Any] = {
    "engine": {"kind": "sglang", "image": "lmsysorg/sglang:v0.5.23"},
    "router": {"image": "smg:1.13.0"},
}
VLLM: dict[str, Any] = {}
KINDS = {"vllm-router": VLLM, "smg": SGLANG, "trtllm": TRTLLM}
all_routers = pytest.mark.parametrize("spec", KINDS.values(), ids=KINDS)
discovering = pytest.mark.parametrize("spec", [VLLM, SGLANG], ids=["vllm-router", "smg"])


def router(spec: dict[str, Any], /, **over: object) -> dict[str, Any]:
    return container(resource(**overlaid(spec, over)), "router")


def pod(spec: dict[str, Any], /, **over: object) -> dict[str, Any]:
    return dict(template(resource(**overlaid(spec, over)), "router")["spec"])


def orchestration(**over: object) -> dict[str, Any]:
    """The orchestrator's file as it reads it."""
    annotations = template(resource(**overlaid(TRTLLM, over)), "router")["metadata"]["annotations"]
    return dict(yaml.safe_load(annotations[ROUTER_FILE_ANNOTATION]))


def inputs(**over: object) -> str:
    return pod_templates(resource(**overlaid(TRTLLM, over)))[Workload(RoleName.ROUTER)].inputs


class TestEachEngineHasItsRouter:
    @pytest.mark.parametrize(
        ("engine", "expected"),
        [
            ("vllm", RouterKind.VLLM_ROUTER),
            ("sglang", RouterKind.SMG),
            ("trtllm", RouterKind.TRTLLM),
            ("custom", RouterKind.VLLM_ROUTER),
        ],
    )
    def test_by_default(self, engine: str, expected: RouterKind) -> None:
        assert router_kind(resource(engine={"kind": engine}).spec) is expected

    def test_unless_the_user_says_which(self) -> None:
        assert router_kind(resource(**SMG).spec) is RouterKind.SMG

    def test_without_one_there_is_no_pod_template(self) -> None:
        with pytest.raises(ValueError, match=r"router\.kind"):
            router_template(resource(router={"kind": "none"}), 0)


class TestAllRouters:
    @all_routers
    def test_the_users_arguments_come_last(self, spec: dict[str, Any]) -> None:
        assert router(spec, router={"args": ["--mine=1", "--yours"]})["args"][-2:] == ["--mine=1", "--yours"]

    @all_routers
    def test_the_users_image_is_run(self, spec: dict[str, Any]) -> None:
        assert router(spec, router={"image": "mine:1"})["image"] == "mine:1"

    @all_routers
    def test_clients_reach_it_by_the_port_of_its_service(self, spec: dict[str, Any]) -> None:
        made = objects(resource(**spec))
        (port,) = made["Service", "llama-router"]["spec"]["ports"]
        listening = {item["name"]: item["containerPort"] for item in router(spec)["ports"]}
        assert listening["http"] == port["targetPort"] == 8080

    @all_routers
    def test_answers_are_finished_before_it_ends(self, spec: dict[str, Any]) -> None:
        """Kubernetes' own 30 s cut every answer that takes longer when a router is replaced."""
        made = pod(spec)
        before = made["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert made["terminationGracePeriodSeconds"] >= before + 300

    @all_routers
    def test_answers_are_let_through_for_as_long_as_decode_may_write_them(self, spec: dict[str, Any]) -> None:
        made = pod(spec, decode={"drainSeconds": 1800})
        assert made["terminationGracePeriodSeconds"] == 15 + 1800 + 30

    @all_routers
    def test_another_time_for_answers_is_another_template(self, spec: dict[str, Any]) -> None:
        """Otherwise a running router would keep the old time."""
        routers = Workload(RoleName.ROUTER)
        longer = resource(**overlaid(spec, {"decode": {"drainSeconds": 1800}}))
        assert pod_templates(longer)[routers].inputs != pod_templates(resource(**spec))[routers].inputs

    @all_routers
    def test_a_service_of_another_name_is_no_setting_of_it(self, spec: dict[str, Any]) -> None:
        assert pod(spec)["enableServiceLinks"] is False

    @all_routers
    def test_its_resources_are_the_users(self, spec: dict[str, Any]) -> None:
        wanted = {"requests": {"cpu": "2"}}
        assert router(spec, router={"resources": wanted})["resources"] == wanted


class TestRoutersThatWatchPods:
    @discovering
    def test_they_listen_on_all_addresses_also_for_prometheus(self, spec: dict[str, Any]) -> None:
        """Their own default for metrics is localhost, and vllm-router's for requests, too."""
        args = router(spec)["args"]
        ports = {item["name"]: item["containerPort"] for item in router(spec)["ports"]}
        assert {"--host=0.0.0.0", "--prometheus-host=0.0.0.0"} <= set(args)
        assert {f"--port={ports['http']}", f"--prometheus-port={ports['metrics']}"} <= set(args)

    @discovering
    def test_they_look_for_pods_in_their_own_namespace_on_the_engines_port(
        self, spec: dict[str, Any]
    ) -> None:
        """Without a namespace they would need rights on the whole cluster."""
        assert {
            "--service-discovery",
            "--service-discovery-namespace=inference",
            "--service-discovery-port=8000",
        } <= set(router(spec)["args"])

    @discovering
    def test_a_dead_pod_is_noticed_in_seconds(self, spec: dict[str, Any]) -> None:
        assert "--health-check-interval-secs=5" in router(spec)["args"]

    @discovering
    def test_an_engine_that_hangs_does_not_have_the_router_restarted(self, spec: dict[str, Any]) -> None:
        """vllm-router's /health answers 503 as long as any pod is unhealthy."""
        made = router(spec)
        paths = [made[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")]
        assert paths == ["/liveness", "/liveness"]

    @discovering
    def test_a_router_that_has_found_no_pods_yet_replaces_none_that_has(self, spec: dict[str, Any]) -> None:
        assert router(spec)["readinessProbe"]["httpGet"]["path"] == "/readiness"

    @discovering
    def test_they_may_use_their_service_account(self, spec: dict[str, Any]) -> None:
        assert "automountServiceAccountToken" not in pod(spec)

    @discovering
    def test_kv_cache_stays_in_a_group(self, spec: dict[str, Any]) -> None:
        made = pod_templates(resource(**spec, groups=2))[Workload(RoleName.ROUTER, 1)].body
        args = made["spec"]["containers"][0]["args"]
        assert args.count("disagg.dev/group=1") == 2
        assert "disagg.dev/group=0" not in args


class TestVllmRouter:
    @pytest.mark.parametrize("connector", ["nixl", "mooncake"])
    def test_it_pairs_pods_as_they_transfer(self, connector: str) -> None:
        transfer = {"connector": connector, "transport": "tcp"}
        assert f"--kv-connector={connector}" in router(VLLM, kvTransfer=transfer)["args"]

    def test_without_a_word_on_transfer_it_is_nixl(self) -> None:
        assert "--kv-connector=nixl" in router(VLLM)["args"]

    def test_a_connector_that_it_does_not_know_is_refused(self) -> None:
        wanted = resource(kvTransfer={"connector": "lmcache", "transport": "tcp"})
        with pytest.raises(ValueError, match="lmcache"):
            router_template(wanted, 0)

    def test_it_speaks_the_protocol_of_a_pair(self) -> None:
        assert router(VLLM)["command"] == ["vllm-router"]
        assert router(VLLM)["args"][0] == "--vllm-pd-disaggregation"


class TestSmg:
    def test_it_speaks_sglangs_protocol_and_nothing_of_vllms(self) -> None:
        args = router(SGLANG)["args"]
        assert args[0] == "--pd-disaggregation"
        assert not [arg for arg in args if "vllm" in arg or "kv-connector" in arg]

    def test_its_image_starts_it(self) -> None:
        assert "command" not in router(SGLANG)

    @pytest.mark.parametrize(("decode", "seconds"), [({}, 300), ({"drainSeconds": 1800}, 1800)])
    def test_it_does_not_cut_answers_that_decode_may_finish(
        self, decode: dict[str, Any], seconds: int
    ) -> None:
        """Its own limit is 180 s from SIGTERM."""
        assert f"--shutdown-grace-period-secs={seconds}" in router(SGLANG, decode=decode)["args"]

    def test_prefill_says_where_the_two_meet(self) -> None:
        annotations = template(resource(**SGLANG), "prefill")["metadata"]["annotations"]
        assert annotations["sglang.ai/bootstrap-port"].isdigit()

    def test_without_an_image_it_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"router\.image"):
            router_template(resource(engine={"kind": "sglang"}), 0)


class TestOrchestratorOfTensorRtLlm:
    def test_it_runs_in_the_image_of_the_engine(self) -> None:
        made = router(TRTLLM)
        assert made["image"] == TRTLLM["engine"]["image"]
        assert [*made["command"], made["args"][0]] == ["trtllm-serve", "disaggregated"]

    def test_its_file_is_mounted_where_it_looks_for_it(self) -> None:
        (mount,) = router(TRTLLM)["volumeMounts"]
        (volume,) = pod(TRTLLM)["volumes"]
        (item,) = volume["downwardAPI"]["items"]
        args = router(TRTLLM)["args"]
        assert args[args.index("-c") + 1] == f"{mount['mountPath']}/{item['path']}"
        assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{ROUTER_FILE_ANNOTATION}']"
        assert volume["name"] == mount["name"]

    @pytest.mark.parametrize(
        ("role", "section"), [("prefill", "context_servers"), ("decode", "generation_servers")]
    )
    def test_it_reaches_each_role_by_its_headless_service(self, role: str, section: str) -> None:
        servers = orchestration()[section]
        (url,) = servers["urls"]
        host, port = url.split(":")
        service = objects(resource(**TRTLLM))["Service", host]["spec"]
        assert servers["num_instances"] == 1
        pods = template(resource(**TRTLLM), role)["metadata"]["labels"]
        assert service["selector"].items() <= pods.items()
        assert service["clusterIP"] == "None"
        assert int(port) == service["ports"][0]["port"]

    def test_it_listens_where_its_probes_and_its_service_look(self) -> None:
        found = orchestration()
        assert (found["hostname"], found["port"]) == ("0.0.0.0", 8080)  # noqa: S104 - what is rendered
        assert [item["containerPort"] for item in router(TRTLLM)["ports"]] == [8080]

    def test_it_waits_for_models_to_load_and_is_not_killed_meanwhile(self) -> None:
        """It listens once both roles answer, and gives up after 180 s by default: a crash loop."""
        (wait,) = (arg for arg in router(TRTLLM)["args"] if arg.startswith("--server_start_timeout="))
        probe = router(TRTLLM)["startupProbe"]
        waits = int(wait.partition("=")[2])
        assert STARTUP_SECONDS < waits < probe["periodSeconds"] * probe["failureThreshold"]

    def test_long_answers_are_not_cut(self) -> None:
        """Its own limit for a whole answer is 180 s."""
        assert "--request_timeout=1800" in router(TRTLLM)["args"]

    def test_it_needs_nothing_of_the_api_server(self) -> None:
        assert pod(TRTLLM)["automountServiceAccountToken"] is False

    @pytest.mark.parametrize(
        ("image", "keeps"),
        [("trtllm:1.3.0", True), ("trtllm:1.2.1", False), ("trtllm:latest", True)],
    )
    def test_idle_connections_outlive_those_of_gateways_where_it_can_be_told(
        self, image: str, keeps: bool
    ) -> None:
        found = orchestration(engine={"image": image})
        assert (found.get("server_keep_alive_timeout", 0) > 90) is keeps

    def test_its_own_image_tells_its_release(self) -> None:
        assert "server_keep_alive_timeout" not in orchestration(router={"image": "trtllm:1.2.1"})

    def test_16002_it_signs_with_the_key_of_the_engines(self) -> None:
        """Without the same key in all three, workers with one refuse what is handed over."""
        assert AUTH_KEY not in orchestration()
        assert orchestration(engine={"config": {AUTH_KEY: "secret"}})[AUTH_KEY] == "secret"

    @pytest.mark.parametrize(
        "changed",
        [
            {"engine": {"config": {AUTH_KEY: "secret"}}},
            {"engine": {"image": "another:1.3.0"}},
            {"engine": {"version": "1.2.1"}},
        ],
    )
    def test_what_it_is_made_from_rolls_it_out(self, changed: dict[str, Any]) -> None:
        assert inputs(**changed) != inputs()

    @pytest.mark.parametrize(
        "changed",
        [{"engine": {"config": {"max_seq_len": 8192}}}, {"engine": {"args": ["--max_batch_size=8"]}}],
    )
    def test_what_is_the_engines_alone_does_not(self, changed: dict[str, Any]) -> None:
        assert inputs(**changed) == inputs()

    @pytest.mark.parametrize("group", [0, 1])
    def test_kv_cache_stays_in_a_group(self, group: int) -> None:
        wanted = resource(**TRTLLM, groups=2)
        made = objects(wanted)
        annotations = pod_templates(wanted)[Workload(RoleName.ROUTER, group)].body["metadata"]["annotations"]
        found = yaml.safe_load(annotations[ROUTER_FILE_ANNOTATION])
        for section in ("context_servers", "generation_servers"):
            host, _, _ = found[section]["urls"][0].partition(":")
            assert made["Service", host]["spec"]["selector"]["disagg.dev/group"] == str(group)

    def test_another_group_does_not_roll_out_the_first(self) -> None:
        wanted = Workload(RoleName.ROUTER)
        one, two = (pod_templates(resource(**TRTLLM, groups=groups))[wanted] for groups in (1, 2))
        assert one == two

    def test_routers_that_watch_pods_need_no_service_of_a_group(self) -> None:
        assert ("Service", "llama-prefill-0") not in objects(resource())
        assert ("Service", "llama-prefill-0") in objects(resource(**TRTLLM))
