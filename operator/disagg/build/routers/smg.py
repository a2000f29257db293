"""The SGLang model gateway (lightseekorg/smg), which speaks SGLang's protocol: both roles at once. Flags are those of 1.13.0.

It closes idle connections to engines after 3 s (`--upstream-pool-idle-timeout-secs`), before SGLang does after 5 s, so that none
is reset as it is used again (sglang#9926).
"""

from __future__ import annotations

from disagg.api.names import RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.build.routers.router import HEALTH, METRICS_PORT, RouterPod, discovery, listening
from disagg.build.transfer import answer_seconds


def router_pod(resource: DisaggregatedInference, group: int) -> RouterPod:
    """The router that pairs the pods of `group`. Where they meet, prefill says in an annotation of its pods.

    Raises:
        ValueError: The user has not said which image to run.
    """
    image = resource.spec.router.image
    if image is None:
        raise ValueError("router.image: required when router.kind is smg")
    return RouterPod(
        # The image starts smg itself.
        image=image,
        args=[
            "--pd-disaggregation",
            # Its default of 60 s would send requests to a dead pod for a minute.
            "--health-check-interval-secs=5",
            # Its default of 180 s would cut answers that decode has time to finish.
            f"--shutdown-grace-period-secs={answer_seconds(resource.spec)}",
            *listening(),
            *discovery(resource, Workload(RoleName.PREFILL, group), Workload(RoleName.DECODE, group)),
        ],
        ports={"metrics": METRICS_PORT},
        health=HEALTH,
    )
