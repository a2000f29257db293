"""The API server by HTTP, for tests that ask it often and from many threads: a kubectl takes a tenth of a second of CPU."""

from __future__ import annotations

import json
import ssl
import threading
from http.client import HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from e2e.cluster import Cluster

Object = dict[str, Any]

_MERGE = "application/merge-patch+json"
_TIMEOUT_SECONDS = 60.0
_ATTEMPTS = 3


class RestError(Exception):
    """The API server refuses."""

    def __init__(self, request: str, status: int, answer: bytes) -> None:
        super().__init__(f"{request}: {status} {answer.decode(errors='replace')}")
        self.status = status


class Rest:
    """Requests as the cluster's administrator; a connection for each thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._context = ssl.create_default_context(cafile=cluster.layout.certificate("ca"))
        self._context.load_cert_chain(cluster.layout.certificate("admin"), cluster.layout.key("admin"))
        self._address = urlsplit(cluster.server)
        self._local = threading.local()
        self._connections: list[HTTPSConnection] = []
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        for connection in self._connections:
            connection.close()

    def get(self, path: str) -> Object:
        return self._call("GET", path)

    def find(self, path: str) -> Object | None:
        """The object, or None if there is none."""
        try:
            return self._call("GET", path)
        except RestError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str) -> list[Object]:
        return list(self._call("GET", path)["items"])

    def create(self, path: str, body: Object) -> None:
        self._call("POST", path, body)

    def patch(self, path: str, body: Object) -> None:
        """A JSON merge patch."""
        self._call("PATCH", path, body, _MERGE)

    def delete(self, path: str) -> None:
        """Delete; what is gone already is fine."""
        try:
            self._call("DELETE", path)
        except RestError as error:
            if error.status != 404:
                raise

    def _call(
        self, method: str, path: str, body: Object | None = None, content: str = "application/json"
    ) -> Object:
        data = None if body is None else json.dumps(body)
        for attempt in range(_ATTEMPTS):
            connection = self._connection()
            try:
                connection.request(method, path, data, {"Content-Type": content})
                response = connection.getresponse()
                status, answer = response.status, response.read()
                break
            except (HTTPException, OSError):
                # The server ends idle connections.
                connection.close()
                if attempt + 1 == _ATTEMPTS:
                    raise
        if status >= 400:
            raise RestError(f"{method} {path}", status, answer)
        return dict(json.loads(answer))

    def _connection(self) -> HTTPSConnection:
        found: HTTPSConnection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = HTTPSConnection(
                self._address.hostname or "",
                self._address.port,
                timeout=_TIMEOUT_SECONDS,
                context=self._context,
            )
            self._connections.append(found)
        return found
