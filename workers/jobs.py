"""The runner around every job: claim, next step, one piece of it, note, put down. One place where failures end."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from cluster import selectors
from cluster.domain.rollout import Close, JobView, Nothing, Run, next_step
from cluster.domain.states import JobState, StepState
from cluster.services import jobs
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)

PIECE_LIMIT = 55.0
"""Seconds that one piece of a step may take."""
BUDGET = 20.0
"""Seconds after which a worker puts a job down, so that others get their turn and no task comes near its limit."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What a piece of a step came to. Not `done`: look again in `again_in` seconds. `end`: the job ends here, with this."""

    done: bool = False
    end: Close | None = None
    progress: float | None = None
    detail: str | None = None
    data: dict[str, Any] | None = None
    again_in: float = 1.0


class LostJob(Exception):
    """The lease ran out and somebody else has the job: stop at once, write nothing."""


@dataclass(frozen=True)
class Context:
    """What a step may use: the job as it was read, and a way to say how far it is."""

    job: JobView
    number: int
    worker: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def tell(
        self, *, progress: float | None = None, detail: str | None = None, data: dict[str, Any] | None = None
    ) -> None:
        """Note progress and renew the lease. Raises LostJob."""
        held = jobs.note(
            job_id=self.job.id, worker=self.worker, number=self.number, progress=progress, detail=detail, data=data
        )
        if not held:
            raise LostJob


Step = Callable[[Context], Piece]
Finish = Callable[[JobView], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How a kind of job is worked: a function for each step, what its result is, what must not stay behind."""

    steps: Mapping[str, Step]
    result: Finish
    cleanup: Callable[[JobView], None]


class _Lease:
    """Keeps the claim alive beside a piece that takes longer than it: for PIECE_LIMIT seconds, then it may run out."""

    def __init__(self, job_id: str, worker: str) -> None:
        self._job_id, self._worker = job_id, worker
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease {job_id}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _keep(self) -> None:
        until = time.monotonic() + PIECE_LIMIT
        try:
            while not self._done.wait(jobs.LEASE / 3) and time.monotonic() < until:
                if not jobs.renew(job_id=self._job_id, worker=self._worker):
                    return
        except DatabaseError as error:
            event(log, "lease_not_renewed", level=logging.WARNING, job_id=self._job_id, reason=str(error))
        finally:
            connection.close()


def run(job_id: str, kinds: Mapping[str, Kind], *, budget: float = BUDGET) -> float | None:
    """Work at a job for at most `budget` seconds. Seconds until somebody should look again; None: not needed.

    1. it is closed, or somebody else holds it: None
    2. a step is done: on to the next at once
    3. a step waits for something: put the job down
    4. a step is refused, or breaks: the job has failed, with the reason on the step
    5. a step says that no more is to be done: the job is closed so

    A database that is busy or away is no fault of the job: OperationalError or InterfaceError comes out of here, the
    lease runs out, and the sweep has the step begun again.
    """
    worker = f"{socket.gethostname()[:24]}:{os.getpid()}:{secrets.token_hex(6)}"
    job = jobs.claim(job_id=job_id, worker=worker)
    if job is None:  # 1
        return None
    until = time.monotonic() + budget
    try:
        while True:
            then = next_step(job, selectors.database_now())
            if isinstance(then, Nothing):
                return None
            if isinstance(then, Close):
                _close(job, worker, then, kinds)
                return None
            piece = _piece(job, worker, then, kinds)
            if piece is not None and piece.end is not None:  # 5
                _close(job, worker, piece.end, kinds)
                return None
            if piece is not None and not piece.done:  # 3
                jobs.put_down(job_id=job_id, worker=worker, again_in=piece.again_in)
                return piece.again_in
            if time.monotonic() > until:
                jobs.put_down(job_id=job_id, worker=worker, again_in=0.0)
                return 0.0
            job = jobs.view(job_id)  # 2
    except LostJob:
        event(log, "job_lost", job_id=job_id, worker=worker)
        return None


def _piece(job: JobView, worker: str, then: Run, kinds: Mapping[str, Kind]) -> Piece | None:
    """One piece of a step, noted. None: the step has failed, and that is noted."""
    context = Context(job, then.step.number, worker, then.step.data)
    if then.first:
        context.tell(progress=0.0)
        event(log, "job_step_begun", job_id=job.id, step=then.step.name)
    try:
        with _Lease(job.id, worker):
            piece = kinds[job.kind].steps[then.step.name](context)
    except (LostJob, SoftTimeLimitExceeded, OperationalError, InterfaceError):
        raise
    except Refused as refused:  # 4
        _fail(job, worker, then, refused.code, refused.message, refused.extra)
        return None
    except Exception:
        log.exception("job_step_broke", extra={"f": {"job_id": job.id, "step": then.step.name}})
        _fail(job, worker, then, "internal_error", "a defect of llmgw; the worker's log says more")
        return None
    noted = jobs.note(
        job_id=job.id,
        worker=worker,
        number=then.step.number,
        state=StepState.DONE if piece.done else StepState.RUNNING,
        progress=piece.progress,
        detail=piece.detail,
        data=piece.data,
    )
    if not noted:
        raise LostJob
    return piece


def _fail(
    job: JobView, worker: str, then: Run, code: str, message: str, extra: Mapping[str, Any] | None = None
) -> None:
    event(log, "job_step_failed", level=logging.WARNING, job_id=job.id, step=then.step.name, code=code, why=message)
    kept = next(
        (item.data for item in jobs.view(job.id).steps if item.number == then.step.number), {}
    )  # told meanwhile
    data = {**kept, **(extra or {}), "code": code}
    noted = jobs.note(
        job_id=job.id, worker=worker, number=then.step.number, state=StepState.FAILED, detail=message, data=data
    )
    if not noted:
        raise LostJob


def _close(job: JobView, worker: str, then: Close, kinds: Mapping[str, Kind]) -> None:
    kind, result = kinds.get(job.kind), {}
    try:
        if kind is not None:
            kind.cleanup(job)
            result = kind.result(job) if then.state in (JobState.DONE, JobState.WAITING) else {}
    except (OperationalError, InterfaceError):
        raise
    except Exception:  # a job must come to its end, whatever its kind's code does
        log.exception("job_close_broke", extra={"f": {"job_id": job.id}})
    jobs.close(job_id=job.id, worker=worker, state=then.state, code=then.code, message=then.message, result=result)
    event(log, "job_closed", job_id=job.id, kind=job.kind, state=then.state.value, code=then.code or None)
