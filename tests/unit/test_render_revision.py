from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from disagg.api.names import RENDER_REVISION, TEMPLATE_INPUTS, RoleName, Workload
from disagg.api.topology_constraint import PackMode
from disagg.build.objects import build
from disagg.build.placement import placed
from disagg.build.pod_template import pod_templates
from disagg.decide.decide import decide
from disagg.decide.decisions import GroupDecision, Placement, Template
from disagg.decide.observed import key_of
from disagg.decide.template import choose_template, choose_templates
from tests.unit import goldens
from tests.unit.resources import live, managed, objects, observed, overlaid, resource

# What a revision renders


def test_the_present_revision_has_golden_templates() -> None:
    assert goldens.FOLDER.is_dir(), "add the golden folder: `python -m tests.unit.goldens`"
    assert {file.stem for file in goldens.FOLDER.glob("*.yaml")} == goldens.EXAMPLES.keys()


@pytest.mark.parametrize("name", goldens.EXAMPLES)
def test_a_revision_renders_what_it_has_always_rendered(name: str) -> None:
    golden = yaml.safe_load((goldens.FOLDER / f"{name}.yaml").read_text())
    assert golden["templates"] == goldens.rendered(name)["templates"], (
        "pods are rendered in another way: raise RENDER_REVISION and add a golden folder"
        " (`python -m tests.unit.goldens`), or every model restarts with the next release"
    )


@pytest.mark.parametrize(
    "file", sorted(goldens.REVISIONS.glob("*/*.yaml")), ids=lambda file: f"{file.parent.name} {file.stem}"
)
def test_the_hash_of_the_inputs_is_the_same_in_each_revision(file: Path) -> None:
    golden = yaml.safe_load(file.read_text())
    assert golden["inputs"] == goldens.rendered(file.stem)["inputs"], (
        "resources that nobody has changed would look changed, and every model restart with the next release:"
        " keep what is hashed, and leave defaults out of it"
    )


# Which template a Deployment gets

WANTED = resource(
    model={"tokenSecret": {"name": "hf"}},
    prefill={"podTemplate": {"spec": {"containers": [{"name": "a-sidecar", "image": "sidecar:1"}]}}},
)
LIVE = live(objects(WANTED)["Deployment", "llama-prefill"])
"""The Deployment as this release has applied it."""
MADE = pod_templates(WANTED)[Workload(RoleName.PREFILL)]
"""What this release renders of the same resource."""


def by_another_release(made: Template, by: int) -> Template:
    """What a release whose renderer is `by` revisions newer renders of the same resource."""
    body = overlaid(made.body, {"spec": {"schedulerName": "another"}})
    body["spec"]["containers"][0]["args"] = ["--another"]
    return replace(made, body=body, revision=made.revision + by)


NEWER = by_another_release(MADE, 1)


def written(*path: str, manager: str = "kubectl", operation: str = "Update") -> dict[str, Any]:
    """An entry of `managedFields` of somebody who has written a field of the template."""
    tree: dict[str, Any] = {}
    for key in reversed(("f:spec", "f:template", *path)):
        tree = {key: tree}
    return managed(tree, manager, operation)


def taken_over(*path: str) -> dict[str, Any]:
    """The Deployment after somebody has changed a field that the operator had applied: it is theirs now."""
    changed = deepcopy(LIVE)
    changed["metadata"]["managedFields"].append(written(*path))
    tree = changed["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:template"]
    for key in path[:-1]:
        tree = tree[key]
    del tree[path[-1]]
    return changed


ENGINE = ("f:spec", "f:containers", 'k:{"name":"engine"}')


@pytest.mark.parametrize("by", [1, 41, -1])
def test_another_release_keeps_the_running_template(by: int) -> None:
    chosen = choose_template(by_another_release(MADE, by), LIVE)
    assert chosen == MADE


def test_the_running_template_is_kept_in_its_order() -> None:
    """A pod with its environment in another order is another pod, and managedFields are sorted."""
    (engine, _) = choose_template(NEWER, LIVE).body["spec"]["containers"]
    names = [variable["name"] for variable in engine["env"]]
    assert engine["name"] == "engine"
    assert names == [variable["name"] for variable in MADE.body["spec"]["containers"][0]["env"]]
    assert names != sorted(names)


