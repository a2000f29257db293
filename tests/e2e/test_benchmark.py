"""The benchmarks' accounting and random clusters, and a small run of each."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from e2e.benchmark.accounting import Requests, count
from e2e.benchmark.placement_trials import Amount, Pods, Shape, draw, is_possible
from e2e.cluster import AuditEvent
from e2e.cluster.cluster import REPOSITORY


def event(verb: str, target: str, name: str = "a", *, query: str = "", code: int = 200) -> AuditEvent:
    resource, _, subresource = target.partition("/")
    return AuditEvent(
        received=datetime(2026, 1, 1, tzinfo=UTC),
        stage="ResponseComplete",
        username="operator",
        user_agent="",
        verb=verb,
        path=f"/{resource}{query}",
        group="",
        resource=resource,
        subresource=subresource,
        namespace="default",
        name=name,
        code=code,
    )


def counted(*events: AuditEvent) -> Requests:
    return count(events)


def test_the_first_status_of_each_resource_is_a_write_and_later_ones_are_updates() -> None:
    status = "disaggregatedinferences/status"
    found = counted(*(event("patch", status, name) for name in ("a", "b", "a", "a")))
    assert (found.writes, found.status_updates) == (2, 2)


def test_children_and_events_are_writes_and_dry_runs_are_not() -> None:
    found = counted(
        event("patch", "deployments", query="?fieldManager=disagg&dryRun=All"),
        event("patch", "deployments", query="?fieldManager=disagg"),
        event("create", "events"),
    )
    assert (found.writes, found.dry_runs) == (2, 1)
    assert found.by_kind["patch deployments (dry run)"] == 1


def test_leases_and_watches_do_not_count() -> None:
    assert counted(event("update", "leases"), event("watch", "deployments")) == Requests()


def test_what_is_not_there_is_an_answer_and_a_refusal_is_a_failure() -> None:
    found = counted(event("get", "roles", code=404), event("patch", "roles", code=403))
    assert (found.reads, found.failed) == (1, 1)


def run(*arguments: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "e2e.benchmark", *arguments],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.cluster
def test_a_small_run_writes_its_result(tmp_path: Path) -> None:
    output = tmp_path / "operator.json"
    state = tmp_path / "state"
    run("operator", "--resources=3", "--idle-seconds=2", f"--output={output}", f"--state={state}")
    result = json.loads(output.read_text())
    assert result["resources"] == 3
    # Each child once, the first status, one event: no more, whatever the machine.
    assert result["writes_per_resource"] == result["children_per_resource"] + 2
    assert result["failed_requests"] == 0
    assert result["idle_writes"] == 0
    assert not state.exists()


def test_a_trial_is_drawn_again_and_one_of_its_racks_holds_its_group() -> None:
    trials = [draw(7, number, Shape()) for number in range(20)]
    assert trials == [draw(7, number, Shape()) for number in range(20)]
    assert len({trial.used for trial in trials}) == len(trials)
    assert all(trial.suitable for trial in trials)


def test_what_is_possible_depends_on_every_distribution_of_the_decode_pods() -> None:
    def pods(count: int, gpus: int) -> Pods:
        return Pods(count, Amount(gpus, 1, 1))

    free = [Amount(8, 96, 768), Amount(8, 96, 768)]
    # The two decode pods have to share a node.
    assert is_possible(free, pods(5, 2), pods(2, 3))
    assert not is_possible(free, pods(6, 2), pods(2, 3))
    # Sixteen GPUs are free, and no node has nine.
    assert not is_possible(free, pods(1, 1), pods(1, 9))
    assert not is_possible([Amount(8, 3, 768)], pods(2, 2), pods(2, 2))


@pytest.mark.cluster
def test_a_small_run_of_the_placement_writes_its_result(tmp_path: Path) -> None:
    output = tmp_path / "placement.json"
    state = tmp_path / "state"
    options = ("--trials=2", "--methods=ours", "--methods=plain", "--sizes=100")
    run("placement", *options, f"--output={output}", f"--state={state}")
    result = json.loads(output.read_text())
    methods = {"ours", "plain"}
    for measure in ("packed_percent", "whole_percent", "racks_average", "methods"):
        assert result[measure].keys() == methods
    assert all(result["methods"][method]["groups"] == 2 for method in methods)
    assert result["packed_percent"]["ours"] == 100, result["misses"]
    assert result["decision_cpu_ms"]["100"] > 0
    assert result["decisions"]["100"]["memory_mb"] > 0
    assert not state.exists()
