"""Requests that a model has room for, and those that wait for it: what the model's card draws of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.domain.types import ModelView, ReplicaView
from llmgw_site.console.figures import Spark, middle, percent, spark
from llmgw_site.lib.units import format_seconds
from routing.domain.queueing import room_of

RECENT = 5
"""Minutes that the figure of waiting is of; its curve is of all that are given."""


@dataclass(frozen=True, kw_only=True)
class Waited:
    """Of the requests for a model that began in one minute: what they waited for room, in the middle and at the worst (seconds;
    None: none was measured), and how many were turned away because the queue was full, or their turn came too late."""

    middle_s: float | None = None
    worst_s: float | None = None
    full: int = 0
    late: int = 0


@dataclass(frozen=True, kw_only=True)
class Admission:
    """`most`: requests that may wait, at all nodes that serve it together. Shares in percent of room and of `most`."""

    running: int
    room: int
    running_share: float | None
    waiting: int
    most: int
    waiting_share: float | None
    look: str
    bounds: str
    wait: str  # empty: nothing was asked lately
    worst: str
    spark: Spark
    full: int
    late: int
    minutes: int

    @property
    def free(self) -> int:
        return max(0, self.room - self.running)

    @property
    def away(self) -> int:
        """Requests that were turned away in these minutes."""
        return self.full + self.late


def admission(
    model: ModelView,
    ready: Sequence[ReplicaView],
    minutes: Sequence[Waited],
    *,
    length: int | None,
    wait: float | None,
    usual_length: int,
    usual_wait: float,
) -> Admission:
    """`ready`: its replicas that take requests. `length`, `wait`: its own bounds, None: the usual ones; each node has such a queue."""
    running = sum(item.in_flight for item in ready)
    waiting = sum(item.waiting for item in ready)
    profiles = [(item, model.profile(item.profile_id)) for item in ready]
    room = sum(room_of(item.slots, found.concurrency if found is not None else 0.0) for item, found in profiles)
    nodes = len({item.node_id for item in ready})
    most = (usual_length if length is None else length) * nodes
    recent = minutes[-RECENT:]
    wait_s = middle(item.middle_s for item in recent)
    worst = max((item.worst_s for item in recent if item.worst_s is not None), default=None)
    share = percent(waiting, most)
    return Admission(
        running=running,
        room=room,
        running_share=percent(running, room),
        waiting=waiting,
        most=most,
        waiting_share=share,
        look="bad" if share is not None and share >= 90 else "warn" if waiting else "",
        bounds=_bounds(length, wait, usual_length, usual_wait),
        wait="" if wait_s is None else format_seconds(wait_s),
        worst="" if worst is None else format_seconds(worst),
        spark=spark([item.middle_s for item in minutes[:-1]]),
        full=sum(item.full for item in minutes),
        late=sum(item.late for item in minutes),
        minutes=len(minutes),
    )


def _bounds(length: int | None, wait: float | None, usual_length: int, usual_wait: float) -> str:
    count = usual_length if length is None else length
    if not count:
        return "nobody waits: what there is no room for is refused"
    own = "" if length is None and wait is None else ", its own bounds"
    longest = format_seconds(usual_wait if wait is None else wait)
    return f"{count:,} at a node, for {longest} at most{own}"
