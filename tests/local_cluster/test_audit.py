"""The audit log reader."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.audit import AuditEvent, AuditLog

EVENTS: list[dict[str, Any]] = [
    {
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/a/pods/p/status",
        "verb": "patch",
        "user": {"username": "kwok"},
        "userAgent": "kwok/v0.8.0",
        "objectRef": {
            "resource": "pods",
            "namespace": "a",
            "name": "p",
            "apiVersion": "v1",
            "subresource": "status",
        },
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": "2026-11-30T07:00:01.000000Z",
    },
    {
        "stage": "ResponseComplete",
        "requestURI": "/readyz",
        "verb": "get",
        "user": {"username": "admin"},
        "requestReceivedTimestamp": "2026-11-30T07:00:02.000000Z",
    },
    {
        "stage": "ResponseStarted",
        "requestURI": "/apis/apps/v1/deployments?watch=1",
        "verb": "watch",
        "user": {"username": "admin"},
        "objectRef": {"resource": "deployments", "apiGroup": "apps", "apiVersion": "v1"},
        "requestReceivedTimestamp": "2026-11-30T07:00:03.000000Z",
    },
]


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    path = tmp_path / "audit.log"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in EVENTS) + '{"stage": "Resp')
    return AuditLog(path)


def test_events_are_typed_and_a_half_written_one_is_left_out(log: AuditLog) -> None:
    events = list(log.events())
    assert len(events) == 3
    assert events[0] == AuditEvent(
        received=datetime(2026, 11, 30, 7, 0, 1, tzinfo=UTC),
        stage="ResponseComplete",
        username="kwok",
        user_agent="kwok/v0.8.0",
        verb="patch",
        path="/api/v1/namespaces/a/pods/p/status",
        group="",
        resource="pods",
        subresource="status",
        namespace="a",
        name="p",
        code=200,
    )
    assert (events[1].resource, events[1].code) == ("", 0)
    assert events[2].group == "apps"
    assert [event.is_write for event in events] == [True, False, False]


@pytest.mark.parametrize(
    ("filters", "verbs"),
    [
        ({"username": "admin"}, ["get", "watch"]),
        ({"verb": "patch"}, ["patch"]),
        ({"since": datetime(2026, 11, 30, 7, 0, 2, tzinfo=UTC)}, ["get", "watch"]),
        ({"username": "admin", "verb": "patch"}, []),
    ],
)
def test_filters(log: AuditLog, filters: dict[str, Any], verbs: list[str]) -> None:
    assert [event.verb for event in log.events(**filters)] == verbs


def test_no_log_yet(tmp_path: Path) -> None:
    assert list(AuditLog(tmp_path / "none").events()) == []
