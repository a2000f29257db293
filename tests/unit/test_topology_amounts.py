"""Quantities, and what a pod takes of a node by the rule of the kube-scheduler."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from disagg.topology.amounts import Amounts, add, freeze, parse, pod_requests


@pytest.mark.parametrize(
    ("quantity", "thousandths"),
    [
        ("1", 1000),
        (2, 2000),
        (0.5, 500),
        ("100m", 100),
        ("1n", 1),
        ("1500u", 2),
        ("1.5", 1500),
        (".5", 500),
        ("2.", 2000),
        ("1Ki", 1024_000),
        ("1.5Gi", 3 * 2**29 * 1000),
        ("2k", 2_000_000),
        ("1E", 10**21),
        ("1E3", 1_000_000),
        ("1e-3", 1),
        ("-1", -1000),
    ],
)
def test_a_quantity_is_rounded_up_to_thousandths(quantity: str | float, thousandths: int) -> None:
    assert parse({"cpu": quantity}) == {"cpu": thousandths}


@given(
    st.decimals(0, 10**9, places=3).map(str),
    st.sampled_from(["", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]),
)
def test_quantities_are_read_as_the_client_reads_them(number: str, suffix: str) -> None:
    exact = parse_quantity(number + suffix) * 1000
    assert 0 <= parse({"cpu": number + suffix})["cpu"] - exact < 1


@pytest.mark.parametrize("quantity", ["", "one", "1Qi", "1 Gi", "--1"])
def test_what_is_no_quantity_is_refused(quantity: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse({"cpu": quantity})


def test_equal_amounts_share_one_value() -> None:
    assert freeze({"b": 1, "a": 2}) is freeze({"a": 2, "b": 1})


def test_what_becomes_zero_leaves_a_sum() -> None:
    total: Amounts = {"cpu": 2, "memory": 1}
    add(total, (("cpu", 1), ("gpu", 1)), times=-2)
    assert total == {"memory": 1, "gpu": -2}


def container(cpu: str | None = None, *, limit: str | None = None) -> dict[str, Any]:
    resources = {
        kind: {"cpu": value} for kind, value in (("requests", cpu), ("limits", limit)) if value is not None
    }
    return {"name": "c", "resources": resources}


def sidecar(cpu: str) -> dict[str, Any]:
    return container(cpu) | {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "millicores"),
    [
        ({"containers": [container("1"), container("500m")]}, 1500),
        ({"containers": [container(limit="2")]}, 2000),
        ({"containers": [container("1", limit="2")]}, 1000),
        ({"containers": [container("1")], "initContainers": None}, 1000),
        # An ordinary init container runs alone: only the greatest counts.
        ({"containers": [container("1")], "initContainers": [container("3"), container("2")]}, 3000),
        ({"containers": [container("4")], "initContainers": [container("3"), container("2")]}, 4000),
        # One that restarts goes on running beside the containers ...
        ({"containers": [container("1")], "initContainers": [sidecar("2")]}, 3000),
        # ... and beside the init containers that follow it, not those before it.
        ({"containers": [container("1")], "initContainers": [sidecar("2"), container("3")]}, 5000),
        ({"containers": [container("1")], "initContainers": [container("3"), sidecar("2")]}, 3000),
        (
            {"containers": [container("1")], "initContainers": [sidecar("1"), container("4"), sidecar("5")]},
            7000,
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
        (
            {"containers": [container("1")], "initContainers": [container("3")], "overhead": {"cpu": "1"}},
            4000,
        ),
        # What the pod asks for as a whole replaces its containers' sum, not the overhead.
        (
            {
                "containers": [container("1")],
                "resources": {"requests": {"cpu": "8"}},
                "overhead": {"cpu": "1"},
            },
            9000,
        ),
        ({"containers": [container("1")], "resources": {"limits": {"cpu": "8"}}}, 1000),
        ({"containers": [container()], "resources": {"limits": {"cpu": "8"}}}, 8000),
    ],
)
def test_a_pod_takes_what_the_scheduler_counts(spec: dict[str, Any], millicores: int) -> None:
    assert pod_requests(spec) == {"cpu": millicores, "pods": 1000}


def test_devices_are_asked_for_by_containers_alone() -> None:
    devices = {"limits": {"nvidia.com/gpu": 4}}
    spec = {
        "containers": [{"name": "c", "resources": devices}],
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    assert pod_requests(spec)["nvidia.com/gpu"] == 4000


def test_a_pod_without_requests_takes_its_place_only() -> None:
    assert pod_requests({"containers": [{"name": "c"}, container("0")]}) == {"pods": 1000}


@pytest.mark.parametrize(
    ("status", "millicores"),
    [
        ({}, 2000),
        ({"containerStatuses": [{"name": "c"}]}, 2000),
        ({"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}, 2000),
        ({"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}, 3000),
        ({"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "4"}}]}, 4000),
        (
            {
                "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}],
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
            },
            1000,
        ),
    ],
)
def test_a_resized_pod_takes_the_greater_amount_until_the_resize_is_done(
    status: dict[str, Any], millicores: int
) -> None:
    assert pod_requests({"containers": [container("2")]}, status)["cpu"] == millicores
