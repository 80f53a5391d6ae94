"""A tethered program ends when its parent is killed."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import alive, wait_for

PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "llmgw_site.up.tether", str(os.getpid()), "sleep", "60"])
print(child.pid, flush=True)
time.sleep(60)
"""


def comm(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


def test_it_becomes_the_program_and_ends_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_for(lambda: comm(pid) == "sleep", what="the program to run")
        parent.kill()
    wait_for(lambda: not alive(pid), what="the tethered program to end")


def test_it_does_not_start_for_a_parent_that_is_gone_already() -> None:
    ended = subprocess.run([sys.executable, "-m", "llmgw_site.up.tether", "1", "sleep", "60"], timeout=60)
    assert ended.returncode == 1
