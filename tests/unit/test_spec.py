from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from disagg.api.engine import EngineKind
from disagg.api.resource import DisaggregatedInference, InvalidSpecError, parse
from disagg.api.router import ServiceType
from disagg.api.topology_constraint import PackMode
from tests.unit import strategies
from tests.unit.resources import raw, resource


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("hf://RedHatAI/Llama-3.3-70B", "Llama-3.3-70B"),
        ("/models/llama", "llama"),
        ("/models/llama/", "llama"),
        ("/", "/"),
    ],
)
def test_the_served_name_is_the_last_part_of_the_uri(uri: str, name: str) -> None:
    assert resource(model={"uri": uri}).spec.model.name == name


def test_a_given_served_name_wins() -> None:
    assert resource(model={"servedName": "mine"}).spec.model.name == "mine"


def test_the_smallest_resource_has_defaults_that_work() -> None:
    spec = resource().spec
    assert spec.engine.kind is EngineKind.VLLM
    assert spec.accelerator.resource == "nvidia.com/gpu"
    assert (spec.prefill.parallelism.tensor, spec.decode.parallelism.tensor) == (1, 1)
    assert (spec.router.replicas, spec.router.service.port) == (1, 80)
    assert spec.router.service.type is ServiceType.CLUSTER_IP
    assert not spec.paused


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_replicas_stay_unset(role: str) -> None:
    assert getattr(resource().spec, role).replicas is None


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        ({"model": {"uri": "llama"}}, "spec.model.uri", "'llama'"),
        ({"model": {"uri": "hf://llama"}}, "spec.model.uri", "'hf://llama'"),
        ({"engine": {"kind": "triton"}}, "spec.engine.kind", "'triton'"),
        ({"engine": {"image": ""}}, "spec.engine.image", "''"),
        ({"engine": {"image": "a b"}}, "spec.engine.image", "'a b'"),
        ({"prefill": {"replicas": -1}}, "spec.prefill.replicas", "-1"),
        ({"prefill": {"autoscaling": {}}}, "spec.prefill.autoscaling.maxReplicas", "{}"),
        (
            {"decode": {"autoscaling": {"maxReplicas": 2, "kvCacheUtilization": 91}}},
            "spec.decode.autoscaling.kvCacheUtilization",
            "91",
        ),
        ({"decode": {"parallelism": {"tensor": 0}}}, "spec.decode.parallelism.tensor", "0"),
        ({"accelerator": {"resource": "gpu"}}, "spec.accelerator.resource", "'gpu'"),
        ({"router": {"service": {"port": 65536}}}, "spec.router.service.port", "65536"),
        ({"groups": 101}, "spec.groups", "101"),
        ({"topologyConstraint": {}}, "spec.topologyConstraint.packDomain", "{}"),
        ({"topologyConstraint": {"packDomain": "row"}}, "spec.topologyConstraint.packDomain", "'row'"),
        (
            {"topologyConstraint": {"packDomain": "rack", "mode": "Strict"}},
            "spec.topologyConstraint.mode",
            "'Strict'",
        ),
        (
            {"topologyConstraint": {"packDomain": "rack", "levels": {"rack": "rack"}}},
            "spec.topologyConstraint.levels.rack",
            "'rack'",
        ),
    ],
)
def test_a_refusal_names_the_field_and_the_value(spec: dict[str, Any], field: str, value: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        resource(**spec)
    assert str(refused.value).startswith(f"{field}: ")
    assert str(refused.value).endswith(f"(is {value})")


@pytest.mark.parametrize(
    "domain",
    ["host", "rack", "block", "zone", "example.com/rack", "a/b", "nvidia.com/gpu.clique", "a.b-c/D_e.f"],
)
def test_a_pack_domain_is_a_level_or_the_key_of_a_label(domain: str) -> None:
    constraint = resource(topologyConstraint={"packDomain": domain}).spec.topology_constraint
    assert constraint is not None
    assert (constraint.pack_domain, constraint.mode) == (domain, PackMode.PREFERRED)


@pytest.mark.parametrize(
    "domain", ["", "Rack", "rack ", "/rack", "example.com/", "Example.com/rack", "a/b/c", "a/b\n", "-a/b"]
)
def test_other_pack_domains_are_refused(domain: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"^spec\.topologyConstraint\.packDomain: "):
        resource(topologyConstraint={"packDomain": domain})


def test_without_a_constraint_pods_run_anywhere() -> None:
    assert resource().spec.topology_constraint is None
    assert resource().spec.groups == 1


def test_a_refusal_names_each_field() -> None:
    with pytest.raises(InvalidSpecError, match=r"(?s)spec\.groups: .*; spec\.paused: ") as refused:
        resource(groups=101, paused="perhaps")
    assert str(refused.value).count("(is ") == 2


def test_a_refusal_does_not_repeat_long_values() -> None:
    with pytest.raises(InvalidSpecError) as refused:
        resource(engine={"image": "a " * 10000})
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("part", ["metadata", "spec"])
def test_a_refusal_names_a_missing_part(part: str) -> None:
    broken = raw()
    del broken[part]
    with pytest.raises(InvalidSpecError, match=f"^{part}: Field required"):
        parse(broken)


def test_unknown_fields_are_ignored() -> None:
    known = parse(raw())
    assert parse(raw(newField={"a": 1}, engine={"newField": 1})) == known


def test_a_resource_is_owner_of_its_children_without_blocking_its_deletion() -> None:
    assert resource().owner_reference == {
        "apiVersion": "disagg.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "name": "llama",
        "uid": "u-1",
        "controller": True,
    }


@given(wanted=strategies.resources())
def test_what_is_read_reads_back(wanted: DisaggregatedInference) -> None:
    assert parse(wanted.model_dump(mode="json", by_alias=True, exclude_none=True)) == wanted
