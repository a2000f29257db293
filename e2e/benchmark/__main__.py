"""`python -m e2e.benchmark`."""

from e2e.benchmark.cli import main

main()
