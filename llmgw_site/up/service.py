"""One service under the supervisor: started, found ready, started again when it dies, ended.

Each runs in a session of its own (Ctrl-C reaches the supervisor alone), tethered to the supervisor, with standard output
and error in `<data>/logs/<name>.log`, which is bounded.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from llmgw_site.lib import files
from llmgw_site.lib.units import MIB, format_seconds

PAUSES = (0.2, 0.5, 1.0, 2.0, 3.0)
"""Seconds before each start after a death; the last one again and again: nobody waits long for a gateway."""
WATCH_EVERY = 2.0
"""Seconds between two looks at a service that was ready."""
UNWELL = 20.0
"""Seconds without one good look, and at least UNWELL_LOOKS looks, after which a service is started anew: it hangs, or
the socket it listens on was taken away."""
UNWELL_LOOKS = 5
STEADY = 60.0
"""Seconds alive after which earlier deaths are forgotten."""
FIRST_TRIES = 2
"""Starts in a row that may fail before the whole `up` gives up, for a service that was never ready."""
LOG_BYTES = 8 * MIB
"""A log that grew beyond this becomes `<name>.log.1`, in place of the one before."""


def pause_after(deaths: int) -> float:
    """Seconds to wait after the n-th death in a row (1, 2, ...)."""
    return PAUSES[min(deaths, len(PAUSES)) - 1]


class StartFailed(Exception):
    """A service that never became ready; the text says which, why, and how its log ended."""


class Service:
    """`command` kept running; `ready` is a short blocking look, made in a thread; so is `well`, for later (else `ready`)."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        ready: Callable[[], bool],
        log: Path,
        environ: Mapping[str, str],
        say: Callable[[str], None],
        well: Callable[[], bool] | None = None,
        patience: float = 120.0,
        needed: bool = True,
    ) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self._command = command
        self._look, self._well = ready, well or ready
        self._log = log
        self._environ = environ
        self._say = say
        self._patience, self._needed = patience, needed
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._was_ready = False

    async def run(self) -> None:
        """Until `stop`. Raises StartFailed if one that is needed never became ready; else deaths are only pauses."""
        deaths = 0
        while not self._stopping:
            began = time.monotonic()
            self._process = process = await self._spawn()
            if self._stopping:  # stop() came while it was being started, and found nothing to end
                self._signal(process, signal.SIGKILL)
            watch = asyncio.create_task(self._until_ready(process, began))
            status = await process.wait()
            watch.cancel()
            self.ready.clear()
            self._signal(process, signal.SIGKILL)  # what it left of its own: a beat, pool processes
            if self._stopping:
                return
            deaths = 1 if time.monotonic() - began >= STEADY else deaths + 1
            why = _reason(status)
            if self._needed and not self._was_ready and deaths >= FIRST_TRIES:
                raise StartFailed(f"{self.name} does not start ({why}). The end of {self._log}:\n{tail(self._log)}")
            pause = pause_after(deaths)
            self._say(f"{self.name} ended ({why}); starting it again in {format_seconds(pause)}")
            await asyncio.sleep(pause)

    async def stop(self, patience: float) -> None:
        """Ask it to end; kill it and all of its session if it has not within `patience` seconds."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        try:
            process.terminate()
            async with asyncio.timeout(patience):
                await process.wait()
        except ProcessLookupError:
            return
        except TimeoutError:
            self._say(f"{self.name} did not end within {format_seconds(patience)}; killed")
        self.kill()

    def kill(self) -> None:
        """At once, with all of its session."""
        self._stopping = True
        if self._process is not None:
            self._signal(self._process, signal.SIGKILL)

    @property
    def pid(self) -> int | None:
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    async def _spawn(self) -> asyncio.subprocess.Process:
        bound_log(self._log)
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "llmgw_site.up.tether", str(os.getpid()), *self._command,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environ, start_new_session=True,
            )  # fmt: skip

    async def _until_ready(self, process: asyncio.subprocess.Process, began: float) -> None:
        told = began
        while not await asyncio.to_thread(self._look):
            now = time.monotonic()
            if now - began > self._patience:
                self._say(f"{self.name} is not ready after {format_seconds(now - began)}; it is ended")
                self._signal(process, signal.SIGKILL)
                return
            if now - told > 10:
                told = now
                self._say(f"still waiting for {self.name} ({format_seconds(now - began)})")
            await asyncio.sleep(0.05)
        self._was_ready = True
        self.ready.set()
        self._say(f"{self.name} ready in {format_seconds(time.monotonic() - began)}")
        await self._while_well(process)

    async def _while_well(self, process: asyncio.subprocess.Process) -> None:
        """Look on; end a service that has not answered for UNWELL seconds, so that it is started again."""
        well, missed = time.monotonic(), 0
        while missed < UNWELL_LOOKS or time.monotonic() - well < UNWELL:
            await asyncio.sleep(WATCH_EVERY)
            if await asyncio.to_thread(self._well):
                well, missed = time.monotonic(), 0
            else:
                missed += 1
        self._say(f"{self.name} has not answered for {format_seconds(time.monotonic() - well)}; it is ended")
        self._signal(process, signal.SIGKILL)

    def _signal(self, process: asyncio.subprocess.Process, sign: int) -> None:
        try:
            os.killpg(process.pid, sign)  # its session's group; empty once all are gone
        except (ProcessLookupError, PermissionError):
            pass


def _reason(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log, indented."""
    try:
        with path.open(errors="replace") as file:
            return "\n".join(f"    {line.rstrip()}" for line in deque(file, lines))
    except OSError:
        return "    (no log)"


def bound_log(path: Path, limit: int = LOG_BYTES) -> None:
    """Keep a log that a process has open for appending within bounds: copied aside and cut, since it cannot be renamed."""
    files.private_folder(path.parent)
    try:
        if path.stat().st_size <= limit:
            return
    except FileNotFoundError:
        path.touch(mode=0o600)
        return
    aside = path.with_name(f"{path.name}.1")
    with suppress(OSError):  # a full disk: what finds no room is lost, or the log would fill it for ever
        shutil.copyfile(path, aside)
        aside.chmod(0o600)
    os.truncate(path, 0)
