"""Checks a pod before its engine loads a model. Runs in the pod, by the Python of the engine's image.

Nothing else of this package is there, and that Python may be as old as 3.8. The text is an argument of a container, where
Kubernetes takes a dollar sign before a parenthesis for the begin of a variable: it must not have any.

Ends with status 1 if something is missing, and leaves what that is, and what to change in the resource, in the log and as
the container's termination message.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

IPC_LOCK = 14
"""Number of the capability to lock memory (linux/capability.h)."""
MOST_NAMED = 6
"""How many names a message lists: the kubelet keeps 4,096 bytes of it."""
REQUEST_IT = (
    "set kvTransfer.rdma.resource to the name that kubectl describe node lists under Allocatable,"
    " or kvTransfer.rdma.resourceClaimTemplate"
)


def rdma(sys_folder: Path, dev_folder: Path, *, driver: str | None, device_files: bool) -> Iterator[str]:
    """Whether there is a network card that the pod may use, with a port that is up. Yields what is wrong.

    Args:
        sys_folder: /sys.
        dev_folder: /dev.
        driver: Kernel driver that the card must have, or None for any.
        device_files: Whether this container is given the device files that the engine's is.
    """
    cards = sys_folder / "class/infiniband"
    devices = names_in(cards)
    if not devices:
        yield (
            "there is no RDMA device: the node has none, or its driver is not loaded."
            " Set kvTransfer.fabric to the network of the nodes, or kvTransfer.transport to tcp"
        )
        return
    if device_files:
        opened, fault = openable(dev_folder / "infiniband")
        if not opened:
            yield fault
            return
        # Where pods share the cards of a node, /sys has all of them, also those that this pod may not use.
        allotted = {text_of(sys_folder / "class/infiniband_verbs" / name / "ibdev") for name in opened}
        devices = [device for device in devices if device in allotted] or devices
    drivers = {device: (cards / device / "device/driver").resolve().name for device in devices}
    if driver is not None and driver not in drivers.values():
        found = ", ".join(f"{device} ({name})" for device, name in sorted(drivers.items()))
        yield f"no RDMA device has driver {driver}, there is {found}: set kvTransfer.fabric to that of the nodes"
        return
    ports = [port for device in devices for port in sorted((cards / device / "ports").glob("*"))]
    unusable = [f"{port.parts[-3]} port {port.name} {why}" for port in ports if (why := port_fault(port))]
    if len(unusable) == len(ports):
        yield (
            f"no port of an RDMA device is usable: {listed(unusable)}. One that is down or has no LID is a matter of the node's"
            " network; one without an address wants pods attached to it: kvTransfer.rdma.annotations,"
            " such as k8s.v1.cni.cncf.io/networks"
        )


def memory_lock(proc_folder: Path, limit: int, user: int) -> Iterator[str]:
    """Whether memory may be pinned for the network card. Yields what is wrong.

    Args:
        proc_folder: /proc.
        limit: How much memory this process may lock, in bytes.
        user: Number of the user who runs it.
    """
    status = dict(line.partition(":")[::2] for line in text_of(proc_folder / "self/status").splitlines())
    if limit == resource.RLIM_INFINITY or int(status.get("CapEff", "0"), 16) >> IPC_LOCK & 1:
        return
    fault = f"memory cannot be locked for RDMA: the limit is {size_of(limit)}, and IPC_LOCK is not in effect."
    if user == 0:
        yield (
            f"{fault} Have IPC_LOCK in kvTransfer.rdma.capabilities, or set LimitMEMLOCK=infinity for the nodes' containerd"
        )
    else:
        # Kubernetes adds no ambient capabilities: a program that another user than root starts has none of them.
        yield (
            f"{fault} The image runs as user {user}, and capabilities are for root: set runAsUser to 0 in"
            " podTemplate.spec.securityContext, or LimitMEMLOCK=infinity for the nodes' containerd"
        )


def model(path: Path) -> Iterator[str]:
    """Whether the model is there, and whole as far as its own index tells. Yields what is wrong.

    Args:
        path: What the engine is told to load.
    """
    if not os.access(str(path), os.F_OK):
        yield f"model.uri: there is no {path}; {path.parent} has {listed(names_in(path.parent))}. Correct the path"
        return
    if not path.is_dir():
        return
    names = names_in(path)
    # Mistral's own format has the other one.
    if not {"config.json", "params.json"}.intersection(names):
        yield f"model.uri: {path} has no config.json, but {listed(names)}. Name the folder that has it"
    index = path / "model.safetensors.index.json"
    if index.name in names:
        try:
            shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            yield f"model.uri: {index} is damaged ({error!r}). Copy the model once more"
            return
        missing = sorted(shards.difference(names))
        if missing:
            yield (
                f"model.uri: {path} lacks {len(missing)} of {len(shards)} files of weights: {listed(missing)}."
                " Copy the model once more"
            )


def readable(path: Path) -> Iterator[str]:
    """Whether a folder that is mounted can be read. Yields what is wrong.

    Args:
        path: The folder.
    """
    try:
        list(path.iterdir())
    except OSError as error:
        yield (
            f"{path} cannot be read by user {os.getuid()} ({error.strerror}): see to the claim or image that is mounted there,"
            " or set fsGroup in podTemplate.spec.securityContext"
        )


def writable(path: Path) -> Iterator[str]:
    """Whether files can be made in a folder that is mounted. Yields what is wrong.

    Args:
        path: The folder.
    """
    try:
        tempfile.TemporaryFile(dir=str(path)).close()
    except OSError as error:
        yield (
            f"{path} cannot be written by user {os.getuid()} ({error.strerror}): set fsGroup in"
            " podTemplate.spec.securityContext, or name a claim that can be mounted for writing"
        )


def shared_memory(path: Path, least: int) -> Iterator[str]:
    """Whether processes of the engine have memory to share. Yields what is wrong.

    Args:
        path: /dev/shm.
        least: How much it must be, in bytes.
    """
    status = os.statvfs(str(path))
    size = status.f_blocks * status.f_frsize
    if size < least:
        yield (
            f"{path} has {size_of(size)}, the engine needs {size_of(least)}: leave the volume shm as it is in podTemplate, and"
            " set a memory limit that has room for it"
        )


def openable(folder: Path) -> tuple[list[str], str]:
    """Names of the device files that this container may open, and what is wrong if there is none."""
    opened, fault = [], f"this pod was given no RDMA device (there is no {folder}/uverbs*): {REQUEST_IT}"
    for file in sorted(folder.glob("uverbs*")):
        try:
            os.close(os.open(str(file), os.O_RDWR | os.O_CLOEXEC))
            opened.append(file.name)
        except OSError as error:
            fault = f"this pod may not use {file} ({error.strerror}): {REQUEST_IT}"
    return opened, fault


def port_fault(port: Path) -> str | None:
    """Why nothing can be sent through a port, or None."""
    state, layer = text_of(port / "state"), text_of(port / "link_layer")
    if "ACTIVE" not in state:
        return f"is {state.partition(':')[2].strip() or 'in no known state'}"
    if layer == "InfiniBand" and text_of(port / "lid") == "0x0":
        return "has no LID, as bonded devices do"
    addresses = [text_of(address) for address in (port / "gids").glob("*")]
    if layer == "Ethernet" and addresses and not any(address.strip("0:") for address in addresses):
        return "has no address (GID) in the pod's network"
    return None


def names_in(folder: Path) -> list[str]:
    """Names of what is in a folder, none if it cannot be read."""
    try:
        return sorted(file.name for file in folder.iterdir())
    except OSError:
        return []


def text_of(file: Path) -> str:
    """Text of a small file, empty if it cannot be read."""
    try:
        return file.read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


def listed(names: Sequence[str]) -> str:
    """Some names, in words."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (", ".join(names[:MOST_NAMED]) or "nothing") + more


