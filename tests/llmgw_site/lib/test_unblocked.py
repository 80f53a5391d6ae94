"""Lines to a reader that stalls: on real pipes, sockets, files and terminals."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import pty
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llmgw_site.lib import unblocked
from llmgw_site.lib.unblocked import PIPE_BUF, Unblocked

MOST = 8192


@pytest.fixture(params=["pipe", "socket", "foreign pipe", "terminal"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """A reading and a writing end, which holds little; `foreign`: one that cannot be opened anew."""
    with ExitStack() as stack:
        if request.param == "socket":
            one, other = socket.socketpair()
            stack.enter_context(one)
            stack.enter_context(other)
            other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            yield one.fileno(), other.fileno()
            return
        reader, writer = pty.openpty() if request.param == "terminal" else os.pipe()
        stack.callback(os.close, reader)
        stack.callback(os.close, writer)
        if request.param != "terminal":
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        if request.param == "foreign pipe":
            monkeypatch.setattr(unblocked, "_OWN", os.O_RDONLY | os.O_DIRECTORY)
        yield reader, writer


def line(number: int, length: int = 100) -> bytes:
    return (b"%08d" % number).ljust(length, b".") + b"\n"


def numbers(data: bytes, *, length: int = 100) -> list[int]:
    lines = data.splitlines()
    assert {len(item) for item in lines} == {length}, "a line was torn"
    return [int(item[:8]) for item in lines]


END = b"the end\n"


def drained(reader: int, out: Unblocked) -> bytes:
    """All that was taken or kept; then its reader keeps up again. What is written last tells that all has come: a terminal passes
    it on a little later."""
    found, told = b"", False
    os.set_blocking(reader, False)
    while not found.endswith(END):
        if out._kept:
            out.flush()
        elif not told:
            out.take(END)
            told = True
        select.select([reader], [], [], 0.1)
        with contextlib.suppress(BlockingIOError):
            found = (found + os.read(reader, 1 << 16)).replace(b"\r\n", b"\n")
    return found.removesuffix(END)


@pytest.mark.timeout(30)
def test_nobody_waits_for_a_reader_that_stalls_and_what_is_beyond_the_bound_is_counted(ends: tuple[int, int]) -> None:
    reader, writer = ends
    out = Unblocked(writer, most=MOST)
    taken, lost = list[int](), list[int]()
    for number in itertools.count():
        out.take(line(number))  # a terminal may have room again a little later, and take one more
        (taken if out.dropped == len(lost) else lost).append(number)
        if len(lost) == 10:
            break
    assert out.dropped == 10
    assert os.get_blocking(writer)  # for whoever shares it
    assert numbers(drained(reader, out)) == taken
    out.take(line(7))
    assert numbers(drained(reader, out)) == [7]
    assert out.dropped == 10
    out.close()


def test_a_line_that_is_taken_in_part_is_ended_before_the_next(ends: tuple[int, int]) -> None:
    reader, writer = ends
    out, long = Unblocked(writer, most=1 << 20), 4 * PIPE_BUF
    for number in range(6):
        out.take(line(number, long))
    assert numbers(drained(reader, out), length=long) == list(range(6))
    out.close()


def test_a_file_takes_everything_and_its_end_is_where_others_wrote(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab", buffering=0) as file:
        out = Unblocked(file.fileno(), most=0)
        for number in range(1000):
            out.take(line(number))
            file.write(line(number))
        out.close()
    assert out.dropped == 0
    assert numbers((tmp_path / "log").read_bytes()) == [number for number in range(1000) for _ in range(2)]


@pytest.mark.timeout(30)
def test_what_is_said_while_a_line_is_written_follows_it(ends: tuple[int, int]) -> None:
    """As of a task that nobody awaited, when the collector comes round just then."""
    reader, writer = ends
    out = Unblocked(writer)
    out.take(line(0))
    send = out._send
    assert send is not None

    def interrupted(data: bytes) -> int:
        out._send = send
        out.take(line(2))
        return send(data)

    out._send = interrupted
    out.take(line(1))
    assert numbers(drained(reader, out)) == [0, 1, 2]
    out.close()


def test_where_there_is_nobody_lines_are_counted_and_nothing_fails() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    out = Unblocked(writer, most=0)
    out.take(line(1))
    assert out.dropped == 1
    os.close(writer)
    out.close()
    out.take(line(2))
    assert out.dropped == 2


def test_it_is_a_stream_for_logging_from_any_thread(ends: tuple[int, int]) -> None:
    reader, writer = ends
    out = Unblocked(writer)
    handler = logging.StreamHandler(out)
    log = logging.Logger("of this test")
    log.addHandler(handler)

    def talk(first: int) -> None:
        for number in range(first, first + 50):
            log.warning("%s", line(number).decode().rstrip("\n"))

    threads = [threading.Thread(target=talk, args=(first,)) for first in range(0, 200, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers(drained(reader, out))) == list(range(200))
    assert out.dropped == 0
    out.close()
