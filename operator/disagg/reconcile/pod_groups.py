"""Does the cluster pack PodGroups? Asked once, when the operator starts."""

from __future__ import annotations

from enum import StrEnum

import structlog

from disagg.cluster.client import Client
from disagg.reconcile.kinds import POD_GROUP

_log = structlog.stdlib.get_logger("disagg")


class PodGroupMode(StrEnum):
    """Whether PodGroups are used."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


async def offers_pod_groups(client: Client, mode: PodGroupMode) -> bool:
    """Whether groups that must be packed are to be given to the scheduler as PodGroups.

    Args:
        client: The API server.
        mode: What the user has said.

    Raises:
        ApiError: The API server gives no definite answer. A guess would restart pods when the next one differs.
    """
    if mode is not PodGroupMode.AUTO:
        return mode is PodGroupMode.ON
    offered = await client.is_served(POD_GROUP)
    _log.info("PodGroups", offered=offered)
    return offered
