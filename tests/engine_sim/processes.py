"""Engines as processes, stand-ins unless `real_vllm` starts them, and plain HTTP to them."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar

import psutil
from prometheus_client.parser import text_string_to_metric_families

_Found = TypeVar("_Found")
DEADLINE = 60.0
"""Seconds until a condition must hold. None takes so long, unless the machine is busy with others."""


_candidates = iter(random.sample(range(20_000, 32_000, 4), 3000))


def free_port() -> int:
    """A port that nobody has, with three free ones after it.

    Not one that the system would give to a connection: that one could be taken again before it is bound.
    """
    for port in _candidates:
        try:
            for offset in range(4):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + offset))
        except OSError:
            continue
        return port
    raise AssertionError("no free ports")


def eventually(look: Callable[[], _Found], seconds: float = DEADLINE) -> _Found:
    """What `look` finds, as soon as it is true."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = look()
        except OSError:
            if time.monotonic() > end:
                raise
        else:
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"still {found!r} after {seconds} s")
        time.sleep(0.01)


@dataclass
class Reply:
    status: int
    body: Any
    headers: Message = field(default_factory=Message)

    @property
    def text(self) -> str:
        choice = self.body["choices"][0]
        return str(choice["text"] if "text" in choice else choice["message"]["content"])

    @property
    def finish_reason(self) -> str:
        return str(self.body["choices"][0]["finish_reason"])

    @property
    def message(self) -> str:
        return str(self.body["error"]["message"])


@dataclass
class Events:
    """A stream that has ended."""

    status: int
    chunks: list[dict[str, Any]]
    done: bool

    @property
    def text(self) -> str:
        return "".join(choice.get("text", "") for chunk in self.chunks for choice in chunk.get("choices", []))


@dataclass(frozen=True)
class Program:
    """What is started as an engine.

    Attributes:
        command: Its words before the arguments.
        environment: All variables but those of one engine.
        folder: Where it is started; None for where the tests are.
        start_seconds: How long its start may take.
        is_stand_in: Whether it is, and so has faults to be asked for.
        is_isolated: Whether the command's own child is the engine, in namespaces.
    """

    command: list[str]
    environment: Mapping[str, str]
    folder: Path | None = None
    start_seconds: float = DEADLINE
    is_stand_in: bool = True
    is_isolated: bool = False


STAND_IN = Program([sys.executable, "-m", "disagg.engine_sim"], os.environ)


class Engine:
    """A process."""

    def __init__(
        self,
        arguments: list[str],
        environment: Mapping[str, str],
        log: Path,
        program: Program = STAND_IN,
        port: int | None = None,
    ) -> None:
        self.port = port or free_port()
        self.log = log
        self._program = program
        # Whoever gives another port wants to see what becomes of it, or has written it to a file.
        is_told = port is not None or any(argument.startswith("--port") for argument in arguments)
        own = [] if is_told else ["--port", str(self.port)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*program.command, *arguments, *own],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=program.folder,
                env={**program.environment, **environment},
            )

    @property
    def is_stand_in(self) -> bool:
        """Whether faults can be asked for."""
        return self._program.is_stand_in

    def connect(self, seconds: float = 60) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=seconds)

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        with closing(self.connect()) as connection:
            response = self._send(connection, method, path, body, headers)
            data = response.read()
            is_json = bool(data) and "json" in (response.getheader("Content-Type") or "")
            return Reply(response.status, json.loads(data) if is_json else data.decode(), response.headers)

    def get(self, path: str) -> Reply:
        return self.request("GET", path)

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
        return self.request("POST", path, body, headers)

    def stream(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Events:
        with closing(self.connect()) as connection:
            response = self._send(connection, "POST", path, {**body, "stream": True}, headers)
            return read_events(response)

    def _send(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None,
    ) -> HTTPResponse:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        return connection.getresponse()

    def ready(self) -> Engine:
        def look() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"exit status {self.process.returncode}: {self.log.read_text()}")
            return self.get("/health").status == 200

        eventually(look, self._program.start_seconds)
        return self

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/sim/state").body["engines"][0]
        return found

    def fault(self, **faults: Any) -> None:
        reply = self.post("/sim/faults", faults)
        assert reply.status == 200, reply.body

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        found = [
            sample.value
            for family in text_string_to_metric_families(self.get("/metrics").body)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, name
        return sum(found)

    def label(self, name: str, label: str) -> str:
        """A label of a metric's sample, as that tells what it is about."""
        return next(
            sample.labels[label]
            for family in text_string_to_metric_families(self.get("/metrics").body)
            for sample in family.samples
            if sample.name == name
        )

    def stop(self) -> int:
        """Kill it."""
        self.process.kill()
        return self.process.wait(10)

    def ended(self) -> int:
        """Wait for its end, and say with which status."""
        return self.process.wait(self._program.start_seconds)

    def terminate(self) -> None:
        if not self._program.is_isolated:
            self.process.send_signal(signal.SIGTERM)
            return
        for child in psutil.Process(self.process.pid).children():
            child.send_signal(signal.SIGTERM)


def read_events(response: HTTPResponse) -> Events:
    chunks, done = [], False
    for line in response:
        if line.startswith(b"data: [DONE]"):
            done = True
        elif line.startswith(b"data: "):
            chunks.append(json.loads(line.removeprefix(b"data: ")))
    return Events(response.status, chunks, done)


_Kept = TypeVar("_Kept", bound=Engine)


class Engines:
    """Starts engines, and ends them all."""

    def __init__(self, folder: Path, program: Program = STAND_IN) -> None:
        self._folder = folder
        self._program = program
        self._all: list[Engine] = []

    def start(self, *arguments: str, **environment: str) -> Engine:
        """Start one; not yet ready."""
        log = self._folder / f"{len(self._all)}.log"
        return self.keep(Engine(list(arguments), environment, log, self._program))

    def refused(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """How one ends that does not start: its status, and what it has said."""
        engine = self.start(*arguments, **environment)
        return engine.process.wait(self._program.start_seconds), engine.log.read_text()

    def keep(self, engine: _Kept) -> _Kept:
        """End an engine with the others."""
        self._all.append(engine)
        return engine

    @property
    def folder(self) -> Path:
        """For logs, and whatever else an engine needs."""
        return self._folder

    def stop(self) -> None:
        for engine in self._all:
            engine.stop()
