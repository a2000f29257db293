from __future__ import annotations

import importlib.resources
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from disagg.api.topology_constraint import LabelKey
from disagg.topology.levels import PRESETS, Level
from tests.chart.cases import EVERYTHING
from tests.chart.helm import CHART, ROOT, Helm, HelmError, Values

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
TOOL = ROOT / ".ci" / "chart_readme.py"


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"replicas": 2}, "replicas"),
        ({"image": {"tagg": "1"}}, "tagg"),
        ({"crds": {"install": True}}, "install"),
        ({"operator": {"worker": 1}}, "worker"),
        ({"logging": {"levle": "info"}}, "levle"),
        ({"topology": {"level": {}}}, "level"),
        ({"topology": {"levels": {"row": "example.com/row"}}}, "row"),
        ({"placement": {"podGroups": "auto"}}, "podGroups"),
        ({"rbac": {"scopes": "cluster"}}, "scopes"),
        ({"admissionPolicy": {"enable": True}}, "enable"),
        ({"serviceAccount": {"nmae": "x"}}, "nmae"),
        ({"metrics": {"enabled": True}}, "enabled"),
        ({"metrics": {"service": {"port": 1}}}, "port"),
        ({"resources": {"limit": {}}}, "limit"),
        ({"affinity": {"podAntiAfinity": {}}}, "podAntiAfinity"),
        ({"tolerations": [{"efect": "NoSchedule"}]}, "efect"),
        ({"podSecurityContext": {"runAsNonroot": True}}, "runAsNonroot"),
        ({"securityContext": {"privilged": True}}, "privilged"),
        ({"extraEnv": [{"name": "A", "valeu": "b"}]}, "valeu"),
        ({"imagePullSecrets": [{"nmae": "x"}]}, "nmae"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_misspelt_value_is_refused_by_name(helm: Helm, values: Values, key: str) -> None:
    with pytest.raises(HelmError, match=f"additional properties '{key}' not allowed"):
        helm.template(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replicaCount": -1}, "/replicaCount"),
        ({"replicaCount": None}, "replicaCount"),
        ({"image": {"tag": 1.0}}, "/image/tag"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"image": {"repository": ""}}, "/image/repository"),
        ({"image": None}, "image"),
        ({"operator": {"workers": 0}}, "/operator/workers"),
        ({"logging": {"level": "trace"}}, "'debug', 'info', 'warning', 'error'"),
        ({"logging": {"format": "xml"}}, "'json', 'text'"),
        ({"topology": {"preset": "aws"}}, "/topology/preset"),
        ({"topology": {"levels": {"rack": "rack"}}}, "/topology/levels/rack"),
        ({"topology": {"levels": {"rack": "example.com/rack=1"}}}, "/topology/levels/rack"),
        ({"topology": {"levels": {"rack": ""}}}, "/topology/levels/rack"),
        ({"placement": {"podGroup": "never"}}, "'auto', 'on', 'off'"),
        ({"admissionPolicy": {"enabled": "yes"}}, "/admissionPolicy/enabled"),
        ({"rbac": {"scope": "namespace"}}, "'cluster', 'namespaced'"),
        ({"commonLabels": {"a": True}}, "/commonLabels/a"),
        ({"watchNamespaces": ["a", "a"]}, "/watchNamespaces"),
        ({"watchNamespaces": ["A"]}, "/watchNamespaces/0"),
        ({"fullnameOverride": "Disagg"}, "/fullnameOverride"),
    ],
)
def test_wrong_value_is_refused_by_name(helm: Helm, values: Values, message: str) -> None:
    with pytest.raises(HelmError, match="don't meet the specifications") as refusal:
        helm.template(values)
    assert message in str(refusal.value)


def test_second_replica_without_leader_election_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"replicaCount is 2: .* operator\.leaderElection=true"):
        helm.template({"replicaCount": 2})


def test_watched_namespaces_in_cluster_scope_are_refused(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"rbac\.scope is cluster: set rbac\.scope=namespaced"):
        helm.template({"watchNamespaces": ["a"]})


def _closed(schema: Any, path: str = "") -> Iterator[tuple[str, bool]]:  # noqa: ANN401 - whatever a JSON file holds
    """Each object of the schema that has properties, and whether it refuses others."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield path, schema.get("additionalProperties") is False
        for key, value in schema.items():
            yield from _closed(value, f"{path}/{key}")


def test_schema_refuses_unknown_keys_everywhere_but_in_volumes() -> None:
    assert [path for path, closed in _closed(SCHEMA) if not closed] == ["/properties/extraVolumes/items"]


def test_schema_has_each_value_and_what_a_parent_chart_adds() -> None:
    assert SCHEMA["properties"].keys() - DEFAULTS.keys() == {"global", "enabled"}
    assert DEFAULTS.keys() <= SCHEMA["properties"].keys()


def test_test_values_use_every_value() -> None:
    assert EVERYTHING.keys() == DEFAULTS.keys()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("podSecurityContext", "PodSecurityContext"),
        ("securityContext", "SecurityContext"),
        ("resources", "ResourceRequirements"),
        ("affinity", "Affinity"),
        ("tolerations", "Toleration"),
        ("topologySpreadConstraints", "TopologySpreadConstraint"),
        ("extraVolumeMounts", "VolumeMount"),
    ],
)
def test_schema_knows_the_fields_of_kubernetes(value: str, kind: str) -> None:
    schemas = (
        importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema" / "v1.37.0-local-strict"
    )
    kubernetes = json.loads((schemas / f"{kind.lower()}-v1.json").read_text())
    ours = SCHEMA["properties"][value]
    assert ours.get("items", ours)["properties"].keys() == kubernetes["properties"].keys()


def test_schema_has_the_presets_and_levels_of_the_operator() -> None:
    topology = SCHEMA["properties"]["topology"]["properties"]
    assert sorted(topology["preset"]["enum"]) == sorted(PRESETS)
    assert list(topology["levels"]["properties"]) == list(Level)


def test_schema_takes_the_label_keys_that_the_resource_takes() -> None:
    assert set(SCHEMA["definitions"]["labelKey"].items()) <= set(TypeAdapter(LabelKey).json_schema().items())


def test_values_name_each_preset() -> None:
    described = (CHART / "values.yaml").read_text()
    assert [preset for preset in PRESETS if f"`{preset}`" not in described] == []


def _tool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    return shutil.copytree(CHART, tmp_path / "disagg")


def test_table_of_values_in_the_readme_is_fresh() -> None:
    result = _tool("--check")
    assert result.returncode == 0, result.stderr


def test_a_changed_default_makes_the_table_stale(chart: Path) -> None:
    values = chart / "values.yaml"
    values.write_text(values.read_text().replace("workers: 4", "workers: 5"))
    assert "out of date" in _tool("--check", "--chart", chart).stderr
    assert _tool("--chart", chart).returncode == 0
    assert "| `operator.workers` | Number of resources that are reconciled at the same time. | `5` |" in (
        (chart / "README.md").read_text()
    )


def test_a_value_without_comment_is_refused(chart: Path) -> None:
    with (chart / "values.yaml").open("a") as values:
        values.write("mystery: 1\n")
    result = _tool("--chart", chart)
    assert result.returncode == 1
    assert "mystery has no comment" in result.stderr
