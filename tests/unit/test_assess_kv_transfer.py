"""The condition KVCompatible: can the roles exchange KV cache, and what does it cost?"""

from __future__ import annotations

from typing import Any

from disagg.api.names import RoleName
from disagg.api.resource import DisaggregatedInference
from disagg.api.status import ConditionType, Reason, Status
from disagg.assess.assess import Findings, assess
from disagg.assess.events import events
from disagg.assess.kv_transfer import KVTransferAssessment, assess_kv_transfer, review
from disagg.assess.pod_failure import PodFailure
from disagg.assess.problem import Problem
from disagg.build.compatibility import incompatibility
from disagg.decide.observed import Observed
from tests.unit.racks import GROUP
from tests.unit.resources import live, objects, observed, overlaid, resource
from tests.unit.test_assess import NOW

LLAMA = {"uri": "hf://RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"}
OTHER_DTYPE = {"args": ["--kv-cache-dtype=fp8"]}


def running(wanted: DisaggregatedInference) -> Observed:
    """Its children as they were applied."""
    return observed(*(live(obj) for obj in objects(wanted).values()))


def unchecked(role: str, words: str, pod: str = "a") -> PodFailure:
    """A pod whose preflight check has failed."""
    return PodFailure(GROUP, RoleName(role), pod, Reason.PREFLIGHT_FAILED, "the check failed", words)


def judged(*failures: PodFailure, **spec: object) -> KVTransferAssessment:
    wanted = resource(**spec)
    return assess_kv_transfer(wanted, running(wanted), review(wanted), failures)


def over(transport: str, **fields: object) -> dict[str, Any]:
    return {"transport": transport} | ({"fabric": "infiniband"} if transport == "rdma" else {}) | fields


def test_over_rdma_all_is_well() -> None:
    found = judged(kvTransfer=over("rdma"))
    assert (found.status, found.reason) == ("True", Reason.OVER_RDMA)
    assert found.message == "KV cache moves over RDMA by nixl (ucx)"


def test_tcp_says_what_it_costs() -> None:
    found = judged(model=LLAMA, kvTransfer=over("tcp", bandwidthGbps=25))
    assert (found.status, found.reason) == ("True", Reason.OVER_TCP)
    assert found.message.startswith(
        "KV cache moves over TCP by nixl (ucx): 328 MB per 1,000 prompt tokens, 117 ms at 25 Gbit/s"
        " (kvTransfer.bandwidthGbps)"
    )


def test_a_bandwidth_that_is_not_stated_is_assumed_and_said_to_be() -> None:
    found = judged(model=LLAMA, engine={"kvCacheDtype": "fp8"})
    assert (
        "164 MB per 1,000 prompt tokens, 146 ms at 10 Gbit/s (assumed: set kvTransfer.bandwidthGbps)"
        in found.message
    )


def test_of_a_model_that_is_not_known_no_cost_is_claimed() -> None:
    assert "what it costs is not known for this model" in judged().message


def test_a_release_that_is_not_known_is_told() -> None:
    assert "set engine.version" in judged(engine={"image": "vllm/vllm-openai:nightly"}).message


def test_a_custom_engine_is_not_judged() -> None:
    found = judged(engine={"kind": "custom"})
    assert (found.status, found.reason) == ("Unknown", Reason.ENGINE_UNKNOWN)


def test_a_broken_contract_is_told_with_its_field() -> None:
    found = judged(prefill={"args": ["--port=9000"]})
    assert (found.status, found.reason) == ("False", Reason.CONTRACT_BROKEN)
    assert found.message.startswith("prefill.args sets --port to 9000: ")


def test_what_is_broken_in_both_roles_is_told_once() -> None:
    found = judged(engine={"args": ["--port=9000"]})
    assert found.message.count("--port") == 1


def test_a_command_in_the_place_of_the_engines_is_told_beside_what_it_lacks() -> None:
    engine = {"name": "engine", "command": ["bash", "-c"], "args": ["vllm serve $MODEL"]}
    found = judged(prefill={"podTemplate": {"spec": {"containers": [engine]}}})
    assert (found.status, found.reason) == ("False", Reason.ROLES_DIFFER)
    assert "prefill.podTemplate.spec.containers[engine].args leaves --kv-transfer-config out" in found.message


