"""The rules of the CRD without a cluster say what the API server says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from disagg.commands.rules import violations
from tests.operator.test_pair_refusals import ACCEPTED, REFUSED
from tests.unit import strategies
from tests.unit.resources import SMALLEST, overlaid, raw

BY_SCHEMA = {
    "no transport",
    "an adapter twice",
    "no ranks",
    "less than no CPU memory",
    "more CPU memory than there is of anything",
}
"""What is refused for its shape, and by no rule."""


def written(spec: dict[str, Any]) -> dict[str, Any]:
    return overlaid(SMALLEST, {"spec": {"accelerator": {"perRank": 0}} | spec})


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - BY_SCHEMA))
def test_what_the_api_server_refuses_is_refused_with_its_words(name: str) -> None:
    spec, message = REFUSED[name]
    assert any(message in violation for violation in violations(written(spec))), violations(written(spec))


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_api_server_accepts_is_accepted(name: str) -> None:
    assert violations(written(ACCEPTED[name])) == []


@given(strategies.raws())
def test_a_valid_resource_breaks_no_rule(wanted: dict[str, Any]) -> None:
    assert violations(wanted) == []


def test_a_violation_names_the_field() -> None:
    autoscaling = {"minReplicas": 3, "maxReplicas": 2}
    found = violations(raw(prefill={"autoscaling": autoscaling}))
    assert found == ["spec.prefill.autoscaling.minReplicas: minReplicas (3) must be at most maxReplicas (2)"]


def test_the_name_has_rules_too() -> None:
    (found,) = violations(raw("1llama"))
    assert found.startswith('metadata.name "1llama" cannot become the name of a Service')
