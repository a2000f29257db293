"""Do the HorizontalPodAutoscalers work? Judged from their own conditions."""

from __future__ import annotations

from typing import Any

from disagg.api.status import Reason

Verdict = tuple[bool, Reason, str]


def assess_autoscaling(autoscalers: list[dict[str, Any]], *, wanted: int) -> Verdict:
    """Judge the autoscalers of a resource.

    Args:
        autoscalers: The live HorizontalPodAutoscalers.
        wanted: How many there are to be.

    Returns:
        Whether all of them act on their metric, a reason, and a message with no number in it that moves by itself.
    """
    if wanted == 0:
        return True, Reason.AUTOSCALING_DISABLED, "no role has autoscaling"
    asleep = [autoscaler["metadata"]["name"] for autoscaler in autoscalers if _is_asleep(autoscaler)]
    if asleep:
        return (
            False,
            Reason.SCALED_TO_ZERO,
            f"{', '.join(asleep)}: does nothing while its Deployment is scaled to 0",
        )
    broken = [problem for autoscaler in autoscalers if (problem := _problem(autoscaler))]
    if broken:
        return False, Reason.METRICS_UNAVAILABLE, "; ".join(broken)
    active = [autoscaler for autoscaler in autoscalers if _condition(autoscaler).get("status") == "True"]
    if len(active) < wanted:
        return False, Reason.AUTOSCALER_STARTING, "the autoscalers have not read their metrics yet"
    return True, Reason.AUTOSCALING_ACTIVE, "all autoscalers act on their metrics"


def _is_asleep(autoscaler: dict[str, Any]) -> bool:
    return _condition(autoscaler).get("reason") == "ScalingDisabled"


def _problem(autoscaler: dict[str, Any]) -> str | None:
    condition = _condition(autoscaler)
    if condition.get("status") != "False":
        return None
    metrics = ", ".join(
        metric["external"]["metric"]["name"]
        for metric in autoscaler["spec"]["metrics"]
        if "external" in metric
    )
    return (
        f"{autoscaler['metadata']['name']} cannot read {metrics} ({condition.get('reason')}):"
        " the replicas stay as they are until the external metrics API serves it"
    )


def _condition(autoscaler: dict[str, Any]) -> dict[str, Any]:
    conditions = autoscaler.get("status", {}).get("conditions") or []
    return next((dict(condition) for condition in conditions if condition["type"] == "ScalingActive"), {})
