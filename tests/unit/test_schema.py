from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import BaseModel, Field

from disagg.api.crd import crd, crd_yaml
from disagg.api.schema import ALLOWED, NotStructuralError, structural_schema
from disagg.api.status import MAX_DOMAINS
from disagg.topology.levels import Level

CRD_FILE = Path(__file__).parents[2] / "crds" / "disagg.dev_disaggregatedinferences.yaml"
SCHEMA: dict[str, Any] = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC: dict[str, Any] = SCHEMA["properties"]["spec"]

Node = dict[str, Any]


def walk(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every schema below `node`, with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")
    if isinstance(values := node.get("additionalProperties"), dict):
        yield from walk(values, f"{path}{{}}")


def at(path: str) -> Node:
    """The schema of the field at `path`, such as `.spec.model.uri`."""
    return dict(walk(SCHEMA))[path]


def test_the_crd_in_the_repository_is_the_one_that_the_models_generate() -> None:
    assert CRD_FILE.read_text() == crd_yaml(), "the models have changed: run `make generate`"


def test_the_crd_is_valid_yaml_without_anchors() -> None:
    assert yaml.safe_load(crd_yaml()) == crd()
    assert not re.search(r"[&*]id\d+", crd_yaml())


def test_the_crd_is_small_enough_to_be_applied() -> None:
    assert len(crd_yaml().encode()) < 200_000


@pytest.mark.parametrize(("path", "node"), list(walk(SCHEMA)), ids=[path for path, _ in walk(SCHEMA)])
def test_each_node_is_structural(path: str, node: Node) -> None:
    assert node.keys() <= set(ALLOWED)
    has_type = "type" in node
    assert has_type or node.get("x-kubernetes-int-or-string"), f"{path} has no type"
    assert not (node.get("properties") and node.get("additionalProperties"))


def test_no_list_item_has_a_default() -> None:
    in_lists = [path for path, node in walk(SCHEMA) if "[]" in path and "default" in node]
    assert in_lists == []


def test_each_field_is_described() -> None:
    undescribed = [
        path
        for path, node in walk(SCHEMA)
        if path.startswith((".spec", ".status"))
        and re.search(r"\.\w+$", path)
        and not node.get("description")
        and path not in (".spec", ".status")
    ]
    assert undescribed == []


def test_the_spec_is_required() -> None:
    assert SCHEMA["required"] == ["spec"]


def test_the_smallest_resource_names_a_model_and_an_engine_image() -> None:
    assert set(SPEC["required"]) == {"model", "engine"}
    assert at(".spec.model")["required"] == ["uri"]
    assert at(".spec.engine")["required"] == ["image"]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_replicas_has_no_default(role: str) -> None:
    assert "default" not in at(f".spec.{role}.replicas")


def test_an_optional_field_may_be_absent_but_not_null() -> None:
    assert [path for path, node in walk(SCHEMA) if node.get("nullable")] == []
    assert at(".spec.model.servedName")["type"] == "string"
    assert "servedName" not in at(".spec.model")["required"]


DEFAULTS = {
    ".spec.model.tokenSecret.key": "token",
    ".spec.engine.kind": "vllm",
    ".spec.accelerator.resource": "nvidia.com/gpu",
    ".spec.accelerator.perRank": 1,
    ".spec.model.offline": False,
    ".spec.kvTransfer.connector": "nixl",
    ".spec.kvTransfer.rdma.allowPrivileged": False,
    ".spec.kvTransfer.offload.disk.path": "/var/lib/disagg/kv-disk",
    ".spec.kvTransfer.offload.sharedFileSystem.path": "/var/lib/disagg/kv-shared",
    **{
        f".spec.{role}.{field}": default
        for role in ("prefill", "decode")
        for field, default in {
            "accelerator.resource": "nvidia.com/gpu",
            "accelerator.perRank": 1,
            "parallelism.tensor": 1,
            "parallelism.pipeline": 1,
            "parallelism.data": 1,
            "parallelism.expert": False,
            "autoscaling.minReplicas": 1,
        }.items()
    },
    ".spec.router.replicas": 1,
    ".spec.router.service.type": "ClusterIP",
    ".spec.router.service.port": 80,
    ".spec.topologyConstraint.mode": "Preferred",
    ".spec.groups": 1,
    ".spec.paused": False,
}


def test_only_defaults_that_never_change_are_in_the_schema() -> None:
    assert {path: node["default"] for path, node in walk(SCHEMA) if "default" in node} == DEFAULTS


def test_the_levels_of_a_resource_are_those_that_packing_knows() -> None:
    levels = at(".spec.topologyConstraint.levels")["properties"]
    assert list(levels) == list(Level)
    # A literal of the schema: the default of an empty block would be written into each resource.
    assert "default" not in at(".spec.topologyConstraint.levels")


def test_the_rule_for_pack_domains_names_each_level_and_the_keys_of_its_map() -> None:
    (rule,) = at(".spec.topologyConstraint")["x-kubernetes-validations"]
    assert f"self.packDomain in {[str(level) for level in Level]}" in rule["rule"]
    assert at(".spec.topologyConstraint.levels.rack")["pattern"] in rule["rule"]
    assert rule["fieldPath"] == ".packDomain"


def test_pods_by_domain_are_bounded() -> None:
    for role in ("prefill", "decode"):
        assert at(f".status.groups[].{role}")["maxProperties"] == MAX_DOMAINS


def test_pod_templates_take_any_field() -> None:
    for role in ("prefill", "decode", "router"):
        assert at(f".spec.{role}.podTemplate.spec")["x-kubernetes-preserve-unknown-fields"]


def rules() -> Iterator[tuple[str, str]]:
    """Each rule's expressions, with the path of the schema that has them."""
    for path, node in walk(SCHEMA):
        for rule in node.get("x-kubernetes-validations", []):
            yield path, f"{rule['rule']} {rule.get('messageExpression', '')}"


def fields_of_rules() -> Iterator[str]:
    """Paths of the fields whose value a rule reads; `has` reads none."""
    for path, expression in rules():
        expression = re.sub(r"'(?:\\.|[^'\\])*'", "", expression)  # noqa: PLW2901 - literals are not fields
        expression = re.sub(r"has\([^)]*\)", "", expression)  # noqa: PLW2901
        for match in re.finditer(r"self((?:\.\w+)+)", expression):
            yield path + re.sub(r"\.(matches|startsWith|contains|exists)$", "", match[1])


@pytest.mark.parametrize("path", sorted(set(fields_of_rules()) - {".metadata.name"}))
def test_what_a_rule_reads_is_bounded(path: str) -> None:
    """The API server estimates what a rule costs from the bounds of what it reads."""
    node = at(path)
    if node.get("x-kubernetes-int-or-string"):
        assert "pattern" in node
        return
    bound = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}.get(node["type"])
    assert bound is None or bound in node or "enum" in node or "properties" in node


