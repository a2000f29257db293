"""Commands that end with the program that runs them, however it ends, with all that they have started and mounted."""

from collections.abc import Sequence
from typing import Final

# The first takes down the second when this program dies. The third is the first process of its namespace: the kernel
# ends all others with it, and drops their mounts.
_PREFIX: Final = (
    *("setpriv", "--pdeathsig=KILL", "--"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"),
)


def ends_with_us(command: Sequence[str]) -> list[str]:
    """The command line that runs a command so.

    Args:
        command: The command; it needs root.
    """
    return [*_PREFIX, *command]
