"""Recipes: versions come from go.mod, and everything that shapes a binary shapes its cache key."""

from pathlib import Path

import pytest

from e2e.cluster.tools import NODE_TOOLS, TOOLS, go_directive, link_flags, package_version, recipe, recipes

GO_MOD = """\
module example.test/tools

go 1.26.8

replace k8s.io/api => k8s.io/api v0.37.2

require go.etcd.io/etcd/server/v3 v3.7.3 // indirect

require (
	k8s.io/kubernetes v1.37.2 // indirect
	k8s.io/kube v0.1.0
	k8s.io/kubernetes/nested v0.2.0
)
"""


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("go.etcd.io/etcd/server/v3", "v3.7.3"),
        ("k8s.io/kubernetes/cmd/kubectl", "v1.37.2"),
        ("k8s.io/kubernetes/nested/cmd", "v0.2.0"),
        ("k8s.io/kubernetes-other/cmd", "v0.0.0"),
        ("example.test/tools/cmd", "v0.0.0"),
    ],
)
def test_version_is_that_of_the_nearest_required_module(package: str, version: str) -> None:
    assert package_version(GO_MOD, package) == version


def test_go_directive() -> None:
    assert go_directive(GO_MOD) == "1.26.8"
    with pytest.raises(ValueError, match="no go line"):
        go_directive("module x\n")


@pytest.mark.parametrize(
    ("package", "stamped", "absent"),
    [
        (
            "k8s.io/kubernetes/cmd/kubectl",
            [
                "-X k8s.io/component-base/version.gitVersion=v1.37.2",
                "-X k8s.io/component-base/version.gitMajor=1",
                "-X k8s.io/component-base/version.gitMinor=37",
                "-X k8s.io/client-go/pkg/version.gitVersion=v1.37.2",
                "gitTreeState=clean",
                "buildDate=1970-01-01T00:00:00Z",
            ],
            "helm",
        ),
        ("helm.sh/helm/v4/cmd/helm", ["-X helm.sh/helm/v4/internal/version.version=v1.37.2"], "k8s.io"),
        ("sigs.k8s.io/kwok/cmd/kwok", ["-s -w"], "-X"),
    ],
)
def test_programs_are_stamped_where_they_can_be(package: str, stamped: list[str], absent: str) -> None:
    flags = link_flags(package, "v1.37.2")
    assert all(stamp in flags for stamp in stamped)
    assert absent not in flags


def test_key_changes_with_each_input(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text(GO_MOD)
    first = recipe("etcd", "go.etcd.io/etcd/server/v3", tmp_path)
    assert first.key.startswith("etcd-v3.7.3-")
    assert recipe("etcd", "go.etcd.io/etcd/server/v3", tmp_path).key == first.key

    (tmp_path / "go.sum").write_text("x")
    second = recipe("etcd", "go.etcd.io/etcd/server/v3", tmp_path)
    (tmp_path / "go.mod").write_text(GO_MOD.replace("v0.37.2", "v0.37.3"))
    third = recipe("etcd", "go.etcd.io/etcd/server/v3", tmp_path)
    assert len({first.key, second.key, third.key}) == 3


def test_every_tool_has_a_pinned_version() -> None:
    made = recipes()
    assert [made_one.name for made_one in made] == [tool.name for tool in TOOLS]
    assert all(made_one.version != "v0.0.0" for made_one in made)
    assert len({made_one.version for made_one in made if made_one.name.startswith("kube")}) == 1


def test_the_tools_of_a_node_are_of_one_version_each() -> None:
    made = {made_one.name: made_one.version for made_one in recipes(NODE_TOOLS)}
    assert made["kubelet"] == made["kube-proxy"] == recipes()[1].version
    assert made["containerd"] == made["containerd-shim-runc-v2"] == made["ctr"]
    assert {name for name, version in made.items() if version == "v0.0.0"} == {"pause"}


def test_key_changes_with_tags_c_and_sources(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text(GO_MOD)
    package = "go.etcd.io/etcd/server/v3"
    keys = [recipe("etcd", package, tmp_path).key, recipe("etcd", package, tmp_path, tags="seccomp").key]
    keys.append(recipe("etcd", package, tmp_path, tags="seccomp", cgo=True).key)
    (tmp_path / "main.go").write_text("package main\n")
    keys.append(recipe("etcd", package, tmp_path).key)
    assert len(set(keys)) == 4