def test_roles_that_an_overlay_has_made_to_differ_are_told() -> None:
    overlay = {"spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.20.0"}]}}
    found = judged(prefill={"podTemplate": overlay})
    assert (found.status, found.reason) == ("False", Reason.ROLES_DIFFER)
    assert "in prefill" in found.message


def test_what_is_refused_is_told_once() -> None:
    wanted = resource(prefill={"image": "vllm/vllm-openai:v0.20.0"})
    why = incompatibility(wanted)
    assert why is not None
    problem = Problem(Reason.INCOMPATIBLE_ROLES, why)
    before, after = (assess(wanted, observed(), found, NOW) for found in (None, problem))
    condition = after.condition(ConditionType.KV_COMPATIBLE)
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("False", "IncompatibleRoles", why)
    assert [event.reason for event in events(Status(), after)] == ["IncompatibleRoles"]
    assert before.condition(ConditionType.KV_COMPATIBLE) == condition


def test_it_is_what_runs_that_is_compared() -> None:
    wanted = resource()
    children = running(wanted)
    deployment = children.children["Deployment", "llama-prefill"]
    engine = deployment["spec"]["template"]["spec"]["containers"][0]
    changed = overlaid(deployment, {})
    changed["spec"]["template"]["spec"]["containers"][0] = engine | {"image": "vllm/vllm-openai:v0.20.0"}
    others = [child for key, child in children.children.items() if key != ("Deployment", "llama-prefill")]
    assert (
        assess_kv_transfer(wanted, observed(changed, *others), review(wanted)).reason is Reason.ROLES_DIFFER
    )


def test_before_there_are_pods_nothing_differs() -> None:
    assert assess_kv_transfer(resource(), observed(), review(resource())).status == "True"


def test_a_failed_preflight_check_comes_first() -> None:
    failures = [unchecked("prefill", "no RDMA device", pod) for pod in "ab"]
    found = judged(*failures, prefill={"args": ["--port=9000"]})
    assert (found.status, found.reason) == ("False", Reason.PREFLIGHT_FAILED)
    assert found.message == "prefill: no RDMA device"


def test_what_else_keeps_pods_from_coming_up_is_not_about_kv_cache() -> None:
    crash = PodFailure(GROUP, RoleName.DECODE, "a", Reason.CRASH_LOOP_BACK_OFF, "it ended")
    assert judged(crash).status == "True"


def test_what_stops_kv_cache_is_an_event() -> None:
    wanted = resource()

    def status(*failures: PodFailure) -> Status:
        return assess(wanted, running(wanted), None, NOW, Findings(failures=failures))

    failed = unchecked("decode", "no model")
    (event,) = events(status(), status(failed))
    assert (event.type, event.reason, event.message) == ("Warning", "PreflightFailed", "decode: no model")
    assert events(status(failed), status(failed)) == []
    condition = status().condition(ConditionType.KV_COMPATIBLE)
    assert condition is not None
    assert condition.status == "True"


# What is asked for and cannot work is refused before a pod is made


def test_roles_that_are_the_same_are_compatible() -> None:
    assert incompatibility(resource()) is None


def test_images_of_two_releases_are_refused() -> None:
    why = incompatibility(resource(prefill={"image": "vllm/vllm-openai:v0.20.0"}))
    assert why is not None
    assert why.startswith("prefill and decode could not exchange KV cache, they differ in ")


def test_arguments_that_make_the_roles_differ_are_refused() -> None:
    why = incompatibility(resource(decode=OTHER_DTYPE))
    assert why is not None
    assert "fp8 in decode" in why


def test_arguments_of_both_roles_are_not() -> None:
    assert incompatibility(resource(engine=OTHER_DTYPE)) is None


def test_an_overlay_has_the_last_word() -> None:
    overlay = {"spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.20.0"}]}}
    assert incompatibility(resource(prefill={"podTemplate": overlay})) is None


def test_of_a_custom_engine_nothing_is_refused() -> None:
    assert incompatibility(resource(engine={"kind": "custom"}, prefill={"image": "another:1"})) is None
