"""Waits for what another process does."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from e2e.cluster.errors import WaitError

_T = TypeVar("_T")

_POLL_SECONDS: Final = 0.05


def wait_until(goal: str, reached: Callable[[], _T], *, seconds: float = 60.0) -> _T:
    """Ask again and again until the answer is yes.

    Args:
        goal: What is waited for, to follow "until" in the error.
        reached: The question; any true value is a yes.
        seconds: How long to wait at most.

    Returns:
        The first true value.

    Raises:
        WaitError: If there was none in time.
    """
    deadline = time.monotonic() + seconds
    while not (answer := reached()):
        if time.monotonic() >= deadline:
            raise WaitError(f"waited {seconds:.0f} s in vain until {goal}")
        time.sleep(_POLL_SECONDS)
    return answer
