"""The way of one resource: key -> read -> decide -> build -> apply -> assess -> status. Start reading here.

Level-based: each pass reads what is there and works out what is to be done from that alone, so a lost event, a
restart or a second operator costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog
from pydantic import ValidationError

from disagg.api.names import API_VERSION, KIND, STATUS_MANAGER, TOPOLOGY_MANAGER
from disagg.api.resource import DisaggregatedInference, InvalidSpecError, Metadata, parse
from disagg.api.status import ConditionType, Reason, Status
from disagg.assess.assess import Findings, assess, begin, refuse
from disagg.assess.events import Event, events
from disagg.assess.kv_transfer import Review, review
from disagg.assess.packing import WAITING, assess_packing
from disagg.assess.problem import Problem
from disagg.build.objects import build, plan
from disagg.cluster.client import Client
from disagg.cluster.errors import ConflictError, ForbiddenError, NamespaceTerminatingError, RejectedError
from disagg.decide.decisions import Decisions
from disagg.decide.environment import Environment
from disagg.decide.observed import Observed
from disagg.decide.repacking import Attempts, misplaced
from disagg.reconcile.children import Children, ProblemError, forbidden
from disagg.reconcile.cluster_state import ClusterState
from disagg.reconcile.kinds import ALL_KINDS, DISAGGREGATED_INFERENCE, EVENT, POD, POD_GROUP, STATUS_KINDS
from disagg.reconcile.pod_labels import wanted_labels
from disagg.reconcile.queue import Key
from disagg.topology.groups import GroupKey

SETTLE_SECONDS = 1.0
"""After a change: the time for controllers to act on it, before the status is judged again."""
PROBLEM_SECONDS = 30.0
"""Until a problem is looked at again that nothing may tell about: a name that is free, a right that was given."""
PLACEMENT_SECONDS = 10.0
"""Until a group is looked at again that waits for room: others may have gone, and nobody tells."""


_log = structlog.stdlib.get_logger("disagg")


@dataclass(frozen=True)
class Outcome:
    """What a pass has come to.

    Attributes:
        result: `gone`, `paused`, `unchanged`, `changed` or `problem`.
        changes: What was changed, such as `apply Deployment/llama-decode`.
        message: The problem, if there is one.
        again: Seconds after which to look again, or None.
        kinds: Kinds of children to look at then.
    """

    result: str
    changes: list[str] = field(default_factory=list)
    message: str = ""
    again: float | None = None
    kinds: frozenset[str] = ALL_KINDS


class Reconciler:
    """Reconciles one resource at a time; different resources at once.

    Args:
        client: The API server.
        state: Nodes and pods.
        levels: Name of a topology level -> key of the node label for it.
        pod_groups: Whether the cluster serves PodGroups with a topology constraint.
        now: The clock, in UTC.
    """

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        *,
        levels: Mapping[str, str],
        pod_groups: bool,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._state = state
        self._levels = levels
        self._pod_groups = pod_groups
        self._now = now
        self._children: dict[Key, Children] = {}
        self._reviews: dict[Key, tuple[str, int, Review]] = {}
        self._claimed: dict[Key, set[GroupKey]] = {}
        self._attempts = Attempts()

    async def reconcile(self, key: Key, kinds: frozenset[str]) -> Outcome:
        """One pass over the resource `key`, with its children of `kinds` looked at.

        Raises:
            ApiError: A request failed; the pass is to be tried again.
        """
        try:
            return await self._visit(key, kinds)
        except NamespaceTerminatingError:
            # Its controller deletes children and resources in any order. To complain of that would help nobody.
            return Outcome("gone")

    async def _visit(self, key: Key, kinds: frozenset[str]) -> Outcome:
        raw = await self._client.get(DISAGGREGATED_INFERENCE, key.namespace, key.name)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            # Owner references take the children with it. To apply anything now would resurrect them.
            self._forget(key)
            return Outcome("gone")
        metadata = Metadata.model_validate(raw["metadata"])
        before = _status(raw)
        try:
            resource = parse(raw | {"status": before.model_dump(by_alias=True)})
        except InvalidSpecError as error:
            problem = Problem(Reason.INVALID_SPEC, f"the spec does not fit this operator's schema: {error}")
            return await self._refuse(metadata, before, problem)
        if before.observed_generation != metadata.generation:
            resource = resource.model_copy(update={"status": begin(resource, self._now())})
            await self._write(metadata, before, resource.status)
        return await self._pass(key, resource, before, ALL_KINDS if _unsettled(before, metadata) else kinds)

    async def _pass(
        self, key: Key, resource: DisaggregatedInference, before: Status, kinds: frozenset[str]
    ) -> Outcome:
        children = self._children.setdefault(key, Children(self._client))
        kinds = (kinds | STATUS_KINDS) & (ALL_KINDS if self._pod_groups else ALL_KINDS - {POD_GROUP.kind})
        try:
            observed = await children.read(key.namespace, key.name, kinds)
        except ForbiddenError as error:
            return await self._refuse(resource.metadata, resource.status, forbidden(error))
        environment = Environment(self._levels, self._pod_groups, self._state.inventory)
        decisions = self._decide(key, resource, observed, environment)
        observed, changes, problem = await self._change(key, resource, observed, decisions, kinds)
        if changes and before.observed_generation != resource.metadata.generation:
            # The status says already that work has begun, and what was just made has none of its own yet.
            return Outcome("changed", changes, again=SETTLE_SECONDS, kinds=STATUS_KINDS)
        packing = assess_packing(resource, observed, decisions.groups, environment)
        findings = Findings(packing, self._state.failures.of(key), self._review(key, resource))
        status = assess(resource, observed, problem, self._now(), findings)
        await self._write(resource.metadata, resource.status, status)
        if problem is not None:
            return Outcome("problem", message=problem.message, again=PROBLEM_SECONDS)
        if changes or decisions.held:
            result = "changed" if changes else "unchanged"
            return Outcome(result, changes, again=SETTLE_SECONDS, kinds=STATUS_KINDS)
        if packing.reason in WAITING:
            return Outcome("unchanged", again=PLACEMENT_SECONDS, kinds=STATUS_KINDS | {POD_GROUP.kind})
        return Outcome("paused" if resource.spec.paused else "unchanged")

    async def _change(
        self,
        key: Key,
        resource: DisaggregatedInference,
        observed: Observed,
        decisions: Decisions,
        kinds: frozenset[str],
    ) -> tuple[Observed, list[str], Problem | None]:
        """Make the children what they are to be: what is there now, what was changed, and what stands in the way."""
        changes = list[str]()
        if (why := self._review(key, resource).incompatibility) is not None:
            return observed, changes, Problem(Reason.INCOMPATIBLE_ROLES, why)
        try:
            if not resource.spec.paused:
                desired = [obj for obj in build(resource, decisions) if obj["kind"] in kinds]
                observed, changes = await self._children[key].change(resource, desired, decisions, observed)
                if not changes:
                    # Pods whose Deployment has just changed are replaced anyway.
                    changes = await self._repack(resource, decisions, key)
                await self._label_pods(resource, decisions, key)
        except ProblemError as error:
            return observed, changes, error.problem
        except ForbiddenError as error:
            return observed, changes, forbidden(error)
        return observed, changes, None

    def _decide(
        self, key: Key, resource: DisaggregatedInference, observed: Observed, environment: Environment
    ) -> Decisions:
        """Decide, and have the decisions about other resources see what was decided before anything else happens."""
        decisions = plan(resource, observed, environment, self._now())
        wanted = {
            GroupKey(key.namespace, key.name, number): group.claim
            for number, group in decisions.groups.items()
            if group.claim is not None and not resource.spec.paused
        }
        for group in self._claimed.get(key, set()) - wanted.keys():
            self._state.inventory.release(group)
        for group, claim in wanted.items():
            self._state.inventory.claim(group, claim)
        self._claimed[key] = set(wanted)
        if decisions.groups:
            self._state.packed.add(key)
        else:
            self._state.packed.discard(key)
        return decisions

    def _review(self, key: Key, resource: DisaggregatedInference) -> Review:
        """What there is to say of the spec. To look through it takes longer than all else that is done in a pass."""
        metadata = resource.metadata
        known = self._reviews.get(key)
        if known is None or known[:2] != (metadata.uid, metadata.generation):
            known = (metadata.uid, metadata.generation, review(resource))
            self._reviews[key] = known
        return known[2]

    def _forget(self, key: Key) -> None:
        self._children.pop(key, None)
        self._reviews.pop(key, None)
        self._state.packed.discard(key)
        for group in self._claimed.pop(key, ()):
            self._state.inventory.release(group)

    async def _label_pods(self, resource: DisaggregatedInference, decisions: Decisions, key: Key) -> None:
        """Tell running pods where they are.

        With their uid: a pod that is gone must not be made by the patch that labels it.
        """
        constraint = resource.spec.topology_constraint
        levels = self._levels if constraint is None else constraint.levels.over(self._levels)
        for number, group in decisions.groups.items():
            placement = group.placement
            if placement is None:
                continue
            for pod in self._state.own.of(GroupKey(key.namespace, key.name, number)):
                node = self._state.inventory.node(pod.node)
                if node is None:
                    continue
                labels = wanted_labels(node.labels, placement.key, levels)
                if labels == dict(pod.labels):
                    continue
                metadata = {"name": pod.name, "namespace": key.namespace, "uid": pod.uid, "labels": labels}
                body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
                try:
                    await self._client.apply(POD, body, manager=TOPOLOGY_MANAGER)
                except (ConflictError, RejectedError):
                    # It is gone, or another has its name.
                    continue
                except ForbiddenError as error:
                    # Routers pair less well without; nothing else depends on it.
                    _log.warning("pods are not labelled with their domain", key=str(key), error=str(error))
                    return

    async def _repack(self, resource: DisaggregatedInference, decisions: Decisions, key: Key) -> list[str]:
        """Delete pods that are to be made anew elsewhere, and tell of it."""
        changes = []
        for number, decision in decisions.groups.items():
            group = GroupKey(key.namespace, key.name, number)
            counts, pods = self._state.inventory.pods(group), self._state.own.of(group)
            found = misplaced(decision, group, pods, counts, self._state.inventory)
            if found is None or not self._attempts.allow(group, found, self._now()):
                continue
            for pod in found.pods:
                # As it was seen: it may serve by now.
                await self._client.delete(POD, key.namespace, pod.name, uid=pod.uid, version=pod.version)
            self._attempts.add(group, found, self._now())
            for pod in found.pods:
                changes.append(f"delete Pod/{pod.name}")
                message = (
                    f"pod {pod.name} on {pod.node} is made anew, to have the group in {decision.current}"
                )
                await self._record(resource.metadata, Event("Normal", Reason.REPACKED, message))
        return changes

    async def _refuse(self, metadata: Metadata, before: Status, problem: Problem) -> Outcome:
        """Say why nothing can be told of the resource, and leave what was told of it before."""
        await self._write(metadata, before, refuse(metadata, before, problem, self._now()))
        return Outcome("problem", message=problem.message, again=PROBLEM_SECONDS)

    async def _write(self, metadata: Metadata, before: Status, status: Status) -> None:
        """Write a status that differs from the one that is there, and the events that tell of the difference."""
        if status == before:
            return
        body = _head(metadata) | {"status": status.model_dump(mode="json", by_alias=True, exclude_none=True)}
        await self._client.apply(DISAGGREGATED_INFERENCE, body, manager=STATUS_MANAGER, subresource="status")
        for event in events(before, status):
            await self._record(metadata, event)

    async def _record(self, metadata: Metadata, event: Event) -> None:
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata.name}.", "namespace": metadata.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:1024],
            "source": {"component": "disagg"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._client.create(EVENT, body, manager=STATUS_MANAGER)


def _status(raw: dict[str, Any]) -> Status:
    """The status that is there. One that does not fit the schema is as good as none: it is written anew."""
    try:
        return Status.model_validate(raw.get("status") or {})
    except ValidationError:
        return Status()


def _unsettled(before: Status, metadata: Metadata) -> bool:
    """Whether every kind of children must be looked at, whatever the events were about."""
    stalled = before.condition(ConditionType.STALLED)
    return before.observed_generation != metadata.generation or stalled is None or stalled.status == "True"


def _head(metadata: Metadata) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
    }
