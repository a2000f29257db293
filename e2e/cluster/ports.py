"""Ports for the listeners of a cluster, safe against clusters that start at the same moment.

None of the components can inherit an open socket, so between choosing a port and listening on it there is a gap.
Two things close it: the ports lie outside the range from which the kernel hands out ports by itself, and a block of
them is claimed by a file lock, which the starting process holds until the components listen (and which the kernel
frees if that process dies).
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from e2e.cluster.errors import ClusterError

LOOPBACK: Final = "127.0.0.1"

# Linux gives ephemeral ports from 32768 on.
_FIRST: Final = 21000
_LAST: Final = 31000
_BLOCK: Final = 10


@dataclass(frozen=True)
class Ports:
    """The ports of one cluster, all on loopback."""

    etcd_client: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int

    @classmethod
    def from_block(cls, base: int) -> "Ports":
        """The ports in the block that starts at `base`."""
        return cls(*range(base, base + 5))

    def all(self) -> tuple[int, ...]:
        """Every port."""
        return (self.etcd_client, self.etcd_peer, self.apiserver, self.controller_manager, self.scheduler)


@contextmanager
def claimed_ports(claims: Path) -> Iterator[Ports]:
    """Claim free ports for as long as the block runs.

    Args:
        claims: Folder of the claims, shared by all clusters of this user.

    Yields:
        Ports on which nothing listened, and that no other cluster of this user will take meanwhile.

    Raises:
        ClusterError: If every block is taken.
    """
    claims.mkdir(parents=True, exist_ok=True)
    with ExitStack() as claim:
        for base in range(_FIRST, _LAST, _BLOCK):
            try:
                claim.enter_context(FileLock(claims / f"{base}.lock", timeout=0))
            except Timeout:
                continue
            ports = Ports.from_block(base)
            if all(map(_is_free, ports.all())):
                break
            claim.close()
        else:
            raise ClusterError(f"no free ports on {LOOPBACK} between {_FIRST} and {_LAST}")
        yield ports


def _is_free(port: int) -> bool:
    # Without SO_REUSEADDR a port with connections in TIME_WAIT counts as taken: a new cluster then never meets
    # the clients of an old one.
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
