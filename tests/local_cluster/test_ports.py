"""Ports: free, and nobody else's."""

import socket
from pathlib import Path

import pytest

from e2e.cluster import ports as module
from e2e.cluster.errors import ClusterError
from e2e.cluster.ports import LOOPBACK, claimed_ports


def test_claims_do_not_overlap(tmp_path: Path) -> None:
    with claimed_ports(tmp_path) as first, claimed_ports(tmp_path) as second:
        assert not set(first.all()) & set(second.all())
    with claimed_ports(tmp_path) as third:
        assert third == first


def test_a_port_in_use_is_passed_over(tmp_path: Path) -> None:
    with claimed_ports(tmp_path) as free:
        pass
    with socket.create_server((LOOPBACK, free.scheduler)), claimed_ports(tmp_path) as other:
        assert free.scheduler not in other.all()


def test_no_free_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST", module._FIRST)  # noqa: SLF001
    with pytest.raises(ClusterError, match="no free ports"), claimed_ports(tmp_path):
        pass
