"""HTTP to a pod, from the bridge of its network: what kubelets, routers and Prometheus do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from e2e.real_vllm.network import Network

_SECONDS: Final = 120.0
_EVENT: Final = b"data: "


@dataclass(frozen=True)
class Answer:
    """Answer to a request.

    Attributes:
        status: HTTP status.
        body: JSON, or the text that is none.
    """

    status: int
    body: Any


class _Connection(HTTPConnection):
    def __init__(self, network: Network, address: str, port: int) -> None:
        super().__init__(address, port)
        self._network = network

    def connect(self) -> None:
        self.sock = self._network.connect(self.host, self.port)
        self.sock.settimeout(_SECONDS)


@dataclass(frozen=True)
class Client:
    """Asks one pod.

    Attributes:
        network: The pod's network.
        address: Address of the pod.
        port: Its port.
    """

    network: Network
    address: str
    port: int

    def get(self, path: str) -> Answer | None:
        """Ask, with nothing to send; None if nobody answers.

        Args:
            path: Path of the request.
        """
        try:
            return self._ask("GET", path, None, {})
        except (OSError, HTTPException):
            return None

    def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
        """Ask.

        Args:
            path: Path of the request.
            body: Its JSON.
            headers: Headers besides Content-Type.

        Raises:
            OSError: If nothing listens, or the connection breaks.
        """
        return self._ask("POST", path, body, headers or {})

    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Ask for server-sent events, and yield the JSON of each as it comes.

        Args:
            path: Path of the request.
            body: Its JSON; `stream` is added.

        Raises:
            OSError: If nothing listens, or the connection breaks.
        """
        with closing(_Connection(self.network, self.address, self.port)) as connection:
            connection.request(
                "POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"}
            )
            for line in connection.getresponse():
                event = line.strip().removeprefix(_EVENT)
                if event == b"[DONE]":
                    return
                if event:
                    yield json.loads(event)

    def metric(self, name: str) -> float:
        """Sum of a metric's samples.

        Args:
            name: Name of the samples, as /metrics has it.

        Raises:
            ValueError: If the pod has no such metric.
        """
        answer = self._ask("GET", "/metrics", None, {})
        found = [
            sample.value
            for family in text_string_to_metric_families(str(answer.body))
            for sample in family.samples
            if sample.name == name
        ]
        if not found:
            raise ValueError(f"there is no metric {name}")
        return sum(found)

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> Answer:
        with closing(_Connection(self.network, self.address, self.port)) as connection:
            connection.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {"Content-Type": "application/json", **headers},
            )
            response = connection.getresponse()
            text = response.read().decode()
            is_json = response.headers.get_content_type() == "application/json"
            return Answer(response.status, json.loads(text) if is_json and text else text)
