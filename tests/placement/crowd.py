"""Scenes that act at once: a pod that takes a minute to end makes each of them slow, and none of them busy.

    @at_once(*EVERY)
    def test_something(scene: Scene) -> None: ...

    @unattended(*EVERY)
    def test_something_else(scene: Scene) -> Iterator[None]:
        ...    # with the operator
        yield
        ...    # without it
        yield
        ...    # and with it again

Each becomes a test for each way, which waits for its own scene and fails if that does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from e2e.cluster import Cluster
from e2e.operator_process import OperatorProcess, stop_recorded
from tests.placement.rest import Rest
from tests.placement.scene import AFFINITY, Scene, Way

Act = Callable[[Scene], None]
Acts = Callable[[Scene], Iterator[None]]

_SECONDS = 900.0
_AT_ONCE = 14
"""Scenes that are attended. More of them only wait for each other: the machine has two cores."""

_CLASSES = {"placement-low": 100, "placement-high": 1000}


def at_once(*ways: Way, slow: bool = False) -> Callable[[Act], Act]:
    """A test with a scene of its own, with the operator at work.

    Args:
        ways: How groups are kept together: a test for each.
        slow: Whether it takes minutes, and is better begun early.
    """
    return lambda act: _test(act, ways, kind="slow" if slow else "attended")


def unattended(*ways: Way) -> Callable[[Acts], Acts]:
    """A test with a scene of its own, during which the operator is away between the first `yield` and the second."""
    return lambda acts: _test(acts, ways, kind="unattended")


def _test(act: Any, ways: Iterable[Way], *, kind: str) -> Any:  # noqa: ANN401 - a function becomes another one
    def test(crowd: Crowd, way: Way) -> None:
        crowd.wait_for(act, way)

    test.__name__, test.__module__, test.__doc__ = act.__name__, act.__module__, act.__doc__
    test.__dict__.update(scenario=act, kind=kind)
    cases = [pytest.param(way, id=str(way)) for way in ways]
    return pytest.mark.timeout(_SECONDS)(pytest.mark.parametrize("way", cases)(test))


@dataclass
class Stage:
    """Two operators: one as it is by default, one that uses no PodGroups."""

    cluster: Cluster
    name: str
    arguments: tuple[str, ...] = ()
    operators: list[OperatorProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        for suffix, mode in (("", "auto"), ("-affinity", "off")):
            namespace = f"{self.name}{suffix}"
            self.cluster.kubectl("create", "namespace", namespace)
            arguments = (f"--namespace={namespace}", f"--pod-group={mode}", *self.arguments)
            self.operators.append(OperatorProcess(self.cluster, args=arguments, name=f"operator-{namespace}"))

    def namespace(self, way: Way) -> str:
        return f"{self.name}-affinity" if way == AFFINITY else self.name

    def start(self) -> None:
        for operator in self.operators:
            operator.start(wait=False)
        for operator in self.operators:
            operator.wait_ready()

    def stop(self) -> None:
        for operator in self.operators:
            operator.stop()


class Crowd:
    """All scenes of the selected tests. They begin with the first test that waits for one."""

    def __init__(self, cluster: Cluster, items: Iterable[pytest.Item], stack: ExitStack) -> None:
        stop_recorded(cluster)
        self.rest = Rest(cluster)
        self.cluster = cluster
        stack.callback(self.rest.close)
        self._futures: dict[tuple[Any, Way], Future[None]] = {}
        self._abandoned = Event()
        functions: list[tuple[Any, Any]] = [(getattr(item, "function", None), item) for item in items]
        chosen = [
            (
                function.scenario,
                function.kind,
                item.callspec.params["way"],
            )
            for function, item in functions
            if hasattr(function, "scenario")
        ]
        for name, value in _CLASSES.items():
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            self.rest.create("/apis/scheduling.k8s.io/v1/priorityclasses", body | {"value": value})
        alone = [(act, way) for act, kind, way in chosen if kind == "unattended"]
        others = sorted(
            (entry for entry in chosen if entry[1] != "unattended"), key=lambda entry: entry[1] != "slow"
        )
        if others:
            attended = self._stage("packing", stack)
            pool = ThreadPoolExecutor(_AT_ONCE)
            stack.callback(pool.shutdown, cancel_futures=True)
            for act, _, way in others:
                self._futures[act, way] = pool.submit(self._act, act, attended, way)
        if alone:
            away = self._stage("unattended", stack, "--resync-seconds=2")
            self._futures |= {entry: Future() for entry in alone}
            pool = stack.enter_context(ThreadPoolExecutor(1))
            pool.submit(self._leave, alone, away)
        stack.callback(self._abandoned.set)

    def wait_for(self, act: Any, way: Way) -> None:  # noqa: ANN401 - as it was registered
        self._futures[act, way].result()

    def _stage(self, name: str, stack: ExitStack, *arguments: str) -> Stage:
        stage = Stage(self.cluster, name, arguments)
        stack.callback(stage.stop)
        stage.start()
        return stage

    def _act(self, act: Act, stage: Stage, way: Way) -> None:
        scene = self._scene(stage, way)
        try:
            act(scene)
        except BaseException as error:
            error.add_note(scene.picture())
            raise

    def _leave(self, entries: list[tuple[Acts, Way]], stage: Stage) -> None:
        running: dict[tuple[Acts, Way], tuple[Scene, Iterator[None]]] = {}
        for act, way in entries:
            scene = self._scene(stage, way)
            running[act, way] = scene, act(scene)

        with ThreadPoolExecutor(len(entries)) as pool:
            for change in (stage.stop, stage.start, lambda: None):
                steps = {entry: pool.submit(next, acts, None) for entry, (_, acts) in running.items()}
                for entry, step in steps.items():
                    if (error := step.exception()) is not None:
                        error.add_note(running[entry][0].picture())
                        self._futures[entry].set_exception(error)
                        del running[entry]
                change()
        for entry in running:
            self._futures[entry].set_result(None)

    def _scene(self, stage: Stage, way: Way) -> Scene:
        return self.scene(stage.namespace(way), way)

    def scene(self, namespace: str, way: Way) -> Scene:
        """An empty scene."""
        return Scene(self.rest, f"s{secrets.token_hex(3)}", namespace, way, abandoned=self._abandoned)
