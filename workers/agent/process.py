"""Engine processes: detached children that outlive the agent, found again by their environment, watched by pidfd.

Each child carries LLMGW_REPLICA_ID and LLMGW_AGENT_DATA in its environment, so one that was started a moment before a
crash is never an orphan. A process is the same one only if pid and start time agree. Sources: pidfd_open(2), proc(5).
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPLICA, DATA = "LLMGW_REPLICA_ID", "LLMGW_AGENT_DATA"
PASSED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES",
     "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_HOME",
     "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}
)  # fmt: skip
"""All that an engine inherits from the agent's environment; secrets of the node stay here."""
EXEC = 0.5
"""Seconds: so long at most a process is waited for that is just becoming another program."""
EXITING = 0x4
"""Among a process's flags: it is ending. Source: PF_EXITING, include/linux/sched.h."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A live process that one of our agents started as an engine."""

    pid: int
    start_time: int  # clock ticks since boot: field 22 of /proc/PID/stat
    replica_id: str


class Child:
    """One engine process and its group. `exited()` is true as soon as `pidfd` is readable."""

    def __init__(self, pid: int, start_time: int, popen: subprocess.Popen[bytes] | None = None) -> None:
        self.pid, self.start_time, self._popen = pid, start_time, popen
        self.pidfd = os.pidfd_open(pid)
        if popen is None and start_time_of(pid) != start_time:
            os.close(self.pidfd)
            raise ProcessLookupError(pid)

    def send(self, number: int) -> None:
        """Signal the whole group; the leader through its pidfd, which cannot hit another process."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def reap(self) -> int | None:
        """After the end: exit status (negative: signal; None: not our child), with nobody of the group left."""
        if self._popen is not None or start_time_of(self.pid) in (
            None,
            self.start_time,
        ):  # else the pid is another's now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.close(self.pidfd)
        return self._popen.wait() if self._popen is not None else None

    def forget(self) -> None:
        """Leave the process alone; the agent ends."""
        os.close(self.pidfd)
        if self._popen is not None:
            self._popen.returncode = 0  # no "still running" warning: that it runs is the point


def spawn(
    argv: tuple[str, ...], *, env: Mapping[str, str], replica_id: str, data: Path, cwd: Path, log: int, file_limit: int
) -> Child:
    """Start an engine in a session of its own, with nothing inherited but what PASSED names. Raises OSError.

    file_limit: bytes that its files may have, so that its log is bounded while no agent runs; 0: no bound.
    """
    clean = {name: value for name, value in os.environ.items() if name in PASSED or name.startswith("LC_")}
    popen = subprocess.Popen(
        argv,
        env={**clean, **env, REPLICA: replica_id, DATA: str(data)},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        close_fds=True,
        restore_signals=False,  # SIGXFSZ stays ignored: at the bound a write fails instead of killing the engine
    )
    if file_limit:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(popen.pid, resource.RLIMIT_FSIZE, (file_limit, file_limit))
    try:
        return Child(popen.pid, start_time_of(popen.pid) or 0, popen)
    except OSError:  # no descriptor left to watch it by: nobody would ever end it
        popen.kill()
        popen.wait()
        raise


def start_time_of(pid: int) -> int | None:
    """Clock ticks since boot at which `pid` started; None: there is no such process, or only its corpse."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def environ_of(pid: int) -> list[bytes]:
    """`NAME=value` of a process as it was started. Raises OSError: there is none, it is ending, or it is another user's.

    For some milliseconds of an exec (20 on a busy machine, and Popen returns within them) the kernel shows neither
    arguments nor environment: what shows neither and lives is looked at again. Older kernels show neither of one that ends,
    too, which takes an engine seconds, while its cards are given back. Source: fs/exec.c, fs/proc/base.c, proc(5).
    """
    end = time.monotonic() + EXEC
    folder = Path(f"/proc/{pid}")
    while True:
        environ = (folder / "environ").read_bytes()
        if environ or (folder / "cmdline").read_bytes() or time.monotonic() > end:
            return environ.split(b"\0")
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        if fields[0] in "ZX" or int(fields[6]) & EXITING:
            raise ProcessLookupError(f"process {pid} is ending")
        time.sleep(0.001)


def marked(pid: int, data: Path) -> bool | None:
    """Whether a process, or one that it came from, was started as an engine of this data folder; None: there is no such
    process here. One of another user is none of ours."""
    try:
        return f"{DATA}={data}".encode() in environ_of(pid)
    except PermissionError:
        return False
    except OSError:
        return None


def replica_of(pid: int) -> str:
    """Id of the replica whose engine a process belongs to; empty if it cannot be known."""
    try:
        return _replica_in(environ_of(pid))
    except OSError:
        return ""


def _replica_in(environ: list[bytes]) -> str:
    mark = f"{REPLICA}=".encode()
    return next((item[len(mark) :].decode(errors="replace") for item in environ if item.startswith(mark)), "")


def find(data: Path) -> list[Found]:
    """Live engines of this data folder: session leaders of our user that carry its marks."""
    found = []
    mark, me = f"{DATA}={data}".encode(), os.getuid()
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        pid = int(entry.name)
        try:
            if entry.stat().st_uid != me or os.getsid(pid) != pid:
                continue
            environ = environ_of(pid)
        except OSError:
            continue
        if mark not in environ:
            continue
        replica, start_time = _replica_in(environ), start_time_of(pid)
        if replica and start_time is not None:
            found.append(Found(pid=pid, start_time=start_time, replica_id=replica))
    return found
