"""What beat does, as data: name, task, period, why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings


@dataclass(frozen=True, kw_only=True)
class Beat:
    name: str
    task: str
    every: float  # seconds
    why: str


def beats() -> tuple[Beat, ...]:
    return (
        Beat(
            name="reconcile",
            task="workers.tasks.reconcile.reconcile",
            every=settings.CONFIG.reconcile,
            why="level-triggered: what no signal told is found here",
        ),
        Beat(
            name="sweep",
            task="workers.tasks.sweep.sweep",
            every=5.0,
            why="jobs whose worker died or whose wake-up was lost are taken up again",
        ),
        Beat(
            name="measure",
            task="workers.tasks.sweep.measure",
            every=60.0,
            why="what replicas were seen to take replaces what was estimated of their like",
        ),
        Beat(
            name="origins",
            task="workers.tasks.origins.check",
            every=300.0,
            why="models that were not asked for within LLMGW_UPDATE_CHECK: whether their files changed where they come from",
        ),
        Beat(
            name="trace",
            task="workers.tasks.origins.trace",
            every=300.0,
            why="one model, adapter or version at a time: where weights come from whose origin nobody knows",
        ),
        Beat(
            name="prune",
            task="workers.tasks.sweep.prune",
            every=3600.0,
            why="events, ended jobs and keys older than their settings say are forgotten",
        ),
        Beat(
            name="prune_usage",
            task="workers.tasks.sweep.prune_usage",
            every=60.0,
            why="as many usage records are forgotten as come, ten million a day among them",
        ),
    )


def beat_schedule() -> dict[str, dict[str, Any]]:
    """The same in Celery's words. A tick that was not begun within its period is dropped: the next one does its work."""
    return {
        item.name: {"task": item.task, "schedule": item.every, "options": {"expires": max(item.every, 5.0)}}
        for item in beats()
    }
