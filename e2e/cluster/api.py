"""A minimal client of the API server, for what happens before kubectl would be worth its start-up time."""

import json
import ssl
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from e2e.cluster.errors import ClusterError
from e2e.cluster.node.sandbox import inside
from e2e.cluster.state import Layout

API_TIMEOUT_SECONDS: Final = 10.0


class ApiClient:
    """Sends requests as the cluster's administrator.

    Use it as a context manager, which closes the connection.

    Args:
        layout: The state folder.
        server: URL of the API server.
        timeout: Seconds that a request may take.
        network: Network namespace of the cluster, if it has one.
    """

    def __init__(
        self,
        layout: Layout,
        server: str,
        *,
        timeout: float = API_TIMEOUT_SECONDS,
        network: Path | None = None,
    ) -> None:
        context = ssl.create_default_context(cafile=layout.certificate("ca"))
        context.load_cert_chain(layout.certificate("admin"), layout.key("admin"))
        address = urlsplit(server)
        self._network = network
        self._connection = HTTPSConnection(
            address.hostname or "", address.port, timeout=timeout, context=context
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def is_ready(self) -> bool:
        """Whether the API server answers that it is ready."""
        try:
            status, _ = self._send("GET", "/readyz")
        except OSError:
            return False
        return status == 200  # noqa: PLR2004

    def get(self, path: str) -> dict[str, Any] | None:
        """Read a resource.

        Args:
            path: Its path, such as `/api/v1/nodes`.

        Returns:
            The object, or None if there is none.

        Raises:
            ClusterError: If the server cannot be reached or refuses.
        """
        return self._call("GET", path, None, absent=404)

    def create(self, path: str, manifest: dict[str, Any]) -> None:
        """Create an object.

        Args:
            path: Path of the collection.
            manifest: The object.

        Raises:
            ClusterError: If the server cannot be reached or refuses.
        """
        self._call("POST", path, manifest, absent=None)

    def delete(self, path: str, options: dict[str, Any] | None = None) -> None:
        """Delete an object, or all of a collection.

        Args:
            path: Path of the object or of the collection.
            options: A DeleteOptions object.

        Raises:
            ClusterError: If the server cannot be reached or refuses.
        """
        self._call("DELETE", path, options, absent=404)

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None, *, absent: int | None
    ) -> dict[str, Any] | None:
        try:
            status, answer = self._send(method, path, body)
        except OSError as error:
            raise ClusterError(f"{method} {path}: {error}") from error
        if status == absent:
            return None
        if status >= 400:  # noqa: PLR2004
            raise ClusterError(f"{method} {path}: {status} {answer.decode(errors='replace')}")
        document: dict[str, Any] = json.loads(answer)
        return document

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body)
        try:
            if self._connection.sock is None:
                with inside(self._network):
                    self._connection.connect()
            self._connection.request(method, path, content, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            return response.status, response.read()
        except HTTPException as error:
            self._connection.close()
            raise ConnectionError(str(error)) from error
        except OSError:
            # The next request then connects anew.
            self._connection.close()
            raise
