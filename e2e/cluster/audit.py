"""Reads the audit log of a cluster: who asked the API server for what.

Tests count an operator's writes with it, benchmarks its requests.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

WRITE_VERBS: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class AuditEvent:
    """One answered request; a watch is one when it is answered and one when it ends.

    Attributes:
        received: When the API server received the request.
        stage: `ResponseStarted` for a long-running request that begins, `ResponseComplete`, or `Panic`.
        username: Who asked, such as `system:serviceaccount:default:operator`.
        user_agent: With which program.
        verb: Such as `get`, `list`, `watch`, or one of `WRITE_VERBS`.
        path: The request's path and query.
        group: API group; empty for the core group.
        resource: Plural name, such as `pods`; empty if the request is not for a resource.
        subresource: Such as `status`; empty if none.
        namespace: Empty for cluster-wide requests.
        name: Empty for collections.
        code: HTTP status of the answer; 0 if there was none.
    """

    received: datetime
    stage: str
    username: str
    user_agent: str
    verb: str
    path: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int

    @classmethod
    def from_json(cls, event: dict[str, Any]) -> Self:
        """Read an `audit.k8s.io/v1` Event."""
        target = event.get("objectRef", {})
        return cls(
            received=datetime.fromisoformat(event["requestReceivedTimestamp"]),
            stage=event["stage"],
            username=event.get("user", {}).get("username", ""),
            user_agent=event.get("userAgent", ""),
            verb=event["verb"],
            path=event["requestURI"],
            group=target.get("apiGroup", ""),
            resource=target.get("resource", ""),
            subresource=target.get("subresource", ""),
            namespace=target.get("namespace", ""),
            name=target.get("name", ""),
            code=event.get("responseStatus", {}).get("code", 0),
        )

    @property
    def is_write(self) -> bool:
        """Whether the request was to change something, successfully or not."""
        return self.verb in WRITE_VERBS


class AuditLog:
    """The audit log of one cluster."""

    def __init__(self, path: Path) -> None:
        """Open a log.

        Args:
            path: The file, with one JSON object a line; it need not exist yet.
        """
        self._path = path

    def events(
        self, *, username: str | None = None, verb: str | None = None, since: datetime | None = None
    ) -> Iterator[AuditEvent]:
        """Iterate over the events so far, in the order in which they were answered.

        Args:
            username: Only requests of this user.
            verb: Only requests with this verb.
            since: Only requests received at or after this moment, which must have a time zone.

        Yields:
            The events that match.
        """
        if not self._path.exists():
            return
        with self._path.open() as lines:
            for line in lines:
                # The API server may be in the middle of its last line.
                if not line.endswith("\n"):
                    return
                event = AuditEvent.from_json(json.loads(line))
                if (
                    (username is None or event.username == username)
                    and (verb is None or event.verb == verb)
                    and (since is None or event.received >= since)
                ):
                    yield event
