"""What the preflight check of a pod complains of, as the pod's status has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFLIGHT_CONTAINER = "preflight"
"""Name of the init container that checks a pod before its engine starts."""


def failure(pod: Mapping[str, Any]) -> str | None:
    """The message of a failed check, or None while it has not failed.

    Args:
        pod: The pod, as read from the API server.
    """
    for container in (pod.get("status") or {}).get("initContainerStatuses") or ():
        if container.get("name") != PREFLIGHT_CONTAINER:
            continue
        # After a failure the container waits to be started again, and its last state has the message.
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            ended = state.get("terminated")
            if ended is not None:
                return (
                    None if ended.get("exitCode") == 0 else str(ended.get("message") or "").strip() or _UNTOLD
                )
    return None


_UNTOLD = "the preflight check failed and left no message: see the log of the init container"
