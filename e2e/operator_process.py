"""The real operator as a process of its own against a local cluster, with the rights that the chart gives it.

    install_chart(cluster)
    with OperatorProcess(cluster) as operator:
        ...

The process is entered in the cluster's record: `python -m e2e.cluster status` shows it, and whoever takes the
cluster down, even after this program was killed, ends it too.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self
from urllib.error import URLError
from urllib.request import urlopen

from filelock import FileLock

from e2e.cluster import Cluster, ClusterError, ComponentError, wait_until
from e2e.cluster.cluster import REPOSITORY
from e2e.cluster.ports import LOOPBACK
from e2e.cluster.processes import find, start, stop, tail
from e2e.cluster.state import ProcessRecord, write_record
from e2e.images import Image

CHART: Final = REPOSITORY / "charts" / "disagg"
RELEASE: Final = "disagg"
RELEASE_NAMESPACE: Final = "disagg-system"
CRD: Final = "disaggregatedinferences.disagg.dev"

SERVICE_ACCOUNT: Final = (RELEASE_NAMESPACE, RELEASE)
"""Namespace and name of the account that `install_chart` makes."""

_READY_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0
_HTTP_SECONDS: Final = 5.0


def install_chart(
    cluster: Cluster, *, values: Mapping[str, str] | None = None, namespace: str = RELEASE_NAMESPACE
) -> None:
    """Install the chart, or upgrade it, with no operator pod: a simulated node would only pretend to run it.

    Args:
        cluster: Where.
        values: Further values, as for `helm --set`.
        namespace: Namespace of the release; made if it does not exist.

    Raises:
        CommandError: If helm or the API server refuses.
    """
    settings = {"replicaCount": "0"} | dict(values or {})
    cluster.helm(
        *("upgrade", "--install", RELEASE, str(CHART), f"--namespace={namespace}", "--create-namespace"),
        *(f"--set={key}={value}" for key, value in settings.items()),
    )
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{CRD}")


def stop_recorded(cluster: Cluster, name: str = "operator") -> bool:
    """End the operator that another program started and left running.

    Args:
        cluster: Where it works.
        name: Its name there.

    Returns:
        False if there was none.
    """
    records = [record for record in cluster.record.processes if record.name == name]
    stop(records, grace=_STOP_SECONDS)
    _forget(cluster, records)
    return bool(records)


def install_operator(cluster: Cluster, image: Image, *, chart: Path = CHART) -> None:
    """Install the chart, or upgrade it, with the operator as a pod, and wait for it: a real node must have the image.

    Args:
        cluster: Where.
        image: Image of the operator.
        chart: The chart.

    Raises:
        CommandError: If helm or the API server refuses, or the pod does not become ready.
    """
    settings = {
        "image.registry": image.registry,
        "image.repository": image.repository,
        "image.tag": image.tag,
    }
    cluster.helm(
        *("upgrade", "--install", RELEASE, str(chart), f"--namespace={RELEASE_NAMESPACE}"),
        *("--create-namespace", "--wait", "--timeout=120s"),
        *(f"--set-string={key}={value}" for key, value in settings.items()),
    )


class OperatorProcess:
    """The operator, with the credentials of a service account.

    As a context manager it is started and ready on entry, and ended on exit. Without, call `start`, and `stop` or
    `kill`; or nothing more, and it goes on until the cluster goes down.

    Args:
        cluster: A running cluster in which the chart is installed.
        service_account: Namespace and name of the account.
        args: Further arguments of `disagg operator`.
        env: Further environment variables.
        name: Name in the cluster's record and of the log; operators that run at once need different ones.
        module: What runs as `disagg`; a test may put another release in its place.
    """

    def __init__(  # noqa: PLR0913 - a start has that many choices, all of them optional
        self,
        cluster: Cluster,
        *,
        service_account: tuple[str, str] = SERVICE_ACCOUNT,
        args: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
        name: str = "operator",
        module: str = "disagg.cli",
    ) -> None:
        self._module = module
        self._cluster = cluster
        self._service_account = service_account
        self._args = tuple(args)
        self._env = dict(env or {})
        self._name = name
        self._port = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._record: ProcessRecord | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def username(self) -> str:
        """Who the operator is to the API server, as the audit log names it."""
        return ":".join(("system:serviceaccount", *self._service_account))

    @property
    def url(self) -> str:
        """Where it serves /healthz, /readyz and /metrics."""
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def log_path(self) -> Path:
        """Its output; further starts append to it."""
        return self._cluster.layout.log(self._name)

    @property
    def pid(self) -> int:
        """Its process id.

        Raises:
            ClusterError: If it was not started, or was stopped.
        """
        if self._child is None:
            raise ClusterError(f"{self._name} does not run")
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.poll() is None

    def start(self, *, wait: bool = True) -> None:
        """Start it.

        Args:
            wait: Whether to return only when it is ready.

        Raises:
            ClusterError: If one of this name runs already, or there is no such account.
            ComponentError: If it ends by itself; the text carries the end of its log.
            WaitError: If it is not ready in time.
        """
        if any(record.name == self._name and find(record) for record in self._cluster.record.processes):
            raise ClusterError(f"{self._name} runs already")
        kubeconfig = self._cluster.kubeconfig_for_service_account(*self._service_account)
        self._port = _free_port()
        command = (sys.executable, "-m", self._module, "operator", f"--http-address={LOOPBACK}:{self._port}")
        environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"} | self._env
        self._child, self._record = start(
            self._name, [*command, *self._args], log=self.log_path, cwd=REPOSITORY, env=environment
        )
        try:
            self._remember(self._record)
            if wait:
                self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def wait_ready(self, *, seconds: float = _READY_SECONDS) -> None:
        """Wait until /readyz says that it watches its resources.

        Args:
            seconds: How long to wait at most.

        Raises:
            ComponentError: If it ends by itself; the text carries the end of its log.
            WaitError: If it is not ready in time.
        """

        def ready() -> bool:
            if not self.is_running:
                raise ComponentError(f"{self._name} ended. Its log ends with:\n{tail(self.log_path)}")
            try:
                return bool(self.get("/readyz"))
            except OSError:
                return False

        wait_until(f"{self._name} is ready", ready, seconds=seconds)

    def get(self, path: str) -> str:
        """What it answers on its HTTP port.

        Args:
            path: Such as `/healthz`.

        Raises:
            OSError: If it does not answer, or not with success.
        """
        try:
            with urlopen(f"{self.url}{path}", timeout=_HTTP_SECONDS) as answer:  # noqa: S310 - of our own port
                content: bytes = answer.read()
                return content.decode()
        except URLError as error:
            raise OSError(f"{self.url}{path}: {error}") from error

    def metrics(self) -> dict[str, float]:
        """Its metrics now, by name and labels as in the text, such as `disagg_operator_reconcile_total{result="gone"}`.

        Raises:
            OSError: If it does not answer.
        """
        samples = (
            line.rpartition(" ")
            for line in self.get("/metrics").splitlines()
            if line and not line.startswith("#")
        )
        return {name: float(value) for name, _, value in samples}

    def stop(self) -> int | None:
        """End it with SIGTERM, or SIGKILL if that takes too long.

        Returns:
            Its exit status, negative for a signal; None if it was not running.
        """
        return self._end(signal.SIGTERM)

    def kill(self) -> int | None:
        """End it with SIGKILL, as a crash of its node would.

        Returns:
            As for `stop`.
        """
        return self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int | None:
        child, self._child = self._child, None
        if child is None:
            return None
        child.send_signal(number)
        try:
            status = child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            status = child.wait()
        if self._record:
            _forget(self._cluster, [self._record])
        return status

    def _remember(self, record: ProcessRecord) -> None:
        with FileLock(self._cluster.layout.lock):
            known = self._cluster.record
            known.processes.append(record)
            write_record(self._cluster.layout, known)


def _forget(cluster: Cluster, records: Iterable[ProcessRecord]) -> None:
    """Take processes that have ended out of the record; a cluster that is down remembers none."""
    gone = list(records)
    with FileLock(cluster.layout.lock):
        if cluster.layout.record.exists():
            known = cluster.record
            known.processes = [record for record in known.processes if record not in gone]
            write_record(cluster.layout, known)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
