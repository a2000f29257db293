"""The demo, as somebody who tries the project meets it, and its picture."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from e2e.cluster import Cluster, wait_until
from e2e.cluster.processes import find
from e2e.demo.picture import WIDTH, draw, svg
from e2e.demo.scene import GPU, Pod, scene
from e2e.demo.story import commands
from tests.e2e.shell import run, shell

NAMESPACE = "--namespace=inference"


def node(name: str, rack: str, gpus: int = 8) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/rack": rack}},
        "status": {"allocatable": {GPU: str(gpus)}},
    }


def pod(name: str, role: str, gpus: int, on: str | None, *, ready: bool = True) -> dict[str, Any]:
    limits = {GPU: str(gpus)} if gpus else {}
    return {
        "metadata": {
            "name": name,
            "labels": {"disagg.dev/role": role},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [{"resources": {"limits": limits}}]} | ({"nodeName": on} if on else {}),
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def resource(*, generation: int = 1) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True", "reason": "Ready", "message": "all roles are ready"}
    return {
        "metadata": {"name": "llama", "generation": generation},
        "spec": {"model": {"uri": "hf://org/llama"}},
        "status": {
            "observedGeneration": 1,
            "conditions": [condition],
            "roles": {"prefill": {"ready": "1/2"}},
            "endpoint": "http://llama-router.inference.svc",
        },
    }


NODES = [node("gpu-r1-n0", "rack-1"), node("gpu-r0-n10", "rack-0"), node("gpu-r0-n9", "rack-0")]
PODS = [
    pod("p-1", "prefill", 1, "gpu-r0-n9"),
    pod("d-1", "decode", 4, "gpu-r0-n9", ready=False),
    pod("r-1", "router", 0, "gpu-r0-n9"),
    pod("p-2", "prefill", 1, None),
]


def printed(*, width: int) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(draw(scene(NODES, PODS, resource()), width=width, seconds=3))
    return capture.get()


def test_racks_and_their_nodes_are_in_order_of_their_numbers() -> None:
    racks = scene(NODES, [], None).racks
    assert [(rack.name, [n.name for n in rack.nodes]) for rack in racks] == [
        ("rack-0", ["gpu-r0-n9", "gpu-r0-n10"]),
        ("rack-1", ["gpu-r1-n0"]),
    ]


def test_each_gpu_knows_the_pod_that_takes_it() -> None:
    first = scene(NODES, PODS, None).racks[0].nodes[0]
    cells = [cell and (cell[1].name, cell[1].ready) for cell in first.cells()]
    assert cells == [*[("d-1", False)] * 4, ("p-1", True), None, None, None]


def test_a_node_never_shows_more_gpus_than_it_has() -> None:
    found = scene([node("n", "r", gpus=2)], [pod("d", "decode", 4, "n")], None)
    assert len(list(found.racks[0].nodes[0].cells())) == 2


def test_a_pod_on_its_way_out_is_not_ready_and_one_that_has_ended_is_not_there() -> None:
    leaving = pod("a", "prefill", 1, "n")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    ended = pod("b", "prefill", 1, "n")
    ended["status"]["phase"] = "Failed"
    pods = scene([node("n", "r")], [leaving, ended], None).racks[0].nodes[0].pods
    assert pods == (Pod("a", "prefill", 1, ready=False),)


def test_pods_without_a_node_are_counted() -> None:
    assert scene(NODES, PODS, None).unbound == {"prefill": 1}


def test_what_was_said_of_an_earlier_generation_does_not_count() -> None:
    now, later = (scene([], [], resource(generation=number)).resource for number in (1, 2))
    assert now is not None
    assert later is not None
    assert (now.is_ready, later.is_ready) == (True, False)
    assert now.summary() == "prefill 1/2; Ready=True Ready: all roles are ready"
    assert later.summary() == "prefill 1/2; no status yet"


def test_the_picture_tells_roles_and_readiness_without_colour() -> None:
    wide = printed(width=WIDTH)
    assert "n9  ░d░░d░░d░░d░ P  ·  ·  · " in wide
    assert "5/16 GPUs" in wide
    assert "no node yet: 1 prefill" in wide
    assert "1/2 ready" in wide


@pytest.mark.parametrize("width", [80, WIDTH])
def test_the_picture_fits(width: int) -> None:
    assert max(map(len, printed(width=width).splitlines())) <= width


def test_the_svg_loads_nothing_from_elsewhere() -> None:
    text = svg(scene(NODES, PODS, resource()), title="demo")
    assert "@font-face" not in text
    assert "url(http" not in text


def demo(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "e2e.demo", *arguments, "--state", str(state))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "demo"
    yield folder
    Cluster(folder).down()


@pytest.mark.cluster
def test_demo_then_the_commands_that_it_prints_then_down(state: Path, tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    played = demo(state, "--svg", str(picture))
    assert played.returncode == 0, played.stdout + played.stderr
    assert "all roles are rolled out and ready" in played.stdout
    # As kubectl shows it.
    assert "llama-70b   True    4/4       2/2      1/1      rack-2" in played.stdout
    assert "74 of 128 GPUs are other teams' already" in played.stdout
    assert "without topologyConstraint the scheduler puts prefill in rack-" in played.stdout
    assert "DDDD" in played.stdout.replace(" ", "")
    assert "llama-70b" in picture.read_text()

    cluster = Cluster(state)
    operator = next(process for process in cluster.record.processes if process.name == "operator")
    assert find(operator)
    more, image, delete = _printed_commands(played.stdout, f"--state {state}")

    shell(more)
    wait_until("there are 6 prefill pods", lambda: _column(cluster, "prefill") == "6/6")

    shell(image)
    # One pod of a role after the other, five seconds each: the first ones are enough.
    wait_until("pods run the other image", lambda: "vllm/vllm-openai:v0.32.1" in _images(cluster))

    shell(delete)
    assert "llama-70b" not in cluster.kubectl("get", "dinf", NAMESPACE, "--output=name")

    ended = demo(state, "down")
    assert ended.returncode == 0, ended.stderr
    assert not state.exists()
    assert find(operator) is None


@pytest.mark.cluster
def test_a_demo_that_is_not_ready_in_time_fails_and_says_what_is_missing(state: Path) -> None:
    played = demo(state, "--timeout", "1")
    assert played.returncode == 1
    assert "llama-70b is not ready after 1 s" in played.stderr
    assert "Ready=" in played.stderr


def _printed_commands(output: str, where: str) -> list[str]:
    """The commands, which are in the output word for word."""
    wanted = list(commands(where).values())
    assert [command for command in wanted if command in output.splitlines()] == wanted
    return wanted


def _column(cluster: Cluster, role: str) -> str:
    return cluster.kubectl(
        "get", "dinf", "llama-70b", NAMESPACE, f"--output=jsonpath={{.status.roles.{role}.ready}}"
    )


def _images(cluster: Cluster) -> set[str]:
    pods = json.loads(
        cluster.kubectl("get", "pods", NAMESPACE, "--selector=disagg.dev/role!=router", "--output=json")
    )
    return {pod["spec"]["containers"][0]["image"] for pod in pods["items"]}
