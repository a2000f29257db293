from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from disagg.api.crd import crd_yaml
from disagg.cli import app
from tests.unit.resources import objects, raw, resource


def run(*arguments: str, given: str | None = None) -> Result:
    # Wide: messages are not broken at paths.
    return CliRunner().invoke(app, list(arguments), input=given, env={"TERMINAL_WIDTH": "1000"})


def rendered(text: str) -> list[dict[str, Any]]:
    result = run("render", "-f", "-", given=text)
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


def test_crd_prints_the_custom_resource_definition() -> None:
    result = run("crd")
    assert (result.exit_code, result.stdout) == (0, crd_yaml())


def test_without_a_command_there_is_help() -> None:
    result = run()
    assert all(command in result.output for command in ("crd", "render", "operator"))


def test_render_prints_the_objects_of_a_new_resource() -> None:
    found = [(obj["kind"], obj["metadata"]["name"]) for obj in rendered(yaml.dump(raw()))]
    assert found == list(objects(resource()))


def test_render_prints_objects_that_can_be_applied_before_their_owner_exists() -> None:
    assert not [obj for obj in rendered(yaml.dump(raw())) if "ownerReferences" in obj["metadata"]]


def test_render_packs_by_affinity_where_no_cluster_is_seen() -> None:
    text = yaml.dump(raw(topologyConstraint={"packDomain": "rack", "mode": "Required"}))
    (pod,) = [
        obj["spec"]["template"]["spec"]
        for obj in rendered(text)
        if (obj["kind"], obj["metadata"]["name"]) == ("Deployment", "llama-decode")
    ]
    assert pod["affinity"].keys() == {"podAffinity"}
    (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "topology.kubernetes.io/rack"
    assert "schedulingGroup" not in pod


def test_render_reads_a_file(tmp_path: Path) -> None:
    file = tmp_path / "llama.yaml"
    file.write_text(yaml.dump(raw()))
    result = run("render", "--file", str(file))
    assert result.exit_code == 0
    assert list(yaml.safe_load_all(result.stdout)) == rendered(yaml.dump(raw()))


def test_render_prints_no_anchors() -> None:
    result = run("render", "-f", "-", given=yaml.dump(raw()))
    assert "&id" not in result.stdout


def test_render_takes_several_resources_and_passes_over_other_objects() -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "inference"}}
    text = yaml.dump_all([namespace, raw("one"), None, raw("two")])
    names = {obj["metadata"]["name"].split("-")[0] for obj in rendered(text)}
    assert names == {"one", "two"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "no DisaggregatedInference of disagg.dev/v1alpha1 in it", id="empty"),
        pytest.param(
            "kind: Namespace", "no DisaggregatedInference of disagg.dev/v1alpha1 in it", id="another kind"
        ),
        pytest.param("just text", "no DisaggregatedInference of disagg.dev/v1alpha1 in it", id="no object"),
        pytest.param("a: [", "line 1", id="broken YAML"),
        pytest.param(yaml.dump(raw(groups=101)), "spec.groups", id="a bad field"),
        pytest.param(yaml.dump(raw(engine={"image": None})), "spec.engine.image", id="a missing value"),
        pytest.param(
            "{apiVersion: disagg.dev/v1alpha1, kind: DisaggregatedInference}",
            "metadata: Field required",
            id="nothing but a kind",
        ),
        pytest.param(
            "{apiVersion: other/v1, kind: DisaggregatedInference}",
            "no DisaggregatedInference of disagg.dev/v1alpha1 in it",
            id="another group",
        ),
        pytest.param(
            yaml.dump(raw()) + "  prefill: {podTemplate: &x {spec: *x}}",
            "-: ",
            id="without end",
        ),
        pytest.param(
            yaml.dump(raw(router={"kind": "smg"})),
            "image is required when kind is smg",
            id="no image",
        ),
    ],
)
def test_render_says_what_is_wrong(text: str, message: str) -> None:
    result = run("render", "-f", "-", given=text)
    assert result.exit_code == 1
    assert message in result.output
    assert result.stdout == ""
    assert "Traceback" not in result.output