def size_of(size: int) -> str:
    """A size, in words."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size} bytes"


def faults_of(given: argparse.Namespace) -> Iterator[str]:
    """What is wrong, of what the arguments ask to check."""
    if given.rdma:
        yield from rdma(given.sys, given.dev, driver=given.driver, device_files=not given.no_device_files)
        yield from memory_lock(given.proc, resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], os.getuid())
    if given.shared_memory is not None:
        yield from shared_memory(given.dev / "shm", given.shared_memory)
    for path in given.readable:
        yield from readable(path)
    if given.model is not None:
        yield from model(given.model)
    for path in given.writable:
        yield from writable(path)


def main(arguments: Sequence[str]) -> int:
    """Check what the arguments ask for, and say what is wrong. Returns the status to end with."""
    parser = argparse.ArgumentParser(prog="preflight")
    parser.add_argument("--rdma", action="store_true", help="an RDMA device, and memory to be locked for it")
    parser.add_argument("--driver", help="kernel driver of the device")
    parser.add_argument(
        "--no-device-files", action="store_true", help="/dev/infiniband is not given to this container"
    )
    parser.add_argument("--shared-memory", type=int, help="least size of /dev/shm, in bytes")
    parser.add_argument("--model", type=Path, help="file or folder of the model")
    parser.add_argument("--readable", type=Path, action="append", default=[], help="folder to read")
    parser.add_argument("--writable", type=Path, action="append", default=[], help="folder to write")
    for name, default in (("sys", "/sys"), ("proc", "/proc"), ("dev", "/dev")):
        parser.add_argument(f"--{name}", type=Path, default=Path(default), help="where it is mounted")
    parser.add_argument("--log", type=Path, default=Path("/dev/termination-log"), help="termination message")
    given = parser.parse_args(arguments)
    faults = list(faults_of(given))
    for fault in faults or ["all is there"]:
        sys.stdout.write(f"preflight: {fault}\n")
    if faults:
        with contextlib.suppress(OSError):
            given.log.write_text("; ".join(faults), "utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
