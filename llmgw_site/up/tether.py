"""Run a program that is asked to end (SIGTERM) when its parent is gone, however the parent ended: prctl(2).

    python -m llmgw_site.up.tether PARENT_PID PROGRAM ARGS...

Without it the services of a supervisor that was killed would go on and hold the ports of the next one. Engines are not
tethered: they outlive everything and are adopted again.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Tie this process to its parent, then become the program (the tie survives execve)."""
    parent, program = int(argv[0]), argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it was gone before the tie held
        raise SystemExit(1)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
