"""What is checked before an engine starts, and what the check says."""

from __future__ import annotations

import ast
import json
import os
import resource as limits
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from disagg.build import preflight_check as check
from disagg.build.preflight import CONTAINER, SCRIPT
from disagg.topology.amounts import pod_requests
from tests.unit.resources import overlaid, resource, template

RDMA: dict[str, Any] = {"kvTransfer": {"transport": "rdma", "fabric": "infiniband"}}
UNLIMITED = limits.RLIM_INFINITY

# The init container


def containers(role: str = "decode", **spec: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The check and the engine of a pod."""
    pod = template(resource(**spec), role)["spec"]
    (first,) = pod["initContainers"]
    return first, pod["containers"][0]


def arguments(role: str = "decode", **spec: object) -> list[str]:
    """What a pod checks."""
    return list(containers(role, **spec)[0]["args"])


@pytest.mark.parametrize(
    ("transport", "wanted", "checked"),
    [
        ("rdma", None, True),
        ("rdma", False, False),
        ("tcp", None, False),
        ("tcp", True, True),
    ],
)
def test_pods_are_checked_over_rdma_and_where_asked(
    transport: str, *, wanted: bool | None, checked: bool
) -> None:
    transfer: dict[str, Any] = {"transport": transport}
    if transport == "rdma":
        transfer["fabric"] = "roce"
    if wanted is not None:
        transfer["preflight"] = wanted
    assert ("initContainers" in template(resource(kvTransfer=transfer))["spec"]) is checked


def test_the_check_runs_in_the_image_of_the_engine() -> None:
    first, engine = containers(**RDMA, decode={"image": "mine:1"})
    assert first["name"] == CONTAINER
    assert first["image"] == engine["image"] == "mine:1"
    assert first["command"] == ["python3", "-I", "-S", "-c", SCRIPT]


def test_the_check_has_the_rights_and_volumes_of_the_engine() -> None:
    first, engine = containers(**RDMA, model={"uri": "pvc://models/llama"})
    assert first["securityContext"] == engine["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert first["volumeMounts"] == engine["volumeMounts"]


def test_the_check_has_the_device_and_no_accelerator() -> None:
    first, _ = containers(**RDMA)
    assert first["resources"]["limits"] == {"rdma/ib": "1"}


def test_the_check_has_the_claims_of_the_engine() -> None:
    transfer = {"transport": "rdma", "rdma": {"resourceClaimTemplate": "nic"}}
    first, engine = containers(kvTransfer=transfer)
    assert first["resources"] == {"claims": [{"name": "rdma"}]}
    assert engine["resources"]["claims"] == first["resources"]["claims"]


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"requests": {"cpu": "16", "memory": "64Gi"}},
        {"requests": {"cpu": "16", "memory": "64Gi"}, "limits": {"cpu": "16", "memory": "64Gi"}},
    ],
    ids=["none", "requests", "guaranteed"],
)
def test_a_pod_takes_no_more_of_its_node_for_being_checked(own: dict[str, Any]) -> None:
    pods = {}
    for wanted in (True, False):
        transfer = RDMA["kvTransfer"] | {"preflight": wanted}
        pods[wanted] = template(resource(kvTransfer=transfer, decode={"resources": own}), "decode")["spec"]
    assert pod_requests(pods[True]) == pod_requests(pods[False])


def test_a_pod_whose_requests_are_guaranteed_stays_so() -> None:
    """Any container whose limits are not its requests makes the pod burstable, and takes its pinned CPUs from it."""
    own = {"cpu": "16", "memory": "64Gi"}
    first, _ = containers(**RDMA, decode={"resources": {"requests": own, "limits": own}})
    assert first["resources"]["requests"] == own
    assert first["resources"]["limits"].items() >= own.items()


def test_the_log_is_the_message_where_the_check_itself_breaks() -> None:
    assert containers(**RDMA)[0]["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_checked_pods_are_valid() -> None:
    pod = template(resource(**RDMA))
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"} | pod["metadata"],
        "spec": pod["spec"],
    }
    kubernetes_validate.validate(body, "1.37", strict=True)


def test_kubernetes_finds_no_variables_in_the_script() -> None:
    """It would replace them, and two dollar signs by one."""
    assert "$" not in SCRIPT


def test_the_script_is_understood_by_an_old_python() -> None:
    ast.parse(SCRIPT, feature_version=(3, 8))


def test_the_script_needs_nothing_but_the_standard_library() -> None:
    modules = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(SCRIPT))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert {str(module).partition(".")[0] for module in modules} <= sys.stdlib_module_names


# What is asked of it


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        ("infiniband", ["--rdma"]),
        ("efa", ["--rdma", "--driver=efa"]),
        ("gke", ["--rdma", "--no-device-files"]),
    ],
)
def test_devices_are_those_of_the_fabric(fabric: str, expected: list[str]) -> None:
    found = arguments(kvTransfer={"transport": "rdma", "fabric": fabric})
    assert [argument for argument in found if "shm" not in argument][: len(expected)] == expected


@pytest.mark.parametrize(("tensor", "expected"), [(1, []), (2, ["--shared-memory=1073741824"])])
def test_shared_memory_is_looked_at_where_ranks_share_it(tensor: int, expected: list[str]) -> None:
    found = arguments(**RDMA, decode={"parallelism": {"tensor": tensor}})
    assert [argument for argument in found if argument.startswith("--shared-memory")] == expected


def test_over_tcp_no_device_is_looked_for() -> None:
    assert "--rdma" not in arguments(kvTransfer={"transport": "tcp", "preflight": True})


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"uri": "hf://org/llama"}, ["--writable=/var/cache/huggingface"]),
        ({"uri": "hf://org/llama", "cache": {"claim": "hub"}}, ["--writable=/var/cache/huggingface"]),
        ({"uri": "hf://org/llama", "cache": {"claim": "hub"}, "offline": True}, []),
        ({"uri": "pvc://models/a/b"}, ["--readable=/model", "--model=/model/a/b"]),
        ({"uri": "oci://example.com/llama:1", "path": "w"}, ["--readable=/model", "--model=/model/w"]),
        ({"uri": "/models/llama"}, ["--model=/models/llama"]),
    ],
    ids=["hub", "cached", "offline", "claim", "image", "path"],
)
def test_the_model_is_looked_for_where_it_has_to_be(model: dict[str, Any], expected: list[str]) -> None:
    found = arguments(**RDMA, model=model)
    of_engine = ("--rdma", "--shared-memory", "--writable=/var/cache/kernels")
    assert [argument for argument in found if not argument.startswith(of_engine)] == expected


def test_a_model_that_an_overlay_mounts_is_not_looked_for() -> None:
    mount = {"name": "engine", "volumeMounts": [{"name": "nfs", "mountPath": "/models"}]}
    found = arguments(
        **RDMA, model={"uri": "/models/a"}, decode={"podTemplate": {"spec": {"containers": [mount]}}}
    )
    assert not [argument for argument in found if argument.startswith("--model")]


def test_the_model_of_a_custom_engine_is_not_looked_for() -> None:
    custom = {"kind": "custom", "image": "mine:1"}
    transfer = RDMA["kvTransfer"] | {"preflight": True}
    found = arguments(kvTransfer=transfer, engine=custom, model={"uri": "/models/a"})
    assert not [argument for argument in found if argument.startswith("--model")]


@pytest.mark.parametrize("cache", [{}, {"kernelCache": {"claim": "kernels"}}])
def test_compiled_kernels_must_find_a_place(cache: dict[str, Any]) -> None:
    assert "--writable=/var/cache/kernels" in arguments(**RDMA, engine=cache)


# The check itself, on folders like those of a pod


USABLE_PORT = {
    "state": "4: ACTIVE",
    "link_layer": "InfiniBand",
    "lid": "0x1b",
    "address": "fe80:0000:0000:0000:0000:0000:0000:0001",
}


class Pod:
    """/sys, /dev and /proc of a pod."""

    def __init__(self, root: Path) -> None:
        self.sys, self.dev, self.proc = root / "sys", root / "dev", root / "proc"
        (self.dev / "shm").mkdir(parents=True)
        self.capable("0000000000000000")

    def capable(self, capabilities: str) -> None:
        self._file(self.proc / "self/status", f"Name:\tpython3\nCapEff:\t{capabilities}\nSeccomp:\t0\n")

    def card(
        self, name: str = "mlx5_0", *, number: int | None = 0, driver: str = "mlx5_core", **port: str
    ) -> None:
        """Put a network card in; `number` is that of its device file, None for a card of other pods."""
        card = self.sys / "class/infiniband" / name
        for file, text in (USABLE_PORT | port).items():
            self._file(card / "ports/1" / file.replace("address", "gids/0"), f"{text}\n")
        (self.sys / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (card / "device").mkdir()
        (card / "device/driver").symlink_to(self.sys / "drivers" / driver)
        if number is not None:
            self._file(self.dev / f"infiniband/uverbs{number}", "")
            self._file(self.sys / f"class/infiniband_verbs/uverbs{number}/ibdev", f"{name}\n")

    def faults(self, *, driver: str | None = None, device_files: bool = True) -> list[str]:
        return list(check.rdma(self.sys, self.dev, driver=driver, device_files=device_files))

    @staticmethod
    def _file(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path / "pod")


def test_a_card_that_is_up_is_enough(pod: Pod) -> None:
    pod.card()
    assert pod.faults() == []


def test_a_node_without_cards_is_told_from_a_pod_without(pod: Pod) -> None:
    (fault,) = pod.faults()
    assert "there is no RDMA device: the node has none" in fault
    assert "kvTransfer.fabric" in fault


def test_a_pod_that_was_given_no_card_is_told_what_to_request(pod: Pod) -> None:
    pod.card(number=None)
    (fault,) = pod.faults()
    assert "this pod was given no RDMA device" in fault
    assert "kvTransfer.rdma.resource" in fault


def test_a_card_that_may_not_be_opened_was_not_given(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a folder of the node shows it, whose devices the container's cgroup denies."""
    pod.card()

    def denied(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", denied)
    (fault,) = pod.faults()
    assert "uverbs0 (Operation not permitted)" in fault
    assert "kvTransfer.rdma.resource" in fault


def test_where_device_files_are_not_given_to_the_check_none_are_looked_for(pod: Pod) -> None:
    pod.card(number=None)
    assert pod.faults(device_files=False) == []


def test_cards_of_other_pods_are_not_looked_at(pod: Pod) -> None:
    pod.card("mlx5_0", number=0, state="1: DOWN")
    pod.card("mlx5_1", number=None)
    (fault,) = pod.faults()
    assert "mlx5_0 port 1 is DOWN" in fault
    assert "mlx5_1" not in fault


def test_one_usable_port_is_enough(pod: Pod) -> None:
    """Nodes have cards for storage, too, which may be down."""
    pod.card("mlx5_0", number=0, state="1: DOWN")
    pod.card("mlx5_1", number=1)
    assert pod.faults() == []


@pytest.mark.parametrize(
    ("card", "fault"),
    [
        ({"state": "1: DOWN"}, "mlx5_0 port 1 is DOWN"),
        ({"state": "2: INIT"}, "mlx5_0 port 1 is INIT"),
        ({"state": ""}, "mlx5_0 port 1 is in no known state"),
        ({"lid": "0x0"}, "mlx5_0 port 1 has no LID, as bonded devices do"),
        (
            {"link_layer": "Ethernet", "lid": "0x0", "address": ":".join(["0000"] * 8)},
            "mlx5_0 port 1 has no address (GID) in the pod's network",
        ),
    ],
)
def test_a_port_that_cannot_send_is_told_with_its_reason(pod: Pod, card: dict[str, str], fault: str) -> None:
    pod.card("mlx5_0", number=0, driver="mlx5_core", **card)
    (found,) = pod.faults()
    assert fault in found


@pytest.mark.parametrize("layer", ["Ethernet", "Unspecified"])
def test_cards_that_are_not_of_infiniband_need_no_lid(pod: Pod, layer: str) -> None:
    pod.card(link_layer=layer, lid="0x0")
    assert pod.faults() == []


def test_a_fabric_of_aws_wants_its_own_card(pod: Pod) -> None:
    pod.card()
    (fault,) = pod.faults(driver="efa")
    assert "no RDMA device has driver efa, there is mlx5_0 (mlx5_core)" in fault
    pod.card("rdmap0s6", number=1, driver="efa", link_layer="Unspecified", lid="0x0")
    assert pod.faults(driver="efa") == []


@pytest.mark.parametrize(
    ("limit", "capabilities", "locks"),
    [
        pytest.param(UNLIMITED, "0000000000000000", True, id="unlimited"),
        pytest.param(65536, "0000000000004000", True, id="IPC_LOCK"),
        pytest.param(65536, "000001ffffffffff", True, id="privileged"),
        pytest.param(8 << 20, "00000000a80425fb", False, id="what a container has by itself"),
        pytest.param(0, "", False, id="not told"),
    ],
)
def test_memory_can_be_locked_by_limit_or_capability(
    pod: Pod, limit: int, capabilities: str, *, locks: bool
) -> None:
    pod.capable(capabilities or "0")
    assert (list(check.memory_lock(pod.proc, limit, 0)) == []) is locks


def test_root_is_told_to_add_the_capability(pod: Pod) -> None:
    (fault,) = check.memory_lock(pod.proc, 8 << 20, 0)
    assert "the limit is 8 MiB" in fault
    assert "kvTransfer.rdma.capabilities" in fault
    assert "runAsUser" not in fault


def test_another_user_is_told_that_capabilities_are_for_root(pod: Pod) -> None:
    (fault,) = check.memory_lock(pod.proc, 65536, 2000)
    assert "runs as user 2000" in fault
    assert "runAsUser to 0" in fault


def model_folder(root: Path, *files: str, index: object = None) -> Path:
    folder = root / "llama"
    folder.mkdir()
    for file in files:
        (folder / file).touch()
    if index is not None:
        (folder / "model.safetensors.index.json").write_text(
            index if isinstance(index, str) else json.dumps(index)
        )
    return folder


SHARDS = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}


@pytest.mark.parametrize(
    ("files", "index", "fault"),
    [
        (["config.json"], None, None),
        (["params.json", "consolidated.safetensors"], None, None),
        (["config.json", "model-1.safetensors", "model-2.safetensors"], SHARDS, None),
        ([], None, "has no config.json, but nothing"),
        (["a", "b"], None, "has no config.json, but a, b"),
        (
            ["config.json", "model-1.safetensors"],
            SHARDS,
            "lacks 1 of 2 files of weights: model-2.safetensors",
        ),
        (["config.json"], "{", "is damaged"),
        (["config.json"], {"metadata": {}}, "is damaged"),
    ],
)
def test_a_model_is_whole(tmp_path: Path, files: list[str], index: object, fault: str | None) -> None:
    folder = model_folder(tmp_path, *files, index=index)
    found = list(check.model(folder))
    assert len(found) == (fault is not None)
    assert fault is None or f"{fault}" in found[0]


def test_a_model_in_one_file_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "llama.gguf").touch()
    assert list(check.model(tmp_path / "llama.gguf")) == []


