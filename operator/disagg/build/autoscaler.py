"""HorizontalPodAutoscalers: prefill by queue depth, decode by KV-cache use."""

from __future__ import annotations

from typing import Any

from disagg.api.names import RoleName, Workload, child_name, selector_labels
from disagg.api.resource import DisaggregatedInference
from disagg.build.metadata import child

QUEUE_DEPTH_METRIC = "disagg_queue_depth"
"""Requests that wait or run, summed over the prefill pods. Work in hand, not only work that waits: the autoscaler
computes ceil(total / target) and forgets how many replicas there are."""
KV_CACHE_METRIC = "disagg_kv_cache_usage"
"""KV-cache use in percent, summed over the decode pods."""

DEFAULT_QUEUE_DEPTH = 4
DEFAULT_KV_CACHE_UTILIZATION = 80

BEHAVIOR = {
    # A pod loads for minutes: double at once, or add 4, whichever is more.
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Percent", "value": 100, "periodSeconds": 15},
            {"type": "Pods", "value": 4, "periodSeconds": 15},
        ],
    },
    # What was scaled down takes those minutes to come back.
    "scaleDown": {
        "stabilizationWindowSeconds": 300,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
    },
}


def horizontal_pod_autoscaler(resource: DisaggregatedInference, workload: Workload) -> dict[str, Any]:
    """The HorizontalPodAutoscaler, in one group, of a role that has `autoscaling`.

    The metric is external, with an average target: the API serves the total of a role in a group, and the autoscaler divides.

    Raises:
        ValueError: The role has no autoscaling.
    """
    metric, target, bounds = _signal(resource, workload.role)
    return child("autoscaling/v2", "HorizontalPodAutoscaler", resource, workload) | {
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": child_name(resource.metadata.name, workload),
            },
            "minReplicas": bounds[0],
            "maxReplicas": bounds[1],
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {
                            "name": metric,
                            "selector": {"matchLabels": selector_labels(resource.metadata.name, workload)},
                        },
                        "target": {"type": "AverageValue", "averageValue": str(target)},
                    },
                }
            ],
            "behavior": BEHAVIOR,
        },
    }


def _signal(resource: DisaggregatedInference, role: RoleName) -> tuple[str, int, tuple[int, int]]:
    prefill, decode = resource.spec.prefill.autoscaling, resource.spec.decode.autoscaling
    if role is RoleName.PREFILL and prefill is not None:
        target = prefill.queue_depth or DEFAULT_QUEUE_DEPTH
        return QUEUE_DEPTH_METRIC, target, (prefill.min_replicas, prefill.max_replicas)
    if role is RoleName.DECODE and decode is not None:
        target = decode.kv_cache_utilization or DEFAULT_KV_CACHE_UTILIZATION
        return KV_CACHE_METRIC, target, (decode.min_replicas, decode.max_replicas)
    raise ValueError(f"{role} has no autoscaling")
