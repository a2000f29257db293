"""Entry point of `python -m e2e.images`."""

from e2e.images.cli import main

main()
