from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer

from disagg.reconcile.metrics import Metrics
from disagg.reconcile.server import STUCK_SECONDS, health_server


async def status(path: str, *, oldest: float = 0.0, ready: bool = True) -> tuple[int, str]:
    app = health_server(Metrics(), oldest=lambda: oldest, ready=lambda: ready)
    async with TestClient(TestServer(app)) as client:
        answer = await client.get(path)
        return answer.status, await answer.text()


@pytest.mark.parametrize(("oldest", "code"), [(0.0, 200), (STUCK_SECONDS, 200), (STUCK_SECONDS + 1, 503)])
async def test_the_operator_is_unhealthy_when_its_work_is_stuck(oldest: float, code: int) -> None:
    assert (await status("/healthz", oldest=oldest))[0] == code


@pytest.mark.parametrize(("ready", "code"), [(True, 200), (False, 503)])
async def test_the_operator_is_ready_when_it_watches(ready: bool, code: int) -> None:
    assert (await status("/readyz", ready=ready))[0] == code


async def test_the_metrics_tell_of_reconciles_requests_and_the_queue() -> None:
    metrics = Metrics()
    metrics.reconcile("changed", 0.2)
    metrics.request("apply", 409, 0.01)
    metrics.watch_queue(lambda: 3.0, lambda: 7.5)
    app = health_server(metrics, oldest=lambda: 0.0, ready=lambda: True)
    async with TestClient(TestServer(app)) as client:
        text = await (await client.get("/metrics")).text()
    for line in (
        'disagg_operator_reconcile_total{result="changed"} 1.0',
        "disagg_operator_reconcile_duration_seconds_count 1.0",
        'disagg_operator_api_requests_total{code="409",verb="apply"} 1.0',
        "disagg_operator_queue_depth 3.0",
        "disagg_operator_queue_oldest_seconds 7.5",
    ):
        assert f"\n{line}\n" in text
