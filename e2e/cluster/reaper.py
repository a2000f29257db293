"""Takes a cluster down when the process that owns it dies, however it dies.

The owner holds the other end of this program's standard input and never writes to it: the end of the input is the
owner's death, SIGKILL included. Run as a script, with the standard library only, so that waiting costs little:

    python reaper.py STATE_FOLDER
"""

import os
import sys

if __name__ == "__main__":
    sys.stdin.buffer.read()
    command = [sys.executable, "-m", "e2e.cluster", "down", "--state", sys.argv[1]]
    os.execv(command[0], command)  # noqa: S606
