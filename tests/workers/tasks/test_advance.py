"""workers.tasks.advance: a look at a job, and what becomes of it where there is no room or no database."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import OperationalError

from llmgw_site.cli.services import WORKER_THREADS
from workers import dispatch, jobs
from workers.tasks import advance


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Jobs that somebody shall look at again, and in how many seconds."""
    messages: list[tuple[str, float]] = []
    monkeypatch.setattr(dispatch, "advance_later", lambda job_id, delay=0.0: messages.append((job_id, delay)))
    return messages


def test_a_worker_full_of_jobs_keeps_a_thread_for_ticks(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    begun, over = threading.Semaphore(0), threading.Event()

    def run(job_id: str, kinds: Any) -> None:
        begun.release()
        over.wait(100)

    monkeypatch.setattr(jobs, "run", run)
    threads = [threading.Thread(target=advance.advance, args=(f"job_{n}",)) for n in range(advance.AT_ONCE)]
    for thread in threads:
        thread.start()
    assert all(begun.acquire(timeout=60) for _ in threads)
    advance.advance("job_more")
    assert sent == [("job_more", advance.PAUSE)]
    over.set()
    for thread in threads:
        thread.join()
    advance.advance("job_more")
    assert begun.acquire(timeout=60)


def test_a_database_that_is_away_is_left_to_the_sweep(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job_id: str, kinds: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(jobs, "run", run)
    for number in range(advance.AT_ONCE + 1):  # and the room is given back
        advance.advance(f"job_{number}")
    assert sent == []


def test_there_are_fewer_jobs_at_once_than_threads() -> None:
    assert advance.AT_ONCE < WORKER_THREADS
