"""What the preflight check of a pod complains of, as the pod's status has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from disagg.build.preflight import CONTAINER

_UNTOLD = f"the preflight check ended without a message: kubectl logs --container {CONTAINER} has more"
_SWITCH_OFF = "an engine's image without python3 cannot be checked: set kvTransfer.preflight to false"
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons with which container runtimes say that a command did not even start."""


def failure(pod: Mapping[str, Any]) -> str | None:
    """The message of a failed check, or None while it has not failed.

    Args:
        pod: The pod, as read from the API server.
    """
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    for status in statuses:
        if status.get("name") == CONTAINER:
            # While a container waits to be started again, or runs again, its last state tells how it ended.
            for state in (status.get("state") or {}, status.get("lastState") or {}):
                if (ended := state.get("terminated")) is not None:
                    return _complaint(ended)
    return None


def _complaint(ended: Mapping[str, Any]) -> str | None:
    if ended.get("exitCode") == 0:
        return None
    message = str(ended.get("message") or "").strip() or _UNTOLD
    return f"{message}; {_SWITCH_OFF}" if ended.get("reason") in _NOT_STARTED else message
