"""Counts what an operator asked of the API server. Pure, from audit events."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlsplit

from e2e.cluster import AuditEvent

RESOURCES: Final = "disaggregatedinferences"
_FIRST_ERROR: Final = 400
_NOT_FOUND: Final = 404


@dataclass
class Requests:
    """Requests of one user.

    Attributes:
        writes: Writes of children and events, and the first status of each resource.
        status_updates: Writes of a status after the first.
        dry_runs: Writes that were only to be tried.
        reads: Everything else but watches.
        failed: Requests of all kinds that were refused; to read what is not there is an answer.
        by_kind: Number by verb and what it was for, such as `patch deployments`.
    """

    writes: int = 0
    status_updates: int = 0
    dry_runs: int = 0
    reads: int = 0
    failed: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)


def count(events: Iterable[AuditEvent]) -> Requests:
    """Count requests; those for Leases, which are not for any resource, are left out.

    Args:
        events: Audit events of one user.
    """
    requests = Requests()
    seen: set[tuple[str, str]] = set()
    for event in events:
        if event.stage != "ResponseComplete" or event.resource == "leases" or event.verb == "watch":
            continue
        dry_run = "dryRun" in parse_qs(urlsplit(event.path).query)
        target = f"{event.resource}/{event.subresource}" if event.subresource else event.resource
        requests.by_kind[f"{event.verb} {target}{' (dry run)' if dry_run else ''}"] += 1
        is_absence = event.verb == "get" and event.code == _NOT_FOUND
        requests.failed += event.code >= _FIRST_ERROR and not is_absence
        key = (event.namespace, event.name)
        if not event.is_write:
            requests.reads += 1
        elif dry_run:
            requests.dry_runs += 1
        elif event.resource == RESOURCES and event.subresource == "status" and key in seen:
            requests.status_updates += 1
        else:
            requests.writes += 1
            if event.resource == RESOURCES:
                seen.add(key)
    return requests