@pytest.mark.parametrize("path", sorted({path for path, _ in rules() if "[]" in path}))
def test_a_list_whose_items_have_rules_is_bounded(path: str) -> None:
    while "[]" in path:
        path = path.rpartition("[]")[0]
        assert "maxItems" in at(path)


@pytest.mark.parametrize("path", [path for path, node in walk(SPEC, ".spec") if node.get("type") == "array"])
def test_each_list_of_the_spec_says_how_it_merges(path: str) -> None:
    node = at(path)
    assert node["x-kubernetes-list-type"] in ("atomic", "map", "set")
    if node["x-kubernetes-list-type"] == "map":
        assert set(node["x-kubernetes-list-map-keys"]) <= set(node["items"]["required"])


def test_each_rule_says_what_is_wrong() -> None:
    for _, node in walk(SCHEMA):
        for rule in node.get("x-kubernetes-validations", []):
            assert rule.keys() <= {"rule", "messageExpression", "fieldPath"}
            assert rule["messageExpression"]


# What has no place in a structural schema is refused when the CRD is generated, not by a user's API server.


class AnyOfTwo(BaseModel):
    field: int | list[str]


class WithDefault(BaseModel):
    field: int = 1


class DefaultInList(BaseModel):
    items: list[WithDefault]


class DefaultInListOfMaps(BaseModel):
    items: list[dict[str, WithDefault]]


class ExclusiveMinimum(BaseModel):
    field: Annotated[int, Field(gt=0)]


class UniqueItems(BaseModel):
    field: set[str]


class Tuple(BaseModel):
    field: tuple[int, str]


class Examples(BaseModel):
    field: Annotated[int, Field(examples=[1])]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (AnyOfTwo, "AnyOfTwo.field: a structural schema has no keyword anyOf"),
        (DefaultInList, "DefaultInList.items[].field: a default inside a list item"),
        (DefaultInListOfMaps, "DefaultInListOfMaps.items[]{}.field: a default inside a list item"),
        (ExclusiveMinimum, "ExclusiveMinimum.field: a structural schema has no keyword exclusiveMinimum"),
        (UniqueItems, "UniqueItems.field: a structural schema has no keyword uniqueItems"),
        (Tuple, "Tuple.field: a structural schema has no keyword prefixItems"),
        (Examples, "Examples.field: a structural schema has no keyword examples"),
    ],
)
def test_a_model_that_is_not_structural_is_refused(model: type[BaseModel], message: str) -> None:
    with pytest.raises(NotStructuralError, match=re.escape(message)):
        structural_schema(model)


class Inner(BaseModel):
    """An inner block.

    It has more to say.
    """

    value: int = 3


class Outer(BaseModel):
    fixed: Literal["a"]
    inner: Inner | None = None
    many: list[str] = []


def test_references_are_inlined_and_descriptions_are_one_line() -> None:
    schema = structural_schema(Outer)
    assert schema["properties"]["inner"] == {
        "description": "An inner block. It has more to say.",
        "type": "object",
        "properties": {"value": {"type": "integer", "default": 3}},
    }


def test_a_constant_is_an_enum_of_one() -> None:
    assert structural_schema(Outer)["properties"]["fixed"] == {"type": "string", "enum": ["a"]}


def test_an_empty_list_is_no_default() -> None:
    assert "default" not in structural_schema(Outer)["properties"]["many"]
