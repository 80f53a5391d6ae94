"""Whether a ready engine still computes: its health page can be right while its core is stuck, so it is asked for a token.

Each `deep_every`, and soon after a connection to it failed, unless all its slots are taken: then the question would stand
in the queue, and its delay would prove nothing. One token a look is all that it costs. Pure.
"""

from __future__ import annotations

from workers.agent.events import Verdict
from workers.agent.state import Process, Rules


def due(process: Process, rules: Rules, now: float) -> bool:
    """Whether it is time to ask for a token."""
    return process.deep_asked_at is None and now >= process.next_deep and not _full(process)


def asked(process: Process, now: float) -> None:
    process.deep_asked_at, process.deep_alone = now, process.engine_in_flight in (None, 0)


def suspect(process: Process, rules: Rules, now: float) -> None:
    """A connection to the engine failed: ask soon, but not for each one that fails."""
    soon = max(now, process.deep_last + rules.deep_suspect)
    process.next_deep = min(process.next_deep, soon)


def heard(process: Process, rules: Rules, verdict: Verdict, now: float) -> None:
    """An answer, or its final absence.

    1. a token came: all is well
    2. nothing is known: all slots were taken, or it does not even say that it is well (other looks judge that)
    3. else it is missed, and asked for again at once
    """
    waited = now - (process.deep_asked_at if process.deep_asked_at is not None else now)
    process.deep_asked_at, process.deep_last = None, now
    if verdict is Verdict.READY:  # 1
        process.deep_missed, process.next_deep = 0, now + rules.deep_every
    elif _full(process) or (verdict is not Verdict.BROKEN and waited < rules.deep_patience):  # 2
        process.next_deep = now + rules.deep_suspect
    else:  # 3
        process.deep_missed += 1
        process.next_deep = now + rules.probe_longest


def overdue(process: Process, rules: Rules, now: float) -> bool:
    """An engine with nothing else to do should have answered by now."""
    asked_at = process.deep_asked_at
    alone = process.deep_alone and not _in_flight(process)
    return asked_at is not None and alone and now - asked_at >= rules.deep_patience


def wedged(process: Process, rules: Rules) -> bool:
    return process.deep_missed >= rules.deep_misses


def _in_flight(process: Process) -> int:
    return process.load.in_flight if process.load else 0


def _full(process: Process) -> bool:
    return _in_flight(process) >= (process.slots or process.serve.slots or 1)
