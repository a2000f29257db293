"""A local cluster as an object: what tests, demos and benchmarks hold in their hands."""

import os
import shutil
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Final, Self

from filelock import FileLock
from rich.console import Console

from e2e.cluster import reaper
from e2e.cluster.api import API_TIMEOUT_SECONDS, ApiClient
from e2e.cluster.audit import AuditLog
from e2e.cluster.binaries import cache_folder, ensure_binaries
from e2e.cluster.certificates import CA
from e2e.cluster.configuration import kubeconfig
from e2e.cluster.errors import ClusterError, CommandError
from e2e.cluster.launch import Launch, write_private
from e2e.cluster.node.cgroups import remove_cgroups
from e2e.cluster.node.machine import ensure_packages
from e2e.cluster.node.runtime import import_image
from e2e.cluster.node.sandbox import end_sandbox, sandbox_of
from e2e.cluster.ports import claimed_ports
from e2e.cluster.processes import find, stop
from e2e.cluster.state import Layout, Options, Record, read_record, server_url
from e2e.cluster.status import ComponentStatus, component_status
from e2e.cluster.tools import NODE_TOOLS, TOOLS, recipes

REPOSITORY: Final = Path(__file__).parents[2]

# Nothing is worth saving, so nobody gets long to say goodbye.
_GRACE_SECONDS: Final = 0.5

# Longer than any run of tests or demo.
_TOKEN_LIFETIME: Final = "240h"  # noqa: S105


