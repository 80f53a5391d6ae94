"""What a node reports of a replica, as columns can hold it: within their bounds, and None for what is no figure."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from cluster.domain.states import ReplicaState
from cluster.models import Replica
from cluster.selectors import from_unix
from cluster.wire import ReplicaReport, WireError

LONGEST_TEXT, _LOG_TAIL = 1_000, 16_384
"""Characters kept of a sentence, and of a failed start's log."""
NOTHING: dict[str, Any] = {
    "code": "", "message": "", "log_tail": "", "pid": None, "port": None, "started_at": None, "ready_at": None,
    "memory": None, "card_memory": None, "cpu": None, "in_flight": 0, "waiting": None,
}  # fmt: skip


def proven(report: ReplicaReport, row: Replica) -> int:
    """The attempt that became ready last. A node that counts anew, as after a restart of its agent, begins at none."""
    if report.state in (ReplicaState.READY, ReplicaState.DRAINING):
        return count(report.attempt) or 0
    return row.proven if report.attempt >= row.proven else 0


def observed(report: ReplicaReport) -> dict[str, Any]:
    return {
        "state": report.state,
        "code": report.code[:64],
        "message": report.message[:LONGEST_TEXT],
        "log_tail": report.log_tail[-_LOG_TAIL:],
        "attempt": count(report.attempt),
        "pid": count(report.pid),
        "port": count(report.port),
        "started_at": _time(report.started_at),
        "ready_at": _time(report.ready_at),
        "context": count(report.context),
        "slots": count(report.slots),
        "memory": count(report.memory, most=2**63 - 1),
        "card_memory": count(report.card_memory, most=2**63 - 1),
        "cpu": _cores(report.cpu),
        "in_flight": count(report.in_flight),
        "waiting": count(report.waiting),
        "wedged": count(report.wedged),
        "last_used_at": _time(report.last_used_at),
    }


def count(value: int | None, *, most: int = 2**31 - 1) -> int | None:
    """What a column can hold of a figure."""
    return None if value is None else min(max(0, value), most)


def _cores(value: float | None) -> float | None:
    """Hundredths: an idle engine is 0.0 every time, so that its row is left alone. What is no number is not known."""
    return None if value is None or not math.isfinite(value) else round(min(max(0.0, value), 2.0**31), 2)


def _time(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else from_unix(seconds)
    except (ValueError, OverflowError, OSError):
        raise WireError(f"{seconds!r} is no time") from None
