"""Which domains pods may run in at all, in a cluster too large for the scheduler to look at whole.

Of many nodes the kube-scheduler compares only some: it stops when it has found enough on which the pod fits, and a
preference says nothing about those that it has not come to. So in a large cluster a soft steer reaches its domain by
chance alone, unless the pod may run on few enough nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from disagg.topology.capacity import DomainFit

SCORED_NODES = 100
"""So many nodes on which a pod fits are always compared, however many there are and whatever share of them the scheduler
is told to look at: minFeasibleNodesToFind in kubernetes/pkg/scheduler/schedule_one.go."""


def reach(
    fits: Mapping[str, DomainFit], domain: str, *, eligible: int, near: Collection[str], whole: bool
) -> tuple[str, ...]:
    """The domains that pods are confined to, the chosen one first.

    Args:
        fits: All domains.
        domain: The domain that was chosen.
        eligible: Nodes that the pods may run on, whatever is free there.
        near: Domains of the same wider domain.
        whole: Whether only domains that hold the whole group will do.

    Returns:
        Empty if the scheduler compares all nodes. Else as many domains as it compares whole, and at least one besides
        the chosen one if there is any.
    """
    if eligible <= SCORED_NODES:
        return ()
    others = [fit for fit in fits.values() if fit.domain != domain and (fit.fits_minimum or not whole)]
    others.sort(key=lambda fit: (fit.domain not in near, not fit.fits_minimum, -fit.free, fit.domain))
    chosen, nodes = [domain], fits[domain].nodes if domain in fits else 0
    for fit in others:
        if len(chosen) > 1 and nodes + fit.nodes > SCORED_NODES:
            break
        chosen.append(fit.domain)
        nodes += fit.nodes
    return tuple(chosen)