def test_render_says_which_of_several_resources_is_wrong() -> None:
    text = yaml.dump_all([raw("one"), raw("two", groups=101), raw("three")])
    assert "-: two: spec.groups" in run("render", "-f", "-", given=text).output


def test_render_says_that_it_checks_no_rules_where_it_can_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the operator's image."""
    text = yaml.dump(raw(prefill={"autoscaling": {"minReplicas": 3, "maxReplicas": 2}}))
    assert run("render", "-f", "-", given=text).exit_code == 1
    monkeypatch.setattr("disagg.commands.rules.cel", None)
    result = run("render", "-f", "-", given=text)
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: the rules of the CRD are not checked, for there is no")


def test_render_refuses_one_of_two_namesakes() -> None:
    parted = raw("llama", prefill={"image": "vllm/vllm-openai:v0.31.0"})
    namesake = raw("llama")
    namesake["metadata"]["namespace"] = "other"
    result = run("render", "-f", "-", given=yaml.dump_all([parted, namesake]))
    assert result.exit_code == 1
    assert "llama: prefill and decode could not exchange KV cache" in result.output


def test_render_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = run("render", "-f", str(tmp_path / "absent.yaml"))
    assert result.exit_code == 1
    assert "absent.yaml" in result.output


@pytest.mark.parametrize("address", ["bad", "0.0.0.0:", "0.0.0.0:http", ":-1"])
def test_the_operator_refuses_an_address_without_a_port(address: str) -> None:
    result = run("operator", "--http-address", address)
    assert result.exit_code == 2
    assert f"--http-address {address}: HOST:PORT is expected" in result.output


@pytest.mark.parametrize("option", [("--workers", "0"), ("--resync-seconds", "0"), ("--log-level", "loud")])
def test_the_operator_refuses_a_bad_option(option: tuple[str, str]) -> None:
    result = run("operator", *option)
    assert result.exit_code == 2
    assert option[0] in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--level", "shelf"), "--level shelf: use host, rack, block, zone, or a node label"),
        (("--topology-preset", "none"), "topology preset 'none' is unknown"),
        (("--topology-level", "rack"), "--topology-level rack: LEVEL=KEY is expected"),
        (("--topology-level", "row=a/b"), "topology level 'row' is unknown"),
        (("--svg", "a.svg", "--fits", "b.yaml"), "--svg draws the cluster as it is"),
    ],
)
def test_topology_refuses_a_bad_option(arguments: tuple[str, ...], message: str) -> None:
    result = run("topology", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_topology_says_what_is_wrong_with_a_file() -> None:
    for text, message in (("a: [", "line 1"), ("kind: Pod", "no DisaggregatedInference"), ("", "-: no ")):
        result = run("topology", "--fits", "-", given=text)
        assert (result.exit_code, result.stdout) == (1, "")
        assert message in result.output


def test_topology_without_a_cluster_says_how_to_name_one(tmp_path: Path) -> None:
    environment = {"KUBECONFIG": str(tmp_path / "none"), "KUBERNETES_SERVICE_HOST": ""}
    result = CliRunner().invoke(app, ["topology"], env=environment)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.output.startswith("Error: no cluster is configured: set KUBECONFIG")


def test_help_of_topology_is_in_whole_paragraphs() -> None:
    assert (
        "Read with the credentials of KUBECONFIG or of the pod, which need"
        in run("topology", "--help").output
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--topology-preset", "azure"), "topology preset 'azure' is unknown: use one of coreweave, "),
        (("--topology-level", "row=a/b"), "topology level 'row' is unknown: use one of host, "),
        (("--topology-level", "rack"), "--topology-level rack: LEVEL=KEY is expected"),
        (("--topology-level", "rack="), "--topology-level rack=: LEVEL=KEY is expected"),
        (("--pod-group", "perhaps"), "--pod-group"),
    ],
)
def test_the_operator_refuses_levels_that_it_does_not_know(options: tuple[str, ...], message: str) -> None:
    result = run("operator", *options)
    assert result.exit_code == 2
    assert message in result.output
