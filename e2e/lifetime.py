"""Commands that do not outlive the program that runs them, however that ends."""

from collections.abc import Sequence


def bound(command: Sequence[str]) -> list[str]:
    """The same command, which the kernel kills when the thread that has started it ends."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *command]


def bound_with_all(command: Sequence[str]) -> list[str]:
    """The same, with all that the command has started and mounted; it needs root.

    It is the first process of its namespace: the kernel ends all others with it, and drops their mounts.
    """
    return bound(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--", *command]
    )
