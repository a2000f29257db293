"""`python -m disagg.engine_sim`."""

from __future__ import annotations

import sys

from disagg.engine_sim.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
