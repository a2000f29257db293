"""What a real node's programs read, and what the cluster begins with: pure, so without a node."""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from e2e.cluster.components import apiserver
from e2e.cluster.errors import ClusterError
from e2e.cluster.node import machine
from e2e.cluster.node.addons import addons
from e2e.cluster.node.cgroups import cgroup_name
from e2e.cluster.node.configuration import (
    containerd_configuration,
    kube_proxy_configuration,
    kubelet_configuration,
)
from e2e.cluster.node.network import cni_configuration
from e2e.cluster.node.oci import write_program_archive
from e2e.cluster.ports import Ports
from e2e.cluster.state import Layout, Options

LAYOUT = Layout(Path("/state"))


def test_pods_call_an_api_server_that_can_call_their_kubelet() -> None:
    arguments = apiserver(LAYOUT, Ports.from_block(21000), Options(real_node=True)).arguments
    assert {"--bind-address=0.0.0.0", "--advertise-address=10.65.0.1"} <= set(arguments)
    assert "--kubelet-client-certificate=/state/pki/kubelet-client.crt" in arguments
    assert "--endpoint-reconciler-type=none" not in arguments


def test_cgroups_are_found_by_the_state_folder() -> None:
    assert kubelet_configuration(LAYOUT) == kubelet_configuration(LAYOUT)
    assert yaml.safe_load(kubelet_configuration(LAYOUT))["cgroupRoot"] == f"/{cgroup_name(LAYOUT.root)}"
    assert cgroup_name(Path("/state")) != cgroup_name(Path("/other"))


def test_nothing_of_the_machine_is_changed() -> None:
    conntrack = yaml.safe_load(kube_proxy_configuration(LAYOUT))["conntrack"]
    assert conntrack["maxPerCore"] == conntrack["min"] == 0
    assert yaml.safe_load(kubelet_configuration(LAYOUT))["imageGCHighThresholdPercent"] == 100


def test_the_runtime_is_of_the_binaries_that_are_given() -> None:
    text = containerd_configuration(LAYOUT, Path("/bin/shim"), Path("/bin/runc"))
    assert 'runtime_path = "/bin/shim"' in text
    assert 'BinaryName = "/bin/runc"' in text
    assert 'conf_dir = "/state/node/cni"' in text


def test_pods_get_addresses_in_the_range_of_the_bridge() -> None:
    (plugin,) = json.loads(cni_configuration())["plugins"]
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.65.0.0/16", "gateway": "10.65.0.1"}]]


def test_every_addon_has_a_kind_and_a_name() -> None:
    for path, manifest in addons():
        assert path.rpartition("/")[2].startswith(manifest["kind"].lower()[:-1])
        assert manifest["metadata"]["name"]


def test_an_archive_names_its_image_and_holds_the_program(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    archive = tmp_path / "pause.tar"
    write_program_archive(archive, "localhost/a/b:c", program)
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
        index = tar.extractfile("index.json")
        assert index is not None
        (manifest,) = json.load(index)["manifests"]
    assert manifest["annotations"] == {"io.containerd.image.name": "localhost/a/b:c"}
    assert f"blobs/sha256/{manifest['digest'].partition(':')[2]}" in names
    assert len(names) == 5


@dataclass
class Machine:
    platform: str = "linux"
    user: int = 0
    missing: tuple[str, ...] = ()
    has_apt: bool = True


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (Machine(), None),
        (Machine(missing=("nftables",)), None),
        (Machine(missing=("nftables", "buildah"), has_apt=False), "what Debian calls nftables, buildah"),
        (Machine(user=1000), "needs root"),
        (Machine(platform="darwin"), "needs Linux"),
    ],
)
def test_why_a_machine_can_not(monkeypatch: pytest.MonkeyPatch, there: Machine, reason: str | None) -> None:
    monkeypatch.setattr("sys.platform", there.platform)
    monkeypatch.setattr("os.geteuid", lambda: there.user)
    monkeypatch.setattr("e2e.cluster.node.machine.missing_packages", lambda: list(there.missing))
    monkeypatch.setattr("e2e.cluster.node.machine._has_apt", lambda: there.has_apt)
    found = machine.why_not()
    assert (reason in (found or "")) if reason else found is None
    if reason:
        with pytest.raises(ClusterError, match=reason):
            machine.ensure_packages()
