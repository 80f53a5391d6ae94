"""The one receiver of the signals of the floors below, and the one place that enqueues.

A wake-up that cannot be sent (no broker) costs seconds, never work: beat and the sweep find it in the rows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.dispatch import receiver
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from catalog.signals import catalogue_changed, secrets_revoked
from cluster import signals
from cluster.selectors import mirror
from cluster.services import members
from llmgw_site.lib.logs import event
from routing import selectors, services
from workers import nudges
from workers.celery import app

log = logging.getLogger(__name__)

JOBS_GROUP = "jobs"
"""The channel layer's group that pages of jobs listen to."""
NEWS_EVERY = 0.5
"""Seconds in which one process publishes once, however many nodes report something new: they often start together."""
LOOK_EVERY = 0.2
"""Seconds in which the changes of one process wake the reconciler once."""
STALE = 30.0
"""Seconds after which a wake-up is dropped unread, so that a worker that is far behind does not fall further."""
PATIENCE = 2.0
"""Seconds that telling the pages may take; they look by themselves now and then."""


@receiver(signals.job_opened)
def job_opened(*, job_id: str, **kwargs: Any) -> None:
    advance_later(job_id)


@receiver(catalogue_changed)
def catalogue_is_new(*, subject_kind: str = "", **kwargs: Any) -> None:
    """Keys and models reach the nodes at once; placement follows by itself. Weights are fetched, or removed, at once: who may ask
    for what does not change with them, so that nobody who adds some waits until that is put together."""
    if subject_kind == "version":
        _nudge_some(mirror.data_nodes())
    else:
        publish_snapshot()
    look_soon()


@receiver(secrets_revoked)
def secrets_are_revoked(*, hashes: Sequence[str] = (), **kwargs: Any) -> None:
    """Connected gateways refuse them on the nudge alone, before a snapshot is made, given and read."""
    nudges.send("revoked", revoked=hashes)


@receiver(signals.observed)
def observed(*, weights: bool = False, **kwargs: Any) -> None:
    """A heartbeat brought news of replicas. Of many nodes' news at once this process makes one publication. A node that has
    other weights now may be the one that others wait for."""
    if weights:
        _nudge_some(mirror.fetching_nodes())
    if _news.now():
        publish_snapshot()
        reconcile_now()


def _nudge_some(nodes: Collection[str]) -> None:
    if nodes:
        nudges.send("weights", nodes=nodes)


@receiver(signals.plan_applied)
def plan_applied(*, nodes: Collection[str] = (), **kwargs: Any) -> None:
    """The nodes that have something else to do first; the others once the snapshot says something else."""
    if nodes:
        nudges.send("wanted", nodes=nodes)
    publish_snapshot()


@receiver(signals.model_asked)
def model_asked(**kwargs: Any) -> None:
    """Somebody waits: the look begins at once."""
    look_soon()


@receiver(signals.setup_changed)
def setup_changed(**kwargs: Any) -> None:
    nudges.send("setup")
    look_soon()


@receiver(signals.members_changed)
def members_changed(*, removed: Collection[str] = (), **kwargs: Any) -> None:
    """The map is made anew at once, for a removal whatever else goes on."""
    if removed or _map.now():
        publish_map(removed)


class _Throttle:
    """Lets something happen at once, but in one process not more often than every so many seconds.

    What comes before that is put off to the moment when it may happen: a worker looks then, at everything.
    """

    def __init__(self, every: Callable[[], float]) -> None:
        self._every = every
        self.forget()

    def forget(self) -> None:
        self._next = self._put_off = 0.0

    def now(self) -> bool:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._every()
            return True
        if self._put_off < self._next:
            self._put_off = self._next
            reconcile_now(delay=self._next - now)
        return False


def _between_news() -> float:
    """In a large cluster not more often than its nodes are told: putting the map of 1,000 nodes together costs as much as
    200 heartbeats."""
    return max(NEWS_EVERY, nudges.spacing())


_news, _map, _looks = _Throttle(_between_news), _Throttle(_between_news), _Throttle(lambda: LOOK_EVERY)


def look_soon() -> None:
    """Have the reconciler look, at once; many changes in a row are looked at together."""
    if _looks.now():
        reconcile_now()


def publish_snapshot(seen: services.Look | None = None) -> None:
    """Publish what clients may ask for and who answers; connected nodes look at once if it is new."""
    before = selectors.published_version()
    if services.publish(seen) != before:
        nudges.send("snapshot")


def publish_map(removed: Collection[str] = ()) -> None:
    """Publish the module map; connected nodes look at once if it is new. They refuse a removed node on the nudge alone."""
    if members.publish().news or removed:
        nudges.send("map", removed=removed)


@receiver(signals.snapshot_asked)
def snapshot_asked(*, node: Any = None, **kwargs: Any) -> str:
    return services.version_for(node)


@receiver(signals.job_changed)
def job_changed(*, job_id: str, **kwargs: Any) -> None:
    """Tell the pages that look on; they read the rows themselves."""
    layer = get_channel_layer()
    if layer is None:
        return

    async def send() -> None:
        async with asyncio.timeout(PATIENCE):
            await layer.group_send(JOBS_GROUP, {"type": "job.changed", "job_id": job_id})

    try:
        async_to_sync(send)()
    except (RedisError, OSError, RuntimeError) as error:
        event(log, "progress_not_sent", level=logging.DEBUG, job_id=job_id, reason=str(error))


def reconcile_now(*, delay: float = 0.0) -> None:
    _send("workers.tasks.reconcile.reconcile", queue="ticks", countdown=delay or None, expires=delay + 5.0)


def advance_later(job_id: str, *, delay: float = 0.0) -> None:
    """Wake somebody up for a job. A message that nobody took for so long is worth nothing: the sweep sends a new one."""
    _send("workers.tasks.advance.advance", job_id, queue="jobs", countdown=delay or None, expires=delay + STALE)


def _send(task: str, *args: Any, **options: Any) -> None:
    try:
        app.send_task(task, args=args, retry=False, ignore_result=True, **options)
    except (OperationalError, RedisError, OSError) as error:
        event(log, "wake_up_not_sent", level=logging.WARNING, task=task, reason=str(error))
