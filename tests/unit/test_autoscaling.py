from __future__ import annotations

from typing import Any

import pytest

from disagg.api.status import Reason
from disagg.assess.autoscaling import assess_autoscaling


def autoscaler(role: str = "prefill", metric: str = "disagg_queue_depth", **condition: str) -> dict[str, Any]:
    """An HPA whose condition ScalingActive is `condition`."""
    conditions = [{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive"} | condition]
    return {
        "metadata": {"name": f"llama-{role}"},
        "spec": {"metrics": [{"type": "External", "external": {"metric": {"name": metric}}}]},
        "status": {"conditions": conditions if condition else []},
    }


ACTIVE = autoscaler(status="True", reason="ValidMetricFound")
DECODE_ACTIVE = autoscaler("decode", status="True", reason="ValidMetricFound")
BLIND = autoscaler(status="False", reason="FailedGetExternalMetric")
DECODE_BLIND = autoscaler("decode", "disagg_kv_cache_usage", status="False", reason="FailedGetExternalMetric")
IDLE = autoscaler(status="False", reason="ScalingDisabled")
NEW = autoscaler()
UNKNOWN = autoscaler(status="Unknown", reason="Waiting")


@pytest.mark.parametrize(
    ("autoscalers", "wanted", "works", "reason"),
    [
        pytest.param([], 0, True, Reason.AUTOSCALING_DISABLED, id="none wanted"),
        pytest.param([], 1, False, Reason.AUTOSCALER_STARTING, id="none made yet"),
        pytest.param([NEW], 1, False, Reason.AUTOSCALER_STARTING, id="just made"),
        pytest.param([NEW | {"status": {}}], 1, False, Reason.AUTOSCALER_STARTING, id="without a status"),
        pytest.param(
            [NEW | {"status": {"conditions": None}}], 1, False, Reason.AUTOSCALER_STARTING, id="null"
        ),
        pytest.param([UNKNOWN], 1, False, Reason.AUTOSCALER_STARTING, id="unknown"),
        pytest.param([ACTIVE], 1, True, Reason.AUTOSCALING_ACTIVE, id="active"),
        pytest.param([ACTIVE], 2, False, Reason.AUTOSCALER_STARTING, id="one of two made"),
        pytest.param([ACTIVE, NEW], 2, False, Reason.AUTOSCALER_STARTING, id="one of two active"),
        pytest.param([ACTIVE, DECODE_ACTIVE], 2, True, Reason.AUTOSCALING_ACTIVE, id="both active"),
        pytest.param([BLIND], 1, False, Reason.METRICS_UNAVAILABLE, id="without a metric"),
        pytest.param([DECODE_ACTIVE, BLIND], 2, False, Reason.METRICS_UNAVAILABLE, id="one without a metric"),
        pytest.param(
            [NEW, DECODE_BLIND], 2, False, Reason.METRICS_UNAVAILABLE, id="one new, one without a metric"
        ),
    ],
)
def test_autoscaling_works_when_each_autoscaler_acts_on_its_metric(
    autoscalers: list[dict[str, Any]], wanted: int, works: bool, reason: Reason
) -> None:
    assert assess_autoscaling(autoscalers, wanted=wanted)[:2] == (works, reason)


def test_each_metric_that_is_missing_is_named() -> None:
    _, _, message = assess_autoscaling([BLIND, DECODE_BLIND], wanted=2)
    assert "llama-prefill cannot read disagg_queue_depth (FailedGetExternalMetric)" in message
    assert "llama-decode cannot read disagg_kv_cache_usage (FailedGetExternalMetric)" in message


def test_an_autoscaler_that_rests_at_zero_is_not_said_to_lack_its_metric() -> None:
    assert assess_autoscaling([IDLE], wanted=1) == (
        False,
        Reason.SCALED_TO_ZERO,
        "llama-prefill: does nothing while its Deployment is scaled to 0",
    )
