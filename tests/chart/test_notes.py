from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from disagg.api.resource import parse
from tests.chart.helm import Helm, Values


def resource_in(notes: str) -> dict[str, Any]:
    """The resource that the notes tell the user to apply."""
    found = re.search(r"<<'EOF'\n(.*?)^EOF$", notes, re.DOTALL | re.MULTILINE)
    assert found
    return dict(yaml.safe_load(found[1]))


def test_resource_to_try_is_one_that_the_operator_understands(helm: Helm) -> None:
    resource = resource_in(helm.notes())
    resource["metadata"] |= {"namespace": "default", "uid": "1", "generation": 1}
    assert parse(resource).spec.model.name == "Qwen3-0.6B"


@pytest.mark.parametrize(
    ("values", "target", "works_in"),
    [
        ({}, "default", "It works in all namespaces."),
        ({"rbac": {"scope": "namespaced"}}, "inference", "It works in inference only."),
        (
            {"rbac": {"scope": "namespaced"}, "watchNamespaces": ["b", "a"]},
            "a",
            "It works in a, b only.",
        ),
    ],
)
def test_commands_are_for_a_namespace_that_the_operator_works_in(
    helm: Helm, values: Values, target: str, works_in: str
) -> None:
    notes = helm.notes(values)
    assert works_in in notes
    assert f"kubectl apply --namespace {target} -f -" in notes
    assert f"kubectl get dinf --namespace {target} --watch" in notes


def test_first_command_waits_for_the_operator(helm: Helm) -> None:
    assert "kubectl rollout status deployment/disagg --namespace elsewhere" in helm.notes(
        {"namespaceOverride": "elsewhere"}
    )


@pytest.mark.parametrize(
    ("crds", "told"),
    [
        ({}, "an uninstall keeps it"),
        ({"keep": False}, "WARNING: "),
        (
            {"enabled": False},
            "The CustomResourceDefinition is not part of this release (crds.enabled=false).",
        ),
    ],
    ids=["kept", "not kept", "not installed"],
)
def test_notes_say_where_the_crd_comes_from(helm: Helm, crds: Values, told: str) -> None:
    assert told in helm.notes({"crds": crds})


def test_notes_name_the_preset_and_where_its_effect_shows(helm: Helm) -> None:
    notes = helm.notes({"topology": {"preset": "gke"}})
    assert "Topology preset: gke. Condition Packed of " in notes
