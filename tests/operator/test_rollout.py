from __future__ import annotations

import pytest

from e2e.cluster import wait_until
from tests.operator.conftest import RunningOperator
from tests.operator.kube import Kube, manifest

pytestmark = pytest.mark.usefixtures("operator")


def test_a_new_image_of_one_role_restarts_that_role_only(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    before = kube.templates()
    kube.patch("llama", {"decode": {"image": "mirror.example.com/vllm-openai:v0.32.0"}})
    kube.ready()
    after = kube.templates()
    assert {role for role in after if after[role] != before[role]} == {"decode"}


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"prefill": {"replicas": 2}}, id="replicas"),
        pytest.param({"decode": {"autoscaling": {"maxReplicas": 3}}}, id="autoscaling"),
        pytest.param({"rollout": {"maxSurge": 1, "maxUnavailable": 0}}, id="rollout"),
        pytest.param({"router": {"service": {"port": 8080}}}, id="service"),
        pytest.param({"router": {"kind": "none"}}, id="router"),
    ],
)
def test_an_edit_that_is_not_about_pods_restarts_none(kube: Kube, edit: dict[str, object]) -> None:
    kube.apply(manifest())
    kube.ready()
    before = kube.templates()
    kube.patch("llama", edit)
    kube.ready()
    after = kube.templates()
    assert (after["prefill"], after["decode"]) == (before["prefill"], before["decode"])


def test_rollout_restart_by_hand_restarts_the_role_and_stays(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    before = kube.templates()["decode"]
    kube.run("rollout", "restart", "deployment/llama-decode")
    kube.run("rollout", "status", "deployment/llama-decode", "--timeout=60s")
    kube.patch("llama", {"prefill": {"replicas": 2}})
    kube.ready()
    restarted = kube.get("deployment", "llama-decode")["spec"]["template"]["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" in restarted
    assert kube.templates()["decode"] != before


def test_rollout_undo_by_hand_is_taken_back_whole(kube: Kube) -> None:
    kube.apply(manifest(decode={"env": [{"name": "OLD", "value": "1"}]}))
    kube.ready()
    kube.patch("llama", {"decode": {"env": [{"name": "NEW", "value": "1"}]}})
    kube.ready()
    wanted = kube.get("deployment", "llama-decode")["spec"]["template"]
    kube.run("rollout", "undo", "deployment/llama-decode")

    def taken_back() -> bool:
        return bool(kube.get("deployment", "llama-decode")["spec"]["template"] == wanted)

    wait_until("the template to be taken back", taken_back)


def test_what_others_add_to_a_template_is_left_alone(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    kube.run("set", "env", "deployment/llama-decode", "RELOADER=1")
    kube.patch("llama", {"decode": {"args": ["--enforce-eager"]}})
    kube.ready()
    env = kube.get("deployment", "llama-decode")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "RELOADER", "value": "1"} in env


def test_a_newer_operator_that_renders_differently_restarts_no_engine_pod(
    kube: Kube, operator: RunningOperator
) -> None:
    kube.apply(manifest(prefill={"autoscaling": {"maxReplicas": 3}}))
    kube.ready()
    before = kube.templates()
    operator.restart(newer_renderer=True)
    kube.patch("llama", {"rollout": {"maxSurge": 2}})
    kube.ready()
    strategy = kube.get("deployment", "llama-decode")["spec"]["strategy"]["rollingUpdate"]
    assert strategy["maxSurge"] == 2
    assert kube.templates() == before


def test_a_newer_renderer_takes_effect_where_the_user_changes_the_pods(
    kube: Kube, operator: RunningOperator
) -> None:
    kube.apply(manifest())
    kube.ready()
    before = kube.templates()
    operator.restart(newer_renderer=True)
    kube.patch("llama", {"decode": {"args": ["--enforce-eager"]}})
    kube.ready()
    after = kube.templates()
    assert {role for role in after if after[role] != before[role]} == {"decode"}
    template = kube.get("deployment", "llama-decode")["spec"]["template"]
    assert template["metadata"]["annotations"]["example.com/renderer"] == "newer"


def test_a_newer_renderer_is_taken_on_demand(kube: Kube, operator: RunningOperator) -> None:
    kube.apply(manifest())
    kube.ready()
    operator.restart(newer_renderer=True)
    kube.run("annotate", "deployment/llama-decode", "disagg.dev/template-inputs-")

    def taken() -> bool:
        metadata = kube.get("deployment", "llama-decode")["spec"]["template"]["metadata"]
        return "example.com/renderer" in metadata.get("annotations", {})

    wait_until("the newer template", taken)
