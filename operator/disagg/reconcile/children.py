"""Reads and changes the children of a resource: **read** and **apply** of event -> key -> read -> ... -> status."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from disagg.api.names import FIELD_MANAGER, MANAGED_BY, MANAGED_BY_LABEL, NAME_LABEL, SEED_MANAGER, child_name
from disagg.api.resource import DisaggregatedInference
from disagg.api.status import Reason
from disagg.assess.problem import Problem
from disagg.build.objects import outgoing
from disagg.cluster.client import Client
from disagg.cluster.errors import ApiError, RejectedError
from disagg.decide.decisions import Decisions
from disagg.decide.observed import ObjectKey, Observed, key_of
from disagg.reconcile import compare
from disagg.reconcile.kinds import AUTOSCALER, CHILD_KINDS, DEPLOYMENT

Object = dict[str, Any]


class ProblemError(Exception):
    """Something is in the way. As a rule it was seen in time, and nothing was changed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(frozen=True)
class _Update:
    desired: Object
    live: Object | None


@dataclass
class Children:
    """The children of one resource.

    Attributes:
        client: The API server.
        unchanged: Memory from pass to pass: uid of a child -> fingerprints of it and of what was wanted of it, for
            which the API server has said that applying changes nothing.
    """

    client: Client
    unchanged: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)

    async def read(self, namespace: str, name: str, kinds: Iterable[str]) -> Observed:
        """The live children of `kinds` of the resource `name`."""
        labels = {MANAGED_BY_LABEL: MANAGED_BY, NAME_LABEL: name}
        lists = await asyncio.gather(
            *(self.client.list_objects(CHILD_KINDS[kind], namespace, labels=labels) for kind in sorted(kinds))
        )
        return Observed(name, {key_of(obj): obj for objects in lists for obj in objects})

    async def change(
        self,
        resource: DisaggregatedInference,
        desired: list[Object],
        decisions: Decisions,
        observed: Observed,
    ) -> tuple[Observed, list[str]]:
        """Make the children what they are to be.

        Everything is checked before anything is changed: a resource that cannot be had whole leaves what runs alone.

        Args:
            resource: The resource.
            desired: What its children of the observed kinds are to be, in the order of application.
            decisions: For the seeds.
            observed: What they are.

        Returns:
            What was observed, brought up to date, and what was changed, such as `apply Deployment/llama-decode`.

        Raises:
            ProblemError: A name is taken, a count is contended, or the API server refuses an object. Nothing was
                changed, unless it refuses what it took in the trial, or what needed none.
            ApiError: A request failed.
        """
        updates = await self._checked(resource, desired, observed)
        changed: list[str] = []
        children = dict(observed.children)
        wanted = {key_of(obj) for obj in desired} | outgoing(observed, decisions)
        wanted |= {
            (kind, child_name(resource.metadata.name, workload))
            for workload in decisions.held
            for kind in (DEPLOYMENT.kind, AUTOSCALER.kind)
        }
        for key in _surplus(resource, observed, wanted):
            live = children.pop(key)
            if "deletionTimestamp" not in live["metadata"]:
                await self._delete(live)
                changed.append(f"delete {'/'.join(key)}")
        for workload, decision in decisions.workloads.items():
            deployment = observed.deployment(workload)
            if decision.seed is not None and deployment is not None:
                await self._seed(deployment, decision.seed)
                changed.append(f"seed {deployment['metadata']['name']}={decision.seed}")
        for update in updates:
            key = key_of(update.desired)
            try:
                children[key] = await self._apply(update)
            except RejectedError as error:
                raise ProblemError(
                    Problem(Reason.REJECTED, f"{key[0]} {key[1]} is refused: {error}")
                ) from error
            changed.append(f"apply {'/'.join(key)}")
        return replace(observed, children=children), changed

    async def _checked(
        self, resource: DisaggregatedInference, desired: list[Object], observed: Observed
    ) -> list[_Update]:
        updates = [
            _Update(obj, live)
            for obj in desired
            if (live := observed.children.get(key_of(obj))) is None or self._may_differ(obj, live)
        ]
        updates = list(await asyncio.gather(*(self._located(resource, update) for update in updates)))
        refused = [message for update in updates if (message := _foreign(resource, update))]
        if refused:
            raise ProblemError(Problem(Reason.NAME_CONFLICT, "; ".join(refused)))
        if refused := await self._contended(resource, updates):
            raise ProblemError(Problem(Reason.REPLICAS_CONTENDED, "; ".join(refused)))
        unchecked = resource.spec.has_unchecked_fields
        answers = await asyncio.gather(
            *(self._tried(update, carries_unchecked=unchecked) for update in updates)
        )
        refused = [answer for answer in answers if isinstance(answer, str)]
        if refused:
            raise ProblemError(Problem(Reason.REJECTED, "; ".join(refused)))
        return [update for update, answer in zip(updates, answers, strict=True) if answer is True]

    async def _contended(self, resource: DisaggregatedInference, updates: list[_Update]) -> list[str]:
        """Autoscalers of somebody else's for a count that the resource sets: each would undo the other, for ever."""
        contended = {
            update.desired["metadata"]["name"]
            for update in updates
            if update.desired["kind"] == DEPLOYMENT.kind
            and update.live is not None
            and compare.is_autoscaled(update.desired, update.live)
        }
        if not contended:
            return []
        autoscalers = await self.client.list_objects(AUTOSCALER, resource.metadata.namespace, labels={})
        return [
            f"HorizontalPodAutoscaler {autoscaler['metadata']['name']} sets the replicas of Deployment {target['name']},"
            " and so does this resource: delete the autoscaler, or take the role's replicas out of the resource"
            for autoscaler in autoscalers
            if not compare.is_owned(autoscaler, resource)
            and (target := autoscaler["spec"]["scaleTargetRef"])["kind"] == DEPLOYMENT.kind
            and target["name"] in contended
        ]

    def _may_differ(self, desired: Object, live: Object) -> bool:
        if "deletionTimestamp" in live["metadata"]:
            # It cannot be had back; its successor is made when it is gone.
            return False
        if compare.in_sync(desired, live):
            return False
        known = self.unchanged.get(live["metadata"]["uid"])
        return known != (compare.fingerprint(live), compare.fingerprint(desired))

    async def _located(self, resource: DisaggregatedInference, update: _Update) -> _Update:
        """Look whether a child that the labels did not find is there all the same."""
        if update.live is not None:
            return update
        kind, name = key_of(update.desired)
        return replace(
            update, live=await self.client.get(CHILD_KINDS[kind], resource.metadata.namespace, name)
        )

    async def _tried(self, update: _Update, *, carries_unchecked: bool) -> bool | str:
        """Whether applying changes anything, or the API server's refusal.

        A new object needs no trial, unless it carries what the resource's own schema could not check.
        """
        desired, live = update.desired, update.live
        kind, name = key_of(desired)
        if live is None and not (kind == DEPLOYMENT.kind and carries_unchecked):
            return True
        try:
            answer = await self.client.apply(CHILD_KINDS[kind], desired, manager=FIELD_MANAGER, dry_run=True)
        except RejectedError as error:
            return f"{kind} {name} is refused: {error}"
        if (
            live is None
            or compare.is_undone(live)
            or compare.fingerprint(answer) != compare.fingerprint(live)
        ):
            return True
        self.unchanged[live["metadata"]["uid"]] = (compare.fingerprint(live), compare.fingerprint(desired))
        return False

    async def _apply(self, update: _Update) -> Object:
        kind, _ = key_of(update.desired)
        applied = await self.client.apply(CHILD_KINDS[kind], update.desired, manager=FIELD_MANAGER)
        if kind == DEPLOYMENT.kind and compare.is_undone(applied):
            metadata = applied["metadata"]
            applied = await self.client.json_patch(
                DEPLOYMENT,
                metadata["namespace"],
                metadata["name"],
                compare.take_back(applied),
                manager=FIELD_MANAGER,
            )
        return applied

    async def _seed(self, deployment: Object, replicas: int) -> None:
        metadata = {key: deployment["metadata"][key] for key in ("name", "namespace", "uid")}
        seed = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"replicas": replicas},
        }
        await self.client.apply(DEPLOYMENT, seed, manager=SEED_MANAGER)

    async def _delete(self, live: Object) -> None:
        kind, name = key_of(live)
        metadata = live["metadata"]
        self.unchanged.pop(metadata["uid"], None)
        await self.client.delete(CHILD_KINDS[kind], metadata["namespace"], name, uid=metadata["uid"])


def _surplus(resource: DisaggregatedInference, observed: Observed, wanted: set[ObjectKey]) -> list[ObjectKey]:
    """Children that are not wanted any more. Autoscalers first: they would go on moving what is applied next."""
    surplus = [
        key
        for key, live in observed.children.items()
        if key not in wanted and compare.is_owned(live, resource)
    ]
    return sorted(surplus, key=lambda key: key[0] != "HorizontalPodAutoscaler")


def _foreign(resource: DisaggregatedInference, update: _Update) -> str | None:
    if update.live is None or compare.is_ours(update.live, resource):
        return None
    kind, name = key_of(update.desired)
    return f"{kind} {name} exists and is not this resource's: delete or rename it, or rename the resource"


def forbidden(error: ApiError) -> Problem:
    """The problem of a right that the operator lacks, or of an admission policy or quota that is in the way."""
    if " cannot " in str(error):
        return Problem(Reason.FORBIDDEN, f"the operator lacks a right: {error}")
    return Problem(Reason.REJECTED, f"a quota or an admission policy forbids it: {error}")
