"""A service under the supervisor, with real small programs in its place."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw_site.up import service
from llmgw_site.up.service import Service, StartFailed, pause_after
from tests.processes import alive, wait_for

LOYAL = "import time; open({mark!r}, 'a').write('x'); time.sleep(60)"
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); open({mark!r}, 'a').write('x'); time.sleep(60)"
BROKEN = "import sys; print('the reason stands here'); sys.exit(3)"


PATIENCE = 60.0
"""Seconds for what comes as soon as its program runs: on a busy machine its start may take a while."""


class Case:
    """A service whose program writes to a mark file when it runs."""

    def __init__(self, folder: Path, code: str) -> None:
        self.mark, self.log, self.said = folder / "mark", folder / "logs" / "it.log", []
        self.service = Service(
            "it",
            [sys.executable, "-c", code.format(mark=str(self.mark))],
            ready=lambda: bool(self.marks),
            log=self.log,
            environ=os.environ,
            say=self.said.append,
        )

    said: list[str]

    @property
    def marks(self) -> str:
        """What its runs have written; a test may take the file away between two looks."""
        try:
            return self.mark.read_text()
        except FileNotFoundError:
            return ""


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_for, condition, seconds=PATIENCE)


async def ready(case: Case) -> None:
    await asyncio.wait_for(case.service.ready.wait(), PATIENCE)


@pytest.mark.parametrize(("deaths", "pause"), [(1, 0.2), (2, 0.5), (3, 1.0), (4, 2.0), (5, 3.0), (6, 3.0), (99, 3.0)])
def test_pauses_grow_and_then_stay(deaths: int, pause: float) -> None:
    assert pause_after(deaths) == pause


async def test_one_that_is_just_being_started_when_it_is_to_stop_does_not_stay(tmp_path: Path) -> None:
    case = Case(tmp_path, LOYAL)
    task = asyncio.create_task(case.service.run())
    await asyncio.sleep(0)  # within the start of its process
    assert case.service.pid is None
    await case.service.stop(PATIENCE)
    await asyncio.wait_for(task, PATIENCE)
    assert case.service.pid is None


async def test_it_says_when_it_is_ready_and_ends_when_asked(tmp_path: Path) -> None:
    case = Case(tmp_path, LOYAL)
    task = asyncio.create_task(case.service.run())
    await ready(case)
    pid = case.service.pid
    assert pid is not None
    await case.service.stop(PATIENCE)
    await asyncio.wait_for(task, PATIENCE)
    assert case.said[0].startswith("it ready in ")
    assert not alive(pid)


async def test_one_that_is_killed_comes_back_after_a_pause_and_says_so(tmp_path: Path) -> None:
    case = Case(tmp_path, LOYAL)
    task = asyncio.create_task(case.service.run())
    await ready(case)
    first = case.service.pid
    assert first is not None
    os.kill(first, 9)
    await until(lambda: case.marks == "xx" and case.service.pid not in (None, first))
    assert "it ended (SIGKILL); starting it again in 200 ms" in case.said
    await case.service.stop(PATIENCE)
    await task


async def test_one_that_no_longer_answers_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "WATCH_EVERY", 0.02)
    monkeypatch.setattr(service, "UNWELL", 0.2)
    case = Case(tmp_path, LOYAL)
    task = asyncio.create_task(case.service.run())
    await ready(case)
    first = case.service.pid
    case.mark.unlink()  # alive, but what it offers is gone
    await until(lambda: case.marks == "x")
    await ready(case)
    assert case.service.pid not in (None, first)
    assert any(line.startswith("it has not answered for ") for line in case.said)
    await case.service.stop(PATIENCE)
    await task


async def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    case = Case(tmp_path, DEAF)
    task = asyncio.create_task(case.service.run())
    await ready(case)
    pid = case.service.pid
    assert pid is not None
    await case.service.stop(0.2)
    await asyncio.wait_for(task, PATIENCE)
    assert not alive(pid)


async def test_one_that_never_starts_ends_the_whole_start_with_the_end_of_its_log(tmp_path: Path) -> None:
    case = Case(tmp_path, BROKEN)
    with pytest.raises(StartFailed) as caught:
        await asyncio.wait_for(case.service.run(), PATIENCE)
    assert "it does not start (exit status 3)" in str(caught.value)
    assert "the reason stands here" in str(caught.value)


async def test_what_a_dead_service_left_running_is_killed_with_it(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        f"open({str(child)!r}, 'w').write(str(p.pid)); open({{mark!r}}, 'a').write('x'); time.sleep(60)"
    )
    case = Case(tmp_path, code)
    task = asyncio.create_task(case.service.run())
    await ready(case)
    orphan, parent = int(child.read_text()), case.service.pid
    assert parent is not None
    os.kill(parent, 9)
    await until(lambda: not alive(orphan))
    await case.service.stop(PATIENCE)
    await task


def test_a_log_that_cannot_be_put_aside_on_a_full_disk_is_bounded_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "it.log"
    path.write_bytes(b"old " * 50)
    monkeypatch.setattr(service.shutil, "copyfile", full)
    service.bound_log(path, limit=100)
    assert path.read_bytes() == b""


def test_a_log_that_grew_too_large_is_put_aside_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "it.log"
    service.bound_log(path, limit=100)
    with path.open("ab", buffering=0) as writer:
        writer.write(b"old " * 50)
        service.bound_log(path, limit=100)
        writer.write(b"new")
    assert path.read_bytes() == b"new"
    assert path.with_name("it.log.1").read_bytes() == b"old " * 50
    assert {p.stat().st_mode & 0o777 for p in path.parent.iterdir()} == {0o600}
