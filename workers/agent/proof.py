"""Whether a ready engine still computes: its health page can be right while its core is stuck, so it is asked for a token.

Only where it has computed nothing by itself for `deep_every` (the gateway reads its counts; of an engine that has none nobody
knows, and it is asked), and soon after a request to it failed. One token a question is all that it costs; no usage record
knows of it. One that works is neither asked nor judged, however long it takes. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from cluster.wire import Serve
from workers.agent.events import Verdict
from workers.agent.state import Process, Rules

WEDGED = "engine_wedged"


def due(process: Process, rules: Rules, now: float) -> bool:
    """Whether it is time to ask for a token.

    1. it is switched off, or a question is under way           no
    2. all its slots are taken, and it may be at work at them   no: the question would stand in its queue
    3. it has just computed, whatever failed                    no
    4. it has computed since it was last doubted                `deep_every` after that
    5. else                                                     at the time that was set
    """
    if not rules.deep_every or process.deep_asked_at is not None:  # 1
        return False
    if _full(process) and not _idle_for(process, rules.deep_patience, now):  # 2
        return False
    moved_at = process.moved_at
    if moved_at is not None and not _idle_for(process, rules.deep_suspect, now):  # 3
        return False
    if moved_at is not None and moved_at > process.doubted_at:  # 4
        return now >= max(process.next_deep, moved_at + rules.deep_every)
    return now >= process.next_deep  # 5


def asked(process: Process, now: float) -> None:
    process.deep_asked_at, process.deep_alone = now, process.engine_in_flight in (None, 0)
    if process.owed_since is None:
        process.owed_since = now


def moved(process: Process, at: float | None) -> None:
    """When the engine last computed, as the gateway read it; None: nobody knows. What computes is in no doubt."""
    process.moved_at = at
    if at is not None and at > process.doubted_at and process.deep_missed:
        process.deep_missed = 0


def suspect(process: Process, rules: Rules, now: float) -> None:
    """A request to the engine failed: ask soon, but not for each one that fails."""
    soon = max(now, process.deep_last + rules.deep_suspect)
    process.next_deep, process.doubted_at = min(process.next_deep, soon), now


def heard(process: Process, rules: Rules, verdict: Verdict, now: float) -> None:
    """An answer, or that none came in the time of the question.

    1. a token came: all is well
    2. nothing is known: all slots were taken, it had other work to do, or it does not even say that it is well (other looks
       judge that)
    3. else it is missed, and asked for again at once
    """
    waited = now - (process.deep_asked_at if process.deep_asked_at is not None else now)
    process.deep_asked_at, process.deep_last = None, now
    if verdict is Verdict.READY:  # 1
        process.deep_missed, process.owed_since, process.next_deep = 0, None, now + rules.deep_every
    elif _full(process) or (verdict is not Verdict.BROKEN and waited < rules.deep_patience):  # 2
        process.next_deep, process.doubted_at = now + rules.deep_suspect, now
    else:  # 3
        _missed(process, rules, 1, now)


def judge(process: Process, rules: Rules, now: float) -> None:
    """Of a question that has no answer yet: whether the token is missed.

    1. it computes, or has until a moment ago: it is not
    2. an engine with nothing else to do should have answered by `deep_patience`
    3. one that has other requests has computed nothing for as long as any of them may wait for its first byte, though it
       counts what it computes: it is wedged, and all of them have failed by now
    """
    if process.owed_since is None or not rules.deep_every:
        return
    still = now - max(process.owed_since, process.moved_at or 0.0)  # 1
    if process.deep_asked_at is not None and process.deep_alone and not _in_flight(process):  # 2
        if now - process.deep_asked_at >= rules.deep_patience <= still:
            process.deep_asked_at, process.deep_last = None, now
            _missed(process, rules, 1, now)
    elif (patience := _busy_patience(process, rules)) is not None and still >= patience:  # 3
        _missed(process, rules, rules.deep_misses, now)


def _busy_patience(process: Process, rules: Rules) -> float | None:
    """How long an engine with requests may compute nothing; None: it has none, or nobody can tell."""
    load = process.load
    if load is None or not load.in_flight or load.patience is None or process.moved_at is None:
        return None
    return max(rules.deep_patience, load.patience)


def goes_on(before: Serve, after: Serve) -> bool:
    """Whether an engine that is asked for anew is the same once more: the parts of a replica over several nodes end and begin by
    orders, each time to meet elsewhere, so that those that wedge in a row would never be counted."""
    same = replace(before, master="", master_port=0, address="") == replace(after, master="", master_port=0, address="")
    return after.nodes > 1 and same


def wedged(process: Process, rules: Rules) -> bool:
    return process.deep_missed >= rules.deep_misses


def _missed(process: Process, rules: Rules, count: int, now: float) -> None:
    process.deep_missed += count
    process.next_deep, process.doubted_at = now + rules.probe_longest, now


def _in_flight(process: Process) -> int:
    return process.load.in_flight if process.load else 0


def _idle_for(process: Process, seconds: float, now: float) -> bool:
    """Whether it is known to have computed nothing for so long."""
    return process.moved_at is not None and now - process.moved_at >= seconds


def _full(process: Process) -> bool:
    return _in_flight(process) >= (process.slots or process.serve.slots or 1)