def test_a_path_that_is_wrong_is_told_with_what_is_there(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"model-{number}").mkdir()
    (fault,) = check.model(tmp_path / "lama")
    assert "model-0, model-1, model-2, model-3, model-4, model-5 and 3 more" in fault


def test_folders_that_are_there_can_be_used(tmp_path: Path) -> None:
    assert list(check.readable(tmp_path)) == list(check.writable(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (fault,) = check.readable(tmp_path / "none")
    assert f"{tmp_path}/none cannot be read by user" in fault


def test_a_folder_that_cannot_be_written_is_told() -> None:
    (fault,) = check.writable(Path("/proc"))
    assert "/proc cannot be written by user" in fault
    assert "fsGroup" in fault


@pytest.mark.parametrize(("least", "enough"), [(1, True), (1 << 60, False)])
def test_memory_to_share_is_measured(tmp_path: Path, least: int, *, enough: bool) -> None:
    assert (list(check.shared_memory(tmp_path, least)) == []) is enough


# The check as a process, as the kubelet starts it


def run(pod: Pod, *arguments: str) -> tuple[int, str, str]:
    """Exit status, output and termination message."""
    log = pod.dev / "termination-log"
    log.touch()
    folders = [f"--sys={pod.sys}", f"--dev={pod.dev}", f"--proc={pod.proc}", f"--log={log}"]
    command = [sys.executable, "-I", "-S", "-c", SCRIPT, *arguments, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    return done.returncode, done.stdout, log.read_text()


def test_a_pod_that_has_all_goes_on(pod: Pod, tmp_path: Path) -> None:
    pod.card()
    pod.capable("0000000000004000")
    folder = model_folder(tmp_path, "config.json")
    wanted = [f"--readable={tmp_path}", f"--model={folder}", f"--writable={tmp_path}", "--shared-memory=4096"]
    assert run(pod, "--rdma", *wanted) == (0, "preflight: all is there\n", "")


def test_all_that_is_wrong_is_told_at_once(pod: Pod, tmp_path: Path) -> None:
    status, output, message = run(pod, "--rdma", f"--model={tmp_path}/none", f"--shared-memory={1 << 60}")
    assert status == 1
    lines = [line.removeprefix("preflight: ") for line in output.splitlines()]
    assert message == "; ".join(lines)
    for part in ("there is no RDMA device", "model.uri: there is no", "/shm has"):
        assert part in message


def test_what_is_wrong_fits_in_a_termination_message(pod: Pod, tmp_path: Path) -> None:
    """The kubelet cuts it off after 4,096 bytes."""
    pod.card(state="1: DOWN")
    folder = model_folder(tmp_path, *("x" * 200 + str(number) for number in range(50)))
    many = [f"--writable={tmp_path}/none-{number}" for number in range(3)]
    _, _, message = run(pod, "--rdma", f"--model={folder}", f"--readable={tmp_path}/none", *many)
    assert len(message.encode()) < 4096


@pytest.mark.parametrize("fabric", ["infiniband", "efa", "gke", "oci"])
def test_the_script_takes_the_arguments_that_pods_have(fabric: str, pod: Pod) -> None:
    model = {"uri": "pvc://models/llama"}
    found = arguments(kvTransfer={"transport": "rdma", "fabric": fabric}, model=model)
    status, output, _ = run(pod, *found)
    assert status == 1
    assert "there is no RDMA device" in output


def test_the_engine_of_a_checked_pod_is_as_it_is_without_the_check() -> None:
    pods = [
        template(resource(**overlaid(RDMA, {"kvTransfer": {"preflight": wanted}})))["spec"]
        for wanted in (True, False)
    ]
    assert pods[0]["containers"] == pods[1]["containers"]
