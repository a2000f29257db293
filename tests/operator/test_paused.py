from __future__ import annotations

import pytest

from e2e.cluster import wait_until
from tests.operator.kube import Kube, manifest

pytestmark = pytest.mark.usefixtures("operator")


def paused(kube: Kube) -> None:
    kube.apply(manifest())
    kube.ready()
    kube.patch("llama", {"paused": True})
    kube.wait_for("llama", "Paused", reason="Paused")


def test_a_paused_resource_says_so_and_stays_ready(kube: Kube) -> None:
    paused(kube)
    kube.ready()
    assert kube.condition("llama", "Reconciling")["reason"] == "Paused"


def test_nothing_is_changed_while_paused(kube: Kube) -> None:
    paused(kube)
    kube.run("scale", "deployment/llama-router", "--replicas=3")
    kube.run("delete", "service", "llama-decode")
    kube.patch("llama", {"decode": {"image": "other:v1"}})
    kube.wait_for("llama", "Paused", reason="Paused")
    assert kube.replicas("llama-router") == 3
    assert kube.find("service", "llama-decode") is None
    assert "other" not in str(kube.get("deployment", "llama-decode")["spec"])


def test_resuming_makes_up_for_all_of_it(kube: Kube) -> None:
    paused(kube)
    kube.run("delete", "service", "llama-decode")
    kube.patch("llama", {"decode": {"replicas": 2}})
    kube.patch("llama", {"paused": False})
    wait_until("the Service", lambda: kube.find("service", "llama-decode"))
    kube.ready()
    assert kube.replicas("llama-decode") == 2
    assert kube.condition("llama", "Paused")["status"] == "False"
