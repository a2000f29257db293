"""A cluster with a real node: containers run, speak to one another, and leave nothing when the cluster goes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from e2e.cluster import Cluster, ClusterError, CommandError, Options, wait_until
from e2e.cluster.cluster import REPOSITORY
from e2e.cluster.node.cgroups import cgroup_name
from e2e.cluster.processes import payload
from e2e.images import Image, build
from e2e.images.buildah import buildah, drafts_folder, images_folder

pytestmark = [pytest.mark.cluster, pytest.mark.real_node]

COMPONENTS = {
    *("sandbox", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"),
    *("containerd", "kubelet", "kube-proxy", "coredns"),
}
SERVER = """\
import http.server, socket
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"hello {self.client_address[0]}".encode())
print("listening", flush=True)
http.server.HTTPServer(("", 8000), Handler).serve_forever()
"""
ASK = "import urllib.request as r; print(r.urlopen('http://web.default.svc.cluster.local', timeout=5).read().decode())"


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "e2e.cluster", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def pod(
    name: str, image: str, *command: str, node: dict[str, str] | None = None, **container: object
) -> dict[str, Any]:
    main = {"name": "main", "image": image, "command": list(command)} | container
    selector = {"nodeSelector": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [main], "terminationGracePeriodSeconds": 0} | selector,
    }


def apply(cluster: Cluster, *manifests: dict[str, Any]) -> None:
    document = {"apiVersion": "v1", "kind": "List", "items": manifests}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(document))


def wait_ready(cluster: Cluster, name: str) -> None:
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def node_of(cluster: Cluster, name: str) -> str:
    return cluster.kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}")


def ours(root: Path) -> list[str]:
    """What is left of a cluster: processes and mounts in its namespaces and cgroups."""
    name = cgroup_name(root)
    left = [str(path) for path in Path("/sys/fs/cgroup").rglob(f"{name}*")]
    for process in psutil.process_iter(["pid", "cmdline"]):
        folder = Path("/proc") / str(process.info["pid"])
        try:
            inside = name in (folder / "cgroup").read_text() or str(root) in (folder / "mounts").read_text()
        except OSError:
            continue
        if inside or any(str(root) in argument for argument in process.info["cmdline"] or ()):
            left.append(" ".join(process.info["cmdline"] or [process.name()]))
    return left + ([str(root)] if root.exists() else [])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, images: dict[str, Image]) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster") / "state", Options(real_node=True)) as running:
        running.load_image(images["base"].archive)
        yield running


@pytest.fixture(scope="module")
def web(cluster: Cluster, images: dict[str, Image]) -> str:
    """A pod that answers behind the Service `web`; returns its image."""
    image = images["base"].ref
    probe = {"httpGet": {"port": 8000}, "periodSeconds": 1}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    apply(cluster, service, pod("web", image, "python3", "-c", SERVER, readinessProbe=probe))
    wait_ready(cluster, "web")
    return image


def test_all_components_run(cluster: Cluster) -> None:
    assert {component.name for component in cluster.status() if component.running} == COMPONENTS
    assert {component.name for component in cluster.status() if component.rss < 2**21} == set()


def test_a_pod_reaches_another_by_the_name_of_its_service(cluster: Cluster, web: str) -> None:
    apply(cluster, pod("client", web, "sleep", "1000"))
    wait_ready(cluster, "client")
    answer = cluster.kubectl("exec", "client", "--", "python3", "-c", ASK)
    assert answer.startswith("hello 10.65.")
    assert cluster.kubectl("logs", "web").strip().splitlines()[0] == "listening"


@pytest.mark.usefixtures("web")
def test_a_pod_calls_the_api_server_with_its_own_account(cluster: Cluster) -> None:
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = (
        "import ssl, urllib.request as r\n"
        f"token = open('{folder}/token').read()\n"
        f"context = ssl.create_default_context(cafile='{folder}/ca.crt')\n"
        "request = r.Request('https://kubernetes.default.svc/version', headers={'Authorization': 'Bearer ' + token})\n"
        "print(r.urlopen(request, context=context, timeout=5).read().decode())"
    )
    assert '"gitVersion": "v1.' in cluster.kubectl("exec", "web", "--", "python3", "-c", script)


@pytest.mark.parametrize("name", ["example.com", "web.other.svc.cluster.local"])
@pytest.mark.usefixtures("web")
def test_a_name_that_is_not_the_clusters_is_unknown_at_once(cluster: Cluster, name: str) -> None:
    ask = f"import socket; socket.getaddrinfo('{name}', 80)"
    with pytest.raises(CommandError, match="Name or service not known"):
        cluster.kubectl("exec", "web", "--", "python3", "-c", ask)


@pytest.mark.usefixtures("web")
def test_nothing_can_leave_the_machine(cluster: Cluster) -> None:
    ask = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
    with pytest.raises(CommandError, match="unreachable"):
        cluster.kubectl("exec", "web", "--", "python3", "-c", ask)


@pytest.mark.usefixtures("web")
def test_pods_go_where_what_they_ask_for_is(cluster: Cluster) -> None:
    gpu = {"limits": {"nvidia.com/gpu": 1}}
    simulated = {"node.disagg.dev/kind": "simulated"}
    apply(
        cluster,
        pod("gpu", "no/such/image", "model", resources=gpu),
        pod("chooses", "no/such/image", "router", node=simulated),
    )
    wait_ready(cluster, "gpu")
    wait_ready(cluster, "chooses")
    assert node_of(cluster, "web") == "real"
    assert node_of(cluster, "gpu").startswith("gpu-r")
    assert node_of(cluster, "chooses").startswith("gpu-r")


def test_clients_and_commands_enter_the_network_by_themselves(cluster: Cluster) -> None:
    state = ("--state", str(cluster.layout.root))
    assert command_line("kubectl", *state, "get", "node", "real", "-o", "name").stdout == "node/real\n"
    assert command_line("helm", *state, "list", "--output", "json").stdout.strip() == "[]"
    assert "10.65.0.1" in command_line("enter", *state, "ip", "address").stdout
    assert cluster.is_running()


def test_an_image_needs_a_real_node(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="there is no cluster in"):
        Cluster(tmp_path / "state").load_image(tmp_path / "image.tar")


def test_down_after_a_crash_leaves_nothing(tmp_path: Path, images: dict[str, Image]) -> None:
    root = tmp_path / "state"
    cluster = Cluster(root, Options(real_node=True))
    cluster.up()
    cluster.load_image(images["base"].archive)
    apply(cluster, pod("runs", images["base"].ref, "sleep", "100000"))
    wait_ready(cluster, "runs")
    assert any("sleep 100000" in line for line in ours(root))

    (containerd,) = (process for process in cluster.status() if process.name == "containerd")
    payload(psutil.Process(containerd.pid)).kill()
    wait_until("the crash is noticed", lambda: not cluster.is_running())
    assert any("containerd-shim" in line for line in ours(root))
    assert cluster.down()
    assert ours(root) == []


START = """\
import sys
from pathlib import Path
from e2e.cluster import Cluster, Options
Cluster(Path(sys.argv[1]), Options(real_node=True)).up(tied=sys.argv[2] == "True")
"""


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("last", ["etcd", "kubelet"])
def test_a_start_that_is_killed_leaves_nothing(tmp_path: Path, last: str, tied: bool) -> None:
    root = tmp_path / "state"
    cluster = Cluster(root)

    def started() -> bool:
        return any(component.name == last for component in cluster.status())

    with subprocess.Popen([sys.executable, "-c", START, root, str(tied)], cwd=REPOSITORY) as starter:
        wait_until(f"{last} was started", started)
        os.kill(starter.pid, signal.SIGKILL)
    if tied:
        wait_until("the reaper is done", lambda: ours(root) == [])
    else:
        assert any("sandbox_init" in line for line in ours(root))
        assert cluster.down()
        assert ours(root) == []


BUILD = """\
import sys
from pathlib import Path
from e2e.images import build
build("operator", sources=Path(sys.argv[1]))
"""
DOCKERFILE = """\
ARG BASE
FROM ${{BASE}}
RUN echo 1 > /volume && sleep {seconds}
"""


def test_an_image_build_that_is_killed_leaves_nothing_and_is_no_hindrance(tmp_path: Path) -> None:
    def write(seconds: int) -> None:
        (tmp_path / "images" / "operator" / "Dockerfile").write_text(DOCKERFILE.format(seconds=seconds))

    def left() -> list[str]:
        wanted = (str(tmp_path), "sleep 100001")
        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        return [line for line in lines if any(part in line for part in wanted)]

    (tmp_path / "images" / "operator").mkdir(parents=True)
    write(seconds=100001)
    with subprocess.Popen([sys.executable, "-c", BUILD, tmp_path], cwd=REPOSITORY) as builder:
        try:
            # Others may build first.
            wait_until("it builds", lambda: "sleep 100001" in left(), seconds=200)
        finally:
            builder.kill()
    wait_until("all has ended", lambda: left() == [])

    write(seconds=0)
    build("operator", sources=tmp_path).archive.unlink()
    with FileLock(images_folder() / ".lock"):
        assert list(drafts_folder().iterdir()) == []
        assert json.loads(buildah("containers", "--all", "--json") or "null") is None


@pytest.mark.parametrize("lost", ["cluster.json", "."])
def test_what_lost_its_record_or_folder_is_still_found(tmp_path: Path, lost: str) -> None:
    root = tmp_path / "state"
    cluster = Cluster(root, Options(real_node=True))
    cluster.up()
    if lost == ".":
        shutil.rmtree(root, ignore_errors=True)
    else:
        (root / lost).unlink()
    assert any("kubelet" in line for line in ours(root))
    assert cluster.down()
    assert ours(root) == []
