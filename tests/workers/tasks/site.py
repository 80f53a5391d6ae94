"""What the tests of jobs share: a job is gone on with, and one node tells what a real one would."""

from __future__ import annotations

from typing import Any

from catalog.models import Version
from cluster.models import Job, JobStep, Replica
from cluster.wire import WeightsReport
from tests.cluster.rows import Machine, report
from workers import jobs
from workers.tasks.advance import KINDS


def run(job: Job) -> Job:
    jobs.run(job.id, KINDS)
    job.refresh_from_db()
    return job


def step(job: Job, name: str) -> JobStep:
    return JobStep.objects.get(job=job, name=name)


class OneNode:
    """`has`: weights that it holds, with their bytes; `own`: files that an operator put there; `fields`: of its heartbeats."""

    def __init__(self) -> None:
        self.machine = Machine("one")
        self.has: dict[str, int] = {}
        self.own: tuple[WeightsReport, ...] = ()
        self.fields: dict[str, Any] = {}
        self.told: dict[str, Any] = {}

    def hold(self, version: Version) -> None:
        self.has[version.pk] = version.size
        self.beat()

    def beat(self, *reports: Any) -> None:
        """A node tells of all its replicas each time."""
        self.told |= {item.replica_id: item for item in reports}
        there = set(Replica.objects.values_list("id", flat=True))
        told = tuple(item for key, item in self.told.items() if key in there)
        held = (*self.own, *(WeightsReport(path=path, size=size) for path, size in self.has.items()))
        self.machine.heartbeat(*told, weights_mark=" ".join(self.has), weights=held, fetches=(), **self.fields)

    def ready(self, row: Replica) -> None:
        self.beat(report(row, "starting", attempt=1))
        self.beat(report(row, "ready", attempt=1, port=1))

    def leave(self) -> None:
        """It drains what shall not run any more."""
        rows = Replica.objects.filter(run=False)
        self.beat(*(report(row, "draining", attempt=1, port=1) for row in rows))
