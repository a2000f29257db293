"""Tells what a demo does, step by step: a spinner on a terminal, then a line with what came of it and how long it took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


@contextmanager
def step(console: Console, name: str, doing: str) -> Iterator[Callable[[str], None]]:
    """A step of a demo.

    Args:
        console: Where it is told.
        name: Its name, one word.
        doing: What is done, while it is.

    Yields:
        Takes what has been done, in words.
    """
    started = time.monotonic()
    results: list[str] = []
    spinner = console.status(f"{name}: {doing}") if console.is_terminal else None
    try:
        if spinner:
            spinner.start()
        yield results.append
    finally:
        if spinner:
            spinner.stop()
    elapsed = f"{time.monotonic() - started:.1f} s"
    console.print(
        Text.assemble(("✓ ", "green"), f"{name:9}", " ".join(results), (f"  {elapsed}", "dim")),
        soft_wrap=True,
    )