def test_what_the_api_server_has_filled_in_is_not_taken_for_the_operators() -> None:
    filled = overlaid(LIVE, {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}})
    filled["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    assert choose_template(NEWER, filled) == MADE


def test_a_new_deployment_gets_the_template_of_this_release() -> None:
    assert choose_template(NEWER, None) == NEWER


def test_a_change_of_the_resource_takes_the_template_of_this_release() -> None:
    changed = replace(NEWER, inputs="others")
    assert choose_template(changed, LIVE) == changed


def test_the_same_revision_takes_what_it_renders() -> None:
    changed = replace(NEWER, revision=MADE.revision)
    assert choose_template(changed, LIVE) == changed


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {RENDER_REVISION: "1"},
        {TEMPLATE_INPUTS: MADE.inputs},
        {TEMPLATE_INPUTS: MADE.inputs, RENDER_REVISION: "one"},
        {TEMPLATE_INPUTS: MADE.inputs, RENDER_REVISION: ""},
    ],
    ids=str,
)
def test_without_its_annotations_a_deployment_gets_the_template_of_this_release(
    annotations: dict[str, str],
) -> None:
    bare = deepcopy(LIVE)
    bare["metadata"]["annotations"] = annotations
    assert choose_template(NEWER, bare) == NEWER


def test_a_deployment_that_the_operator_has_not_applied_gets_the_template_of_this_release() -> None:
    foreign = deepcopy(LIVE)
    foreign["metadata"]["managedFields"] = []
    assert choose_template(NEWER, foreign) == NEWER


@pytest.mark.parametrize(
    "path",
    [
        pytest.param((*ENGINE, "f:image"), id="kubectl set image"),
        pytest.param((*ENGINE, "f:args"), id="arguments"),
        pytest.param((*ENGINE, "f:env", 'k:{"name":"PYTHONHASHSEED"}', "f:value"), id="kubectl set env"),
        pytest.param(
            (*ENGINE, "f:ports", 'k:{"containerPort":8000,"protocol":"TCP"}', "f:name"), id="a port"
        ),
        pytest.param(("f:metadata", "f:labels", "f:app.kubernetes.io/name"), id="a label"),
    ],
)
def test_what_somebody_has_changed_is_made_anew(path: tuple[str, ...]) -> None:
    assert choose_template(NEWER, taken_over(*path)) == NEWER


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            ("f:metadata", "f:annotations", "f:kubectl.kubernetes.io/restartedAt"),
            id="kubectl rollout restart",
        ),
        pytest.param(
            ("f:spec", "f:containers", 'k:{"name":"injected"}', "f:image"), id="an injected sidecar"
        ),
        pytest.param((*ENGINE, "f:env", 'k:{"name":"INJECTED"}', "f:value"), id="an injected variable"),
        pytest.param(("f:spec", "f:priorityClassName"), id="a field that is not ours"),
    ],
)
def test_what_somebody_has_added_is_no_reason_to_restart(path: tuple[str, ...]) -> None:
    added = deepcopy(LIVE)
    added["metadata"]["managedFields"].append(written(*path))
    assert choose_template(NEWER, added) == MADE


def test_a_field_that_somebody_shares_is_not_taken_over() -> None:
    shared = deepcopy(LIVE)
    shared["metadata"]["managedFields"].append(
        written(*ENGINE, "f:image", manager="argocd", operation="Apply")
    )
    assert choose_template(NEWER, shared) == MADE


def test_the_status_of_a_deployment_is_nobodys_change() -> None:
    entry = written(*ENGINE, "f:image", manager="kube-controller-manager") | {"subresource": "status"}
    reported = deepcopy(LIVE)
    reported["metadata"]["managedFields"].append(entry)
    assert choose_template(NEWER, reported) == MADE


# Where a group is packed is a part of what its pods are made from

PLACED = goldens.PLACEMENTS["packed"]
DECODE = Workload(RoleName.DECODE)


def packed(placement: Placement) -> Template:
    """The template of a group that is packed, as this release renders it."""
    wanted = goldens.EXAMPLES["packed"]
    return placed(wanted, pod_templates(wanted), {0: GroupDecision(placement)})[DECODE]


def packed_deployment(placement: Placement) -> dict[str, Any]:
    """Its Deployment, as this release has applied it."""
    wanted = goldens.EXAMPLES["packed"]
    decisions = decide(wanted, observed(), {DECODE: packed(placement)}, {0: GroupDecision(placement)})
    return live({key_of(obj): obj for obj in build(wanted, decisions)}["Deployment", "llama-decode"])


def test_another_release_keeps_the_template_of_a_group_that_stays() -> None:
    made = packed(PLACED)
    assert choose_template(by_another_release(made, 1), packed_deployment(PLACED)) == made


