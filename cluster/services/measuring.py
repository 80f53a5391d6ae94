"""Measured memory and speed: what replicas were seen to take is kept, and replaces what was estimated of their like; what a bench
found of them is kept for each kind of hardware."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max
from django.db.models.functions import Now

from cluster.models import Measurement, Replica, Throughput

SETTLED = timedelta(seconds=60)
"""An engine that has been ready for so long, and has worked, takes what it takes."""
KEPT = timedelta(days=30)
"""For so long without a replica of its kind a measurement is kept."""
NOTED_EVERY = timedelta(days=1)
"""How exactly it is known when there was the last one."""


def record(now: datetime) -> int:
    """Look at all replicas; how many measurements are new or larger. Four queries at most, and one for each of these.

    Only a replica that is the only one of its model on its node counts: several share the pages of the weights' file, and
    each seems to take a part of them only. What was measured never falls: how much an engine takes depends on its work.
    """
    before = now - SETTLED
    alone = (
        Replica.objects.filter(memory__isnull=False)
        .order_by()
        .values("model_id", "node_id")
        .annotate(
            count=Count("id"), replica=Max("id"), digest=Max("digest"), memory=Max("memory"), card_memory=Max("card_memory"),
            ready=Max("ready_at"), used=Max("last_used_at"),
        )
        .filter(count=1, ready__lte=before, used__isnull=False, memory__gt=0)
    )  # fmt: skip
    seen: dict[str, list[Any]] = {}
    for row in alone:
        seen.setdefault(row["digest"], []).append(row)
    known = Measurement.objects.in_bulk(list(seen))
    count = 0
    for digest, rows in seen.items():
        kept, top = known.get(digest), max(rows, key=lambda row: row["memory"])
        of_cards = max((row["card_memory"] for row in rows if row["card_memory"]), default=None)
        memory, cards = top["memory"], of_cards
        if kept is not None:
            memory = max(memory, kept.memory)
            cards = max(of_cards or 0, kept.card_memory or 0) or None
            if (memory, cards) == (kept.memory, kept.card_memory):
                if now - kept.measured_at >= NOTED_EVERY:  # nothing new, and in use
                    Measurement.objects.filter(digest=digest).update(measured_at=now)
                continue
        values = {"memory": memory, "card_memory": cards, "replica_id": top["replica"], "measured_at": now}
        Measurement.objects.update_or_create(digest=digest, defaults=values)
        count += 1
    return count


def prune(now: datetime) -> int:
    """Forget what nothing runs as any more."""
    gone = 0
    for table in (Measurement, Throughput):
        old = table.objects.filter(measured_at__lt=now - KEPT)
        gone += int(old.exclude(digest__in=Replica.objects.values("digest")).delete()[0])
    return gone


def hardware_of(replica: Replica) -> str:
    """The kind of hardware that a replica runs on, in words: `2 x NVIDIA L4`, or `processor with 16 cores`."""
    told = replica.node.hardware
    own = {uuid for share in replica.shares for uuid, _ in share.get("cards", ())}
    names = [str(card.get("name") or "card") for card in told.get("cards", ()) if card.get("uuid") in own]
    if own:
        counts = {name: names.count(name) for name in sorted(set(names))} or {"card": len(own)}
        nodes = f" on each of {len(replica.shares)} nodes" if len(replica.shares) > 1 else ""
        return ", ".join(f"{count} x {name}" for name, count in counts.items())[:180] + nodes
    return f"processor with {told.get('cores') or 'unknown'} cores"


def keep_throughput(
    *, digest: str, hardware: str, tps: float, at_once: int, first_s: float, objective: float
) -> None:  # fmt: skip
    """What a bench found of one replica; the newest replaces what was known."""
    values = {"tps": tps, "at_once": at_once, "first_s": first_s, "objective": objective, "measured_at": Now()}
    Throughput.objects.update_or_create(digest=digest, hardware=hardware, defaults=values)
