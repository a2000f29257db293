"""`python3 -m sglang.launch_server` starts the stand-in, as SGLang."""

import os
import sys

from disagg.engine_sim.main import main

if __name__ == "__main__":
    additional = os.environ.get("DISAGG_SIM_ARGS", "").split()
    sys.exit(main(["--dialect", "sglang", *sys.argv[1:], *additional]))
