"""The engine's containers of a rendered resource, as far as a process on this machine can be one.

Command, arguments, environment, ports and the paths of mounts are those of the manifest, to the letter. What else a cluster has
is replaced, all of it here and in `pod`:

- the image, by this machine's root file system, with changes that vanish, and vLLM's programs in PATH;
- the kubelet's part: `status.podIP` is the address of the sandbox, /etc/hosts names it, HOSTNAME is set, and whoever starts the
  container asks the paths of the probes;
- volumes: an `emptyDir` by a new folder, one of medium Memory by a tmpfs, a claim by a folder that the caller names.

Left out are limits and requests of resources, the preStop hook (the caller waits, if it wants to), and the variables and the token
of Kubernetes' own API, which engines do not use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from disagg.api.names import ENGINE_ROLES, ROLE_LABEL, RoleName
from disagg.api.resource import DisaggregatedInference
from disagg.commands.render import rendered

_ENGINE: Final = "engine"
HOME: Final = "/root"
"""Home folder of the images' user."""
_IMAGE_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Mount:
    """A volume in a container.

    Attributes:
        path: Where the container has it.
        source: The volume's source, such as `emptyDir`, with its block.
        read_only: Whether it is read-only.
        sub_path: Folder of the volume that is mounted, or empty for all of it.
    """

    path: PurePosixPath
    source: Mapping[str, Any]
    read_only: bool = False
    sub_path: str = ""


@dataclass(frozen=True)
class Container:
    """The engine's container of a pod, as rendered.

    Attributes:
        name: Name of its Deployment, which stands for the pod's.
        role: prefill or decode.
        labels: Labels of the pod.
        command: Command and arguments.
        arguments: The arguments alone.
        env: Its `env` block.
        mounts: Its volumes.
        ports: Its ports, by name.
        startup_path: What the startup probe asks, at the port named in it.
        ready_path: What the readiness probe asks.
        grace_seconds: From preStop to SIGKILL.
    """

    name: str
    role: RoleName
    labels: Mapping[str, str]
    command: list[str]
    arguments: list[str]
    env: list[dict[str, Any]]
    mounts: list[Mount]
    ports: Mapping[str, int]
    startup_path: str
    ready_path: str
    grace_seconds: int

    @property
    def port(self) -> int:
        """Where the probes ask and requests go."""
        return self.ports["http"]


def containers(resource: DisaggregatedInference) -> dict[RoleName, Container]:
    """The engine's container of each role, from the Deployments that the operator renders."""
    deployments = [obj for obj in rendered(resource) if obj["kind"] == "Deployment"]
    by_role = {RoleName(obj["metadata"]["labels"][ROLE_LABEL]): obj for obj in deployments}
    return {role: _container(by_role[role], role) for role in ENGINE_ROLES}


def environment(container: Container, address: str, programs: str) -> dict[str, str]:
    """All variables that the container's process has.

    Args:
        container: The container.
        address: Address of its pod.
        programs: Folder of the image's own programs, which come first in PATH.

    Raises:
        ValueError: If a variable comes from where nothing stands for it here.
    """
    of_image = {"PATH": f"{programs}:{_IMAGE_PATH}", "HOME": HOME, "LANG": "C.UTF-8"}
    of_kubelet = {"HOSTNAME": container.name}
    return of_image | of_kubelet | {entry["name"]: _value(entry, address) for entry in container.env}


def _value(entry: Mapping[str, Any], address: str) -> str:
    if "value" in entry:
        return str(entry["value"])
    if entry.get("valueFrom") == {"fieldRef": {"fieldPath": "status.podIP"}}:
        return address
    raise ValueError(f"{entry['name']}: there is nothing here for {entry.get('valueFrom')}")


def _container(deployment: Mapping[str, Any], role: RoleName) -> Container:
    template = deployment["spec"]["template"]
    pod = template["spec"]
    found = next(container for container in pod["containers"] if container["name"] == _ENGINE)
    sources = {volume["name"]: _source(volume) for volume in pod.get("volumes", [])}
    return Container(
        name=deployment["metadata"]["name"],
        role=role,
        labels=template["metadata"]["labels"],
        command=[*found["command"], *found["args"]],
        arguments=list(found["args"]),
        env=found["env"],
        mounts=[
            Mount(
                path=PurePosixPath(mount["mountPath"]),
                source=sources[mount["name"]],
                read_only=mount.get("readOnly", False),
                sub_path=mount.get("subPath", ""),
            )
            for mount in found.get("volumeMounts", [])
        ],
        ports={port["name"]: port["containerPort"] for port in found["ports"]},
        startup_path=found["startupProbe"]["httpGet"]["path"],
        ready_path=found["readinessProbe"]["httpGet"]["path"],
        grace_seconds=pod["terminationGracePeriodSeconds"],
    )


def _source(volume: Mapping[str, Any]) -> dict[str, Any]:
    return {key: block for key, block in volume.items() if key != "name"}
