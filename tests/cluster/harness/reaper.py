"""Ends what a run leaves when it is itself ended from outside: `python -m tests.cluster.harness.reaper FOLDER`.

It waits on standard input for the end of the test process. Then everything goes that carries FOLDER in its environment:
the processes of nodes (LLMGW_DATA), engines (LLMGW_AGENT_DATA), the stores (HARNESS_FOLDER), and the folder itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from tests import processes

MARK = "HARNESS_FOLDER"


def pids(folder: str) -> set[int]:
    """Live processes of the cluster in this folder."""
    found = {
        pid
        for name in ("LLMGW_DATA", "LLMGW_AGENT_DATA")
        for pid in processes.with_environ(name, f"{folder}/", prefix=True)
    }
    return {*found, *processes.with_environ(MARK, folder)} - {os.getpid()}


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """A reaper for as long as the block lasts."""
    reaper = subprocess.Popen(
        [sys.executable, "-m", __spec__.name, str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:
        reaper.kill()
        reaper.communicate()


@contextmanager
def marked(folder: Path) -> Iterator[None]:
    """What is started in this block belongs to the cluster in this folder, whatever other cluster there is."""
    with mock.patch.dict(os.environ, {MARK: str(folder)}):
        yield


def main(folder: str) -> None:
    sys.stdin.buffer.read()  # until the other end is gone, however that came
    end = time.monotonic() + 10
    while (left := pids(folder)) and time.monotonic() < end:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
