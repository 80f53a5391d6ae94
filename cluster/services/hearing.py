"""Whether this process hears nodes: how its heartbeats ended lately, and the mark in the database that says so to all.

Only `web` takes heartbeats, so only there do outcomes come together; see cluster/domain/health.py for what a mark means.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from django.db.models import F

from cluster.domain.health import Outcomes
from cluster.models import Node
from cluster.services import identity
from cluster.wire import WireError
from llmgw_site.lib.errors import Kind, Refused

_outcomes = Outcomes()
_lock = Lock()


@contextmanager
def counted() -> Iterator[None]:
    """Around one heartbeat: an exception that is no refusal is a defect of ours."""
    worked = False
    try:
        yield
        worked = True
    except (Refused, WireError):
        worked = True
        raise
    finally:
        with _lock:
            _outcomes.note(worked, time.monotonic())


def working() -> bool:
    """Whether most heartbeats of the last half minute were processed."""
    with _lock:
        return _outcomes.working(time.monotonic())


def mark(*, node_id: str, now: float) -> None:
    """Note in the database that nodes are heard at this moment. Raises Refused `heartbeats_failing` where they are not.

    `node_id`: of the node that asks. `now`: Unix time of the database.
    """
    if not working():
        text = "most heartbeats of the last half minute failed here: the log of `web` says why"
        raise Refused(Kind.UNAVAILABLE, "heartbeats_failing", text)
    # a heartbeat writes its node's row: where that table takes nothing, no heartbeat is processed
    Node.objects.filter(id=node_id).update(last_seen_at=F("last_seen_at"))
    identity.listened(now=now)


def forget() -> None:
    """Begin anew, as a process does that has just started."""
    global _outcomes
    with _lock:
        _outcomes = Outcomes()
