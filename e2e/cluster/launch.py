"""One start of a cluster, from an empty state folder to nodes that take pods.

Order: files, then etcd and the API server together, then everything that is a client of it. Each process is recorded
the moment it exists, so that whoever finds the folder can end what is in it. With a real node all of that happens in
a sandbox, and the node's own programs come last.
"""

import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.cluster import certificates, configuration
from e2e.cluster.api import ApiClient
from e2e.cluster.components import Component, controllers, storage_and_api
from e2e.cluster.errors import ComponentError, WaitError
from e2e.cluster.node.addons import addons
from e2e.cluster.node.cgroups import make_cgroups
from e2e.cluster.node.components import container_runtime, node_components
from e2e.cluster.node.files import NODE_USERS, write_node_files
from e2e.cluster.node.names import KIND_LABEL, NODE_NAME, SIMULATED
from e2e.cluster.node.network import prepare_network
from e2e.cluster.node.runtime import import_image, runtime_answers
from e2e.cluster.node.sandbox import NAME, Sandbox, inside, prepare_mounts, start_sandbox
from e2e.cluster.ports import LOOPBACK, Ports
from e2e.cluster.processes import start, tail
from e2e.cluster.state import Layout, Options, ProcessRecord, Record, server_url, write_record
from e2e.cluster.waiting import wait_until

# Seven seconds are usual; on a machine that also compiles it may take a minute.
_READY_SECONDS: Final = 180.0

_USERS: Final = ("admin", "controller-manager", "scheduler", "kwok")


class Launch:
    """Starts the processes of a cluster and waits until it takes pods.

    Attributes:
        children: The processes started so far, by component.
    """

    def __init__(self, layout: Layout, options: Options, ports: Ports, binaries: Mapping[str, Path]) -> None:
        self._layout = layout
        self._options = options
        self._ports = ports
        self._binaries = binaries
        self._record = Record(options=options, ports=ports)
        self._sandbox: Sandbox | None = None
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> None:
        """Start everything.

        Raises:
            ComponentError: If a process ends.
            WaitError: If the cluster is not ready in time; the text carries the ends of all logs.
        """
        layout, ports, options = self._layout, self._ports, self._options
        self._write_files()
        if options.real_node:
            self._enclose()
        self._start(storage_and_api(layout, ports, options))
        network = self._sandbox.network if self._sandbox else None
        with ApiClient(layout, server_url(ports), network=network) as api:
            self._wait("the API server is ready", api.is_ready)
            clients = controllers(layout, ports, options)
            self._start(clients)
            for node in options.racks.nodes():
                if options.real_node:
                    node["metadata"]["labels"][KIND_LABEL] = SIMULATED
                api.create("/api/v1/nodes", node)
            if self._sandbox:
                clients = (*clients, *self._start_node(self._sandbox, api))
            self._wait("all nodes are ready", lambda: _all_ready(api.get("/api/v1/nodes")))
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._wait("pods can be created", lambda: api.get(account) is not None)
            for component in clients:
                self._wait(f"{component.name} listens", partial(_listens, component.port, network))
        self._record.ready = True
        write_record(layout, self._record)

    def _enclose(self) -> None:
        """Make the namespaces that everything else runs in."""
        layout = self._layout
        child, record = start_sandbox(layout)
        self._remember(NAME, child, record)
        sandbox = Sandbox(child.pid)
        prepare_mounts(sandbox, layout, child.pid)
        prepare_network(sandbox)
        # From here on it is what processes are started in.
        self._sandbox = sandbox

    def _start_node(self, sandbox: Sandbox, api: ApiClient) -> tuple[Component, ...]:
        """Start the real node; returns those of its programs that are clients of the API server."""
        layout, binaries = self._layout, self._binaries
        self._wait("kube-system is there", lambda: api.get("/api/v1/namespaces/kube-system") is not None)
        for path, manifest in addons():
            api.create(path, manifest)
        make_cgroups(layout.root)
        self._start([container_runtime(layout)])
        self._wait("containerd answers", lambda: runtime_answers(sandbox, binaries["ctr"]))
        import_image(sandbox, binaries["ctr"], layout.node / "pause.tar")
        clients = node_components(layout)
        self._start(clients)
        self._wait("the real node is there", lambda: api.get(f"/api/v1/nodes/{NODE_NAME}") is not None)
        return clients

    def _write_files(self) -> None:
        layout = self._layout
        layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_record(layout, self._record)
        real = self._options.real_node
        certificates.issue(layout.pki, certificates.REAL_NODE_PLAN if real else certificates.PLAN)
        authority = layout.certificate(certificates.CA).read_bytes()
        for user in (*_USERS, *(NODE_USERS if real else ())):
            entry = configuration.certificate_user(
                layout.certificate(user).read_bytes(), layout.key(user).read_bytes()
            )
            text = configuration.kubeconfig(server_url(self._ports), authority, entry)
            write_private(layout.kubeconfig(user), text)
        layout.kwok_config.write_text(configuration.kwok_config(self._options.pod_ready_delay))
        layout.audit_policy.write_text(yaml.safe_dump(configuration.AUDIT_POLICY))
        if real:
            write_node_files(layout, self._binaries)

    def _start(self, components: Iterable[Component]) -> None:
        for component in components:
            command = [str(self._binaries[component.name]), *component.arguments]
            child, record = start(
                component.name,
                self._sandbox.command(command) if self._sandbox else command,
                log=self._layout.log(component.name),
                cwd=self._layout.root,
            )
            self._remember(component.name, child, record)

    def _remember(self, name: str, child: subprocess.Popen[bytes], record: ProcessRecord) -> None:
        self.children[name] = child
        self._record.processes.append(record)
        write_record(self._layout, self._record)

    def _wait(self, goal: str, reached: Callable[[], bool]) -> None:
        def reached_by_living() -> bool:
            self._check_children()
            return reached()

        try:
            wait_until(goal, reached_by_living, seconds=_READY_SECONDS)
        except WaitError as error:
            # The folder, and with it the logs, goes when a start has failed.
            ends = "\n".join(f"{name}:\n{tail(self._layout.log(name), lines=5)}" for name in self.children)
            raise WaitError(f"{error}. The logs end with:\n{ends}") from error

    def _check_children(self) -> None:
        for name, child in self.children.items():
            if (status := child.poll()) is not None:
                end = tail(self._layout.log(name))
                raise ComponentError(f"{name} ended with status {status}. Its log ends with:\n{end}")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read.

    Args:
        path: The file; its folder is made if it does not exist.
        text: Its content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def _all_ready(nodes: dict[str, Any] | None) -> bool:
    return all(_is_ready(node) for node in (nodes or {}).get("items", []))


def _is_ready(node: dict[str, Any]) -> bool:
    # A new node is born with a taint, which the controller manager lifts once it has seen it ready.
    conditions = {
        condition["type"]: condition["status"] for condition in node["status"].get("conditions", [])
    }
    taints = {taint["key"] for taint in node["spec"].get("taints", [])}
    return conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints


def _listens(port: int | None, network: Path | None) -> bool:
    if port is None:
        return True
    try:
        with inside(network):
            socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
