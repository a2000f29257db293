"""Does the cluster pack PodGroups? Asked once, when the operator starts."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus

import structlog

from disagg.api.names import FIELD_MANAGER
from disagg.cluster.client import Client
from disagg.cluster.errors import ApiError, ForbiddenError, RejectedError
from disagg.reconcile.kinds import POD_GROUP
from disagg.topology.levels import HOSTNAME

_log = structlog.stdlib.get_logger("disagg")


class PodGroupMode(StrEnum):
    """Whether PodGroups are used."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


async def offers_pod_groups(client: Client, mode: PodGroupMode, namespace: str) -> bool:
    """Whether groups that must be packed may be given to the scheduler as PodGroups.

    An API server without the feature gate for topology takes a PodGroup and drops its constraint without a word. So one
    is tried, and looked at.

    Args:
        client: The API server.
        mode: What the user has said.
        namespace: Where to try.

    Raises:
        ApiError: The API server gives no definite answer. A guess would restart pods when the next one differs.
    """
    if mode is not PodGroupMode.AUTO:
        return mode is PodGroupMode.ON
    constraints = {"topology": [{"key": HOSTNAME}]}
    body = {
        "apiVersion": POD_GROUP.api_version,
        "kind": POD_GROUP.kind,
        "metadata": {"name": "disagg-probe", "namespace": namespace},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "schedulingConstraints": constraints},
    }
    try:
        kept = await client.apply(POD_GROUP, body, manager=FIELD_MANAGER, dry_run=True)
    except (ForbiddenError, RejectedError) as error:
        _log.warning("PodGroups are not used", error=str(error))
        return False
    except ApiError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        kept = {}
    offered: bool = kept.get("spec", {}).get("schedulingConstraints") == constraints
    _log.info("PodGroups", offered=offered)
    return offered
