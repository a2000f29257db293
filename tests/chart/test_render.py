from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from tests.chart.cases import CASES, EVERYTHING
from tests.chart.helm import CHART, ROOT, Helm, HelmError, Values

CRD_FILE = ROOT / "crds" / "disagg.dev_disaggregatedinferences.yaml"

each_case = pytest.mark.parametrize("values", CASES.values(), ids=CASES)


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A chart that has this one as a subchart, under the condition `disagg.enabled`."""
    chart = tmp_path / "platform"
    dependency = {"name": "disagg", "version": ">=0.0.0-0", "condition": "disagg.enabled"}
    (chart / "charts").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(
        yaml.safe_dump(
            {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
        )
    )
    shutil.copytree(CHART, chart / "charts" / "disagg")
    return chart


def test_lint_has_nothing_to_say_against_the_chart(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART))


@each_case
def test_renders_the_same_bytes_twice(helm: Helm, values: Values) -> None:
    assert helm.template(values).text == helm.template(values).text


@each_case
@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_every_object_is_valid_in(helm: Helm, values: Values, version: str) -> None:
    for obj in helm.template(values).objects:
        kubernetes_validate.validate(obj, version, strict=True)


@each_case
def test_namespaced_objects_say_their_namespace(helm: Helm, values: Values) -> None:
    cluster_wide = {
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    for obj in helm.template(values).objects:
        assert ("namespace" in obj["metadata"]) == (obj["kind"] not in cluster_wide)


@each_case
def test_no_object_is_rendered_twice(helm: Helm, values: Values) -> None:
    identities = [
        (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])
        for obj in helm.template(values).objects
    ]
    assert len(identities) == len(set(identities))


@each_case
def test_renders_as_a_subchart_with_globals(helm: Helm, parent: Path, values: Values) -> None:
    below = helm.template({"disagg": {"enabled": True} | values, "global": {"team": "ml"}}, chart=parent)
    assert below.objects == helm.template(values).objects


def test_a_parent_chart_can_switch_it_off(helm: Helm, parent: Path) -> None:
    assert helm.template({"disagg": {"enabled": False}}, chart=parent).objects == []


def test_default_installation_consists_of_these_objects(helm: Helm) -> None:
    objects = helm.template().objects
    assert sorted((obj["kind"], obj["metadata"]["name"]) for obj in objects) == [
        ("ClusterRole", "disagg"),
        ("ClusterRole", "disagg-admin"),
        ("ClusterRole", "disagg-edit"),
        ("ClusterRole", "disagg-view"),
        ("ClusterRoleBinding", "disagg"),
        ("CustomResourceDefinition", "disaggregatedinferences.disagg.dev"),
        ("Deployment", "disagg"),
        ("ServiceAccount", "disagg"),
        ("ValidatingAdmissionPolicy", "disagg-pod-deletion"),
        ("ValidatingAdmissionPolicy", "disagg-pod-labels"),
        ("ValidatingAdmissionPolicyBinding", "disagg-pod-deletion"),
        ("ValidatingAdmissionPolicyBinding", "disagg-pod-labels"),
    ]


def test_no_template_asks_the_cluster_or_chance_or_the_clock() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    code = " ".join(re.findall(r"\{\{.*?\}\}", text, re.DOTALL))
    assert not re.findall(r"\b(?:lookup|rand\w*|gen[A-Z]\w*|uuidv4|now|date\w*|Capabilities)\b", code)


def test_the_chart_has_no_hooks(helm: Helm) -> None:
    assert "helm.sh/hook" not in helm.template(EVERYTHING).text


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ({}, "disagg", "disagg"),
        ({}, "my-disagg", "my-disagg"),
        ({}, "llm", "llm-disagg"),
        ({"nameOverride": "serving"}, "llm", "llm-serving"),
        ({"fullnameOverride": "operator"}, "llm", "operator"),
    ],
)
def test_objects_are_named_after_the_release(helm: Helm, values: Values, name: str, expected: str) -> None:
    assert helm.template(values, name=name).one("Deployment")["metadata"]["name"] == expected


def test_two_releases_have_nothing_in_common(helm: Helm) -> None:
    def names(release: str) -> set[tuple[str, str]]:
        rendering = helm.template({"crds": {"enabled": False}}, name=release)
        return {(obj["kind"], obj["metadata"]["name"]) for obj in rendering.objects}

    assert names("blue").isdisjoint(names("green"))


def test_namespace_override_moves_every_namespaced_object(helm: Helm) -> None:
    rendering = helm.template({"namespaceOverride": "elsewhere", "operator": {"leaderElection": True}})
    namespaces = {obj["metadata"]["namespace"] for obj in rendering.objects if "namespace" in obj["metadata"]}
    assert namespaces == {"elsewhere"}
    subjects = [
        s
        for kind in ("ClusterRoleBinding", "RoleBinding")
        for b in rendering.all(kind)
        for s in b["subjects"]
    ]
    assert {subject["namespace"] for subject in subjects} == {"elsewhere"}


def test_common_labels_and_annotations_are_on_every_object_and_the_pods(helm: Helm) -> None:
    rendering = helm.template({"commonLabels": {"team": "ml"}, "commonAnnotations": {"owner": "me"}})
    for obj in [*rendering.objects, rendering.pod]:
        assert obj["metadata"]["labels"]["team"] == "ml"
        assert obj["metadata"]["annotations"]["owner"] == "me"


def test_common_labels_change_neither_the_selector_nor_what_helm_knows_its_objects_by(helm: Helm) -> None:
    labels = {
        "app.kubernetes.io/name": "x",
        "app.kubernetes.io/instance": "x",
        "app.kubernetes.io/managed-by": "x",
    }
    rendering = helm.template({"commonLabels": labels, "podLabels": labels})
    selector = rendering.one("Deployment")["spec"]["selector"]["matchLabels"]
    assert selector == {
        "app.kubernetes.io/name": "disagg",
        "app.kubernetes.io/instance": "disagg",
        "app.kubernetes.io/component": "operator",
    }
    assert selector.items() <= rendering.pod["metadata"]["labels"].items()
    assert rendering.one("Deployment")["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"


def test_more_specific_labels_and_annotations_win(helm: Helm) -> None:
    rendering = helm.template(EVERYTHING)
    assert rendering.pod["metadata"]["labels"]["team"] == "pods"
    assert rendering.pod["metadata"]["annotations"] == {"note": "yes", "owner": "pods@example.com"}
    assert rendering.one("ServiceAccount")["metadata"]["labels"]["app.kubernetes.io/part-of"] == "platform"


def _without_added_metadata(crd: dict[str, Any]) -> dict[str, Any]:
    return crd | {"metadata": {"name": crd["metadata"]["name"]}}


def test_rendered_crd_is_the_generated_one(helm: Helm) -> None:
    generated = yaml.safe_load(CRD_FILE.read_text())
    rendered = helm.template().one("CustomResourceDefinition")
    assert _without_added_metadata(rendered) == _without_added_metadata(generated)


def test_the_chart_carries_the_generated_crd_byte_for_byte() -> None:
    assert (CHART / "files" / "crds" / CRD_FILE.name).read_bytes() == CRD_FILE.read_bytes()


def test_annotations_and_labels_of_the_crd_file_are_kept(helm: Helm, tmp_path: Path) -> None:
    chart = shutil.copytree(CHART, tmp_path / "disagg")
    file = chart / "files" / "crds" / CRD_FILE.name
    crd = yaml.safe_load(file.read_text())
    crd["metadata"]["annotations"] = {"from": "file"}
    file.write_text(yaml.safe_dump(crd))
    rendered = helm.template({"crds": {"annotations": {"from-values": "yes"}}}, chart=chart)
    assert rendered.one("CustomResourceDefinition")["metadata"]["annotations"] == {
        "from": "file",
        "from-values": "yes",
        "helm.sh/resource-policy": "keep",
    }


def test_uninstall_keeps_the_crd_by_default(helm: Helm) -> None:
    annotations = helm.template().one("CustomResourceDefinition")["metadata"]["annotations"]
    assert annotations == {"helm.sh/resource-policy": "keep"}


def test_crd_has_no_annotations_when_it_is_not_kept(helm: Helm) -> None:
    crd = helm.template({"crds": {"keep": False}}).one("CustomResourceDefinition")
    assert "annotations" not in crd["metadata"]


def test_crd_can_be_left_out(helm: Helm) -> None:
    assert helm.template({"crds": {"enabled": False}}).all("CustomResourceDefinition") == []


def test_a_chart_that_lost_its_crd_is_refused(helm: Helm, tmp_path: Path) -> None:
    chart = shutil.copytree(CHART, tmp_path / "disagg")
    shutil.rmtree(chart / "files")
    with pytest.raises(HelmError, match="the chart has no files/crds"):
        helm.template(chart=chart)


def test_app_version_is_the_version_of_the_operator() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == project["project"]["version"]


def test_kubernetes_that_is_too_old_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"requires kubeVersion: >=1\.31\.0-0"):
        helm.run("template", "disagg", str(CHART), "--kube-version", "1.30.9")


def test_vendor_suffix_of_a_kubernetes_version_is_accepted(helm: Helm) -> None:
    assert helm.run("template", "disagg", str(CHART), "--kube-version", "1.31.4-eks-a1b2c3")
