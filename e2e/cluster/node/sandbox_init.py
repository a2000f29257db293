"""The first process in the namespaces of a cluster: it reaps what others leave, and when it ends, all of them end.

Started by `sandbox`, with the standard library only. Its argument is how it is found again:

    python sandbox_init.py STATE_FOLDER
"""

import signal

if __name__ == "__main__":
    # Then the kernel reaps every orphan, such as the shims of containers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        signal.pause()