@pytest.mark.parametrize(
    "other",
    [
        replace(PLACED, domain="rack-b"),
        replace(PLACED, mode=PackMode.REQUIRED),
        replace(PLACED, nodes=()),
        replace(PLACED, moves=1),
    ],
    ids=str,
)
def test_a_group_that_moves_takes_the_template_of_this_release(other: Placement) -> None:
    newer = by_another_release(packed(other), 1)
    assert choose_template(newer, packed_deployment(PLACED)) == newer


def test_a_group_that_is_no_longer_packed_takes_the_template_of_this_release() -> None:
    newer = by_another_release(pod_templates(goldens.EXAMPLES["packed"])[DECODE], 1)
    assert choose_template(newer, packed_deployment(PLACED)) == newer


def test_a_group_that_is_packed_for_the_first_time_takes_the_template_of_this_release() -> None:
    newer = by_another_release(packed(PLACED), 1)
    assert choose_template(newer, live(objects(resource())["Deployment", "llama-decode"])) == newer


# Both roles together

PAIR = [Workload(RoleName.PREFILL), Workload(RoleName.DECODE)]
RUNNING = observed(*(live(objects(WANTED)["Deployment", f"llama-{workload.role}"]) for workload in PAIR))
"""Both roles as this release has applied them."""
NEXT = {workload: by_another_release(pod_templates(WANTED)[workload], 1) for workload in PAIR}
"""What a newer release renders of the same resource."""
CHANGED = NEXT | {PAIR[0]: replace(NEXT[PAIR[0]], inputs="other")}
"""The same, after the user has changed something of prefill."""


def same_scheduler(prefill: Mapping[str, Any], decode: Mapping[str, Any]) -> bool:
    """Whether two templates are of the same release, for engines that nothing else works with."""
    return bool(prefill["spec"].get("schedulerName") == decode["spec"].get("schedulerName"))


@pytest.mark.parametrize("agree", [True, False])
def test_neither_role_gets_another_template_for_a_new_release(*, agree: bool) -> None:
    chosen = choose_templates(NEXT, RUNNING, lambda _prefill, _decode: agree)
    assert [chosen[workload].revision for workload in PAIR] == [MADE.revision] * 2


def test_a_role_that_can_still_exchange_kv_cache_keeps_its_template() -> None:
    chosen = choose_templates(CHANGED, RUNNING, lambda _prefill, _decode: True)
    assert [chosen[workload].revision - MADE.revision for workload in PAIR] == [1, 0]


def test_a_role_that_could_not_exchange_kv_cache_any_more_gets_its_template_with_the_other() -> None:
    assert choose_templates(CHANGED, RUNNING, same_scheduler) == CHANGED


def test_a_deployment_that_is_made_again_takes_the_other_role_along() -> None:
    alone = observed(RUNNING.children["Deployment", "llama-decode"])
    assert choose_templates(NEXT, alone, same_scheduler) == NEXT


def test_what_no_template_of_this_release_would_mend_restarts_nothing() -> None:
    chosen = choose_templates(CHANGED, RUNNING, lambda _prefill, _decode: False)
    assert [chosen[workload].revision - MADE.revision for workload in PAIR] == [1, 0]


def test_a_change_of_one_role_after_an_upgrade_parts_no_pair() -> None:
    """vLLM of 0.27 and before wants the same block size in both roles, and a release may render another one than before."""
    old = {"engine": {"image": "vllm/vllm-openai:v0.20.0"}}
    children = objects(resource(**old))
    for workload in PAIR:
        deployment = children["Deployment", f"llama-{workload.role}"]
        deployment["metadata"]["annotations"][RENDER_REVISION] = "1"
        engine = deployment["spec"]["template"]["spec"]["containers"][0]
        engine["args"] = [arg for arg in engine["args"] if not arg.startswith("--block-size")]
    before = observed(*(live(children["Deployment", f"llama-{workload.role}"]) for workload in PAIR))
    changed = resource(**old, prefill={"args": ["--max-num-seqs=64"]})
    after = objects(changed, before)
    sizes = {
        arg
        for workload in PAIR
        for arg in after["Deployment", f"llama-{workload.role}"]["spec"]["template"]["spec"]["containers"][0][
            "args"
        ]
        if arg.startswith("--block-size")
    }
    assert sizes == {"--block-size=128"}
    untouched = objects(resource(**old), before)
    for workload in PAIR:
        name = "Deployment", f"llama-{workload.role}"
        assert untouched[name]["spec"]["template"] == children[name]["spec"]["template"]
