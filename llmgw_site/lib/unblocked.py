"""Lines to a descriptor whose reader may stall, such as standard error: what it does not take is kept, up to a bound; what is
beyond that is dropped and counted.

An event loop must not wait for whoever reads its log. O_NONBLOCK would say so, but it belongs to the open file behind the
descriptor, and that is the parent's and the siblings', too: their writes would begin to fail. So it is left alone:

1. a socket (systemd's journal)   is sent to with MSG_DONTWAIT, which holds for the one call
2. a pipe, a terminal             is opened anew through /proc: an open file of our own, which does not wait
3. where that is not allowed      poll(2) is asked before each write; it may still wait where another process fills the pipe
                                  in between
4. a file                         is written to: nobody reads it who could stall
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import time
from collections.abc import Callable
from threading import RLock

PIPE_BUF = select.PIPE_BUF
"""Bytes that a pipe takes as a whole or not at all."""
MOST = 1 << 20
"""Bytes that are kept: some 2,000 lines. A reader that is only late loses nothing."""
_OWN = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Send = Callable[[bytes], int]


class Unblocked:
    """What is written to `fd`. A stream for `logging`, too. Opened with the first line; any thread may write.

    What was kept goes out with the next line, or by `flush`; `most`: bytes of it.
    """

    def __init__(self, fd: int = 2, *, most: int = MOST) -> None:
        self.dropped = 0
        """Lines."""
        self._fd = fd
        self._most = most
        self._send: Send | None = None
        self._close: Callable[[], None] | None = None
        self._kept = bytearray()
        self._sending = False
        self._lock = RLock()  # the collector may find, while a line is written, what has one of its own to say

    def take(self, lines: bytes) -> None:
        """A line, or several of them that a pipe takes at once (PIPE_BUF); each with its end."""
        with self._lock:
            if self._kept:
                self._flush()
            place = len(self._kept)  # before all that comes meanwhile
            sent = 0 if self._kept else self._sent(lines)
            if sent == len(lines):
                return
            if sent or len(self._kept) + len(lines) <= self._most:
                self._kept[place:place] = lines[sent:]
            else:
                self.dropped += lines.count(b"\n")

    def write(self, text: str) -> None:
        self.take(text.encode(errors="backslashreplace"))

    def flush(self) -> None:
        if self._kept:
            with self._lock:
                self._flush()

    def drain(self, seconds: float) -> None:
        """Wait at most so long for a reader that is late: for the end of a process, when nothing else is held up."""
        poll, until = select.poll(), time.monotonic() + seconds
        poll.register(self._fd, select.POLLOUT)
        while (before := len(self._kept)) and (left := until - time.monotonic()) > 0 and poll.poll(1000 * left):
            self.flush()
            if len(self._kept) == before:  # there is no reader any more
                return

    def close(self) -> None:
        """Whatever was opened for it; `fd` itself stays open, and a later line opens anew."""
        with self._lock:
            self._flush()
            self._send = None
            if self._close is not None:
                self._close()
                self._close = None

    def _flush(self) -> None:
        """Whole lines, as many as a pipe takes at once: nobody else's comes in between."""
        kept = self._kept
        while kept:
            end = kept.rfind(b"\n", 0, PIPE_BUF) + 1 or min(len(kept), PIPE_BUF)
            sent = self._sent(bytes(kept[:end]))
            del kept[:sent]
            if sent < end:
                return

    def _sent(self, data: bytes) -> int:
        """How many of these bytes were taken; of a line that comes in between, none yet."""
        if self._sending:
            return 0
        self._sending = True
        try:
            if self._send is None:
                self._send = self._opened()
            return self._send(data)
        except OSError:  # full, or closed
            return 0
        finally:
            self._sending = False

    def _opened(self) -> Send:
        """The way of the module's list that fits. Raises OSError where `fd` is closed."""
        mode = os.fstat(self._fd).st_mode
        if stat.S_ISSOCK(mode):  # 1
            handle = socket.socket(fileno=os.dup(self._fd))
            self._close = handle.close
            return lambda data: handle.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):  # 4
            return lambda data: os.write(self._fd, data)
        with contextlib.suppress(OSError):  # 2
            own = os.open(f"/proc/self/fd/{self._fd}", _OWN)
            self._close = lambda: os.close(own)
            return lambda data: os.write(own, data)
        poll = select.poll()  # 3
        poll.register(self._fd, select.POLLOUT)
        return lambda data: os.write(self._fd, data[:PIPE_BUF]) if poll.poll(0) else 0
