"""What can go wrong with a local cluster, as messages that a person can act on.

Everything that this package raises on purpose is a `ClusterError`; the command line prints its text and nothing
else.
"""

from collections.abc import Sequence


class ClusterError(Exception):
    """Base of all errors of the local cluster; its text is written for the person at the terminal."""


class ToolchainError(ClusterError):
    """The Go toolchain is missing or too old."""


class BuildError(ClusterError):
    """A binary could not be built; the text ends with the compiler's last lines and the path of the full log."""


class ComponentError(ClusterError):
    """A control plane process ended while the cluster started; the text carries the end of its log."""


class WaitError(ClusterError):
    """Something did not happen in time."""


class CommandError(ClusterError):
    """A kubectl or helm call failed.

    Attributes:
        command: The command line as it was run, without the path of the binary.
        returncode: Its exit status.
        stdout: What it wrote to standard output before it failed.
        stderr: What it wrote to standard error.
    """

    def __init__(self, command: Sequence[str], returncode: int, stdout: str, stderr: str) -> None:
        super().__init__(f"`{' '.join(command)}` ended with status {returncode}: {stderr.strip()}")
        self.command = tuple(command)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
