"""What the pod template needs to know of an engine, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HTTP_PORT = 8000
"""Port of the engine's OpenAI-compatible API, its health check and its metrics."""


@dataclass(frozen=True)
class EnginePod:
    """An engine as prefill or decode.

    Attributes:
        command: Entry point, or None to keep the image's own.
        args: Arguments that the operator writes; the user's are appended.
        env: Environment that the operator sets; the user's overrides it by name.
        ports: Ports besides `http`, by name.
        shared_memory: Whether ranks exchange data through /dev/shm.
        annotations: Annotations of the pod.
    """

    command: list[str] | None = None
    args: list[str] = field(default_factory=list)
    env: list[dict[str, Any]] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)
    shared_memory: bool = False
    annotations: dict[str, str] = field(default_factory=dict)


def huggingface_env(secret_name: str, key: str) -> dict[str, Any]:
    """HF_TOKEN from a Secret, as Hugging Face's libraries read it."""
    return {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": secret_name, "key": key}}}