class Cluster:
    """A control plane with simulated GPU nodes, all of it in one state folder.

    The object is only a handle: another one on the same folder, also in another process, speaks to the same
    cluster. As a context manager it goes up on entry, and down on exit or when this process dies.
    """

    def __init__(
        self, state: Path, options: Options | None = None, *, console: Console | None = None
    ) -> None:
        """Describe a cluster; nothing is started.

        Args:
            state: Its folder; made by `up`, removed by `down`.
            options: What kind of cluster `up` starts, by default `Options()`.
            console: Where builds of missing binaries are shown, by default standard error.
        """
        self.layout = Layout(state.absolute())
        self.options = options or Options()
        self._console = console
        self._children: list[subprocess.Popen[bytes]] = []
        self._reaper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.up(tied=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self, *, tied: bool = False) -> bool:
        """Start the cluster and wait until its nodes take pods.

        What a killed run left in the folder is ended and removed first. Missing binaries are built.

        Args:
            tied: Whether the cluster goes down when this process ends, even by SIGKILL; else it goes on until
                `down`.

        Returns:
            False if it ran already, in which case nothing is changed.

        Raises:
            ClusterError: If a binary cannot be built, a component fails, or the folder holds something else. What
                was started is ended again.
        """
        if self.options.real_node:
            ensure_packages(self._console)
        binaries = self._binaries
        self.layout.root.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.layout.lock):
            if self.is_running():
                return False
            self._remove()
            with claimed_ports(cache_folder() / "ports") as ports:
                launch = Launch(self.layout, self.options, ports, binaries)
                try:
                    if tied:
                        self._start_reaper()
                    launch.run()
                except BaseException:
                    self._children = list(launch.children.values())
                    self._remove()
                    self._stop_reaper()
                    raise
            self._children = list(launch.children.values())
        return True

    def down(self) -> bool:
        """End all processes of the cluster, wait until they are gone and remove the state folder.

        Returns:
            False if there was no cluster.

        Raises:
            ClusterError: If a process cannot be ended, or the folder holds something else.
        """
        # Somebody may have removed the folder of a cluster that runs.
        orphaned = not self.layout.root.exists() and end_sandbox(self.layout.root)
        if not orphaned and not self.layout.root.exists():
            return False
        with FileLock(self.layout.lock):
            removed = self._remove()
        self._stop_reaper()
        return removed or orphaned

    def is_running(self) -> bool:
        """Whether the cluster came up, all its processes run and the API server is ready."""
        record = read_record(self.layout)
        if record is None or not record.ready or not all(map(find, record.processes)):
            return False
        with self.api() as api:
            return api.is_ready()

    def api(self, *, timeout: float = API_TIMEOUT_SECONDS) -> ApiClient:
        """A client for many small requests; what needs kubectl's comforts calls `kubectl`.

        Args:
            timeout: Seconds that a request may take.

        Raises:
            ClusterError: If there is no cluster.
        """
        sandbox = sandbox_of(self.record)
        network = sandbox.network if sandbox else None
        return ApiClient(self.layout, self.server, timeout=timeout, network=network)

    def status(self) -> list[ComponentStatus]:
        """How each component is; empty if there is no cluster."""
        record = read_record(self.layout)
        return [
            component_status(process, self.layout.log(process.name))
            for process in (record.processes if record else ())
        ]

    @property
    def server(self) -> str:
        """URL of the API server.

        Raises:
            ClusterError: If there is no cluster.
        """
        return server_url(self.record.ports)

    @property
    def kubeconfig(self) -> Path:
        """Credentials of the administrator, a kubeconfig that needs no other file.

        Raises:
            ClusterError: If there is no cluster.
        """
        _ = self.record
        return self.layout.kubeconfig("admin")

    @property
    def record(self) -> Record:
        """What was started, with which options.

        Raises:
            ClusterError: If there is no cluster.
        """
        if record := read_record(self.layout):
            return record
        raise ClusterError(f"there is no cluster in {self.layout.root}")

    def binary(self, name: str) -> Path:
        """Where a tool is.

        Args:
            name: Its name, such as `kubectl`.

        Returns:
            Path of the binary, built if necessary.
        """
        return self._binaries[name]

    def client_command(self, *command: str) -> list[str]:
        """The command line that runs a program where it reaches the API server.

        Args:
            command: The program's own command line.

        Raises:
            ClusterError: If there is no cluster.
        """
        sandbox = sandbox_of(self.record)
        return sandbox.client_command(command) if sandbox else list(command)

    def load_image(self, archive: Path) -> None:
        """Put an image on the real node, which can pull none.

        Args:
            archive: An OCI archive.

        Raises:
            ClusterError: If there is no real node, or it refuses.
        """
        sandbox = sandbox_of(self.record)
        if sandbox is None:
            raise ClusterError("this cluster was started without a real node")
        import_image(sandbox, self.binary("ctr"), archive)

    def environment(self) -> dict[str, str]:
        """The variables that turn kubectl, helm and Kubernetes clients to this cluster.

        They also keep caches and settings apart from the user's own: a discovery cache of an earlier cluster on the
        same port would hide custom resources.

        Raises:
            ClusterError: If there is no cluster.
        """
        home = self.layout.client_home
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(home / "kube-cache"),
            "KUBERC": "off",
            "HELM_CACHE_HOME": str(home / "helm-cache"),
            "HELM_CONFIG_HOME": str(home / "helm-config"),
            "HELM_DATA_HOME": str(home / "helm-data"),
        }

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        """Run kubectl as the administrator.

        Args:
            arguments: Its arguments.
            input: Its standard input.

        Returns:
            Its standard output.

        Raises:
            CommandError: If it fails.
            ClusterError: If there is no cluster.
        """
        return self._run("kubectl", arguments, input)

    def helm(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        """Run helm as the administrator.

        Args:
            arguments: Its arguments.
            input: Its standard input.

        Returns:
            Its standard output.

        Raises:
            CommandError: If it fails.
            ClusterError: If there is no cluster.
        """
        return self._run("helm", arguments, input)

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Make credentials of a service account, for programs that run outside the cluster with its rights.

        Args:
            namespace: Namespace of the account; also the default one of the kubeconfig.
            name: The account, which must exist.

        Returns:
            A kubeconfig in the state folder, valid for ten days.

        Raises:
            CommandError: If there is no such account.
            ClusterError: If there is no cluster.
        """
        lifetime = f"--duration={_TOKEN_LIFETIME}"
        token = self.kubectl("create", "token", name, f"--namespace={namespace}", lifetime).strip()
        authority = self.layout.certificate(CA).read_bytes()
        path = self.layout.kubeconfig(f"{namespace}.{name}")
        write_private(path, kubeconfig(self.server, authority, {"token": token}, namespace))
        return path

    def audit(self) -> AuditLog:
        """The audit log.

        Raises:
            ClusterError: If there is no cluster, or it was started without one.
        """
        if not self.record.options.audit:
            raise ClusterError("this cluster was started without an audit log")
        return AuditLog(self.layout.audit_log)

    @cached_property
    def _binaries(self) -> dict[str, Path]:
        record = read_record(self.layout)
        real = (record.options if record else self.options).real_node or self.options.real_node
        wanted = recipes((*TOOLS, *NODE_TOOLS) if real else TOOLS)
        return ensure_binaries(wanted=wanted, console=self._console)

    def _run(self, tool: str, arguments: tuple[str, ...], input_text: str | None) -> str:
        result = subprocess.run(
            self.client_command(str(self.binary(tool)), *arguments),
            env=os.environ | self.environment(),
            # Nothing may wait for a terminal.
            input=input_text or "",
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise CommandError((tool, *arguments), result.returncode, result.stdout, result.stderr)
        return result.stdout

    def _remove(self) -> bool:
        """End what the record names and remove the folder; the lock is held."""
        root = self.layout.root
        existed = root.exists()
        if existed:
            self._end_processes()
        for child in self._children:
            # A start that was interrupted may have left one that is not recorded yet.
            child.kill()
            child.wait()
        self._children = []
        remove_cgroups(root)
        if existed:
            shutil.rmtree(root)
        return existed

    def _end_processes(self) -> None:
        root = self.layout.root
        record = read_record(self.layout)
        # There may be a sandbox without a record of it: its process names this folder.
        enclosed = (record is None or record.options.real_node) and end_sandbox(root)
        if record is None and not enclosed and any(root.iterdir()):
            raise ClusterError(
                f"{root} is not empty and not the state of a cluster: remove it, or use another"
            )
        stop(record.processes if record else (), grace=_GRACE_SECONDS)

    def _start_reaper(self) -> None:
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__, self.layout.root],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _stop_reaper(self) -> None:
        if self._reaper:
            self._reaper.kill()
            self._reaper.communicate()
            self._reaper = None
