"""Processes that do not outlive the one that starts them, however that ends."""

from collections.abc import Sequence


def bound(command: Sequence[str]) -> list[str]:
    """The same command, which the kernel kills when the thread that has started it ends."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *command]
