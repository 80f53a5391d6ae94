"""What was decided of a model, in a few words: the headline of a line in the decision log, whose reason follows."""

from __future__ import annotations

from cluster.domain.types import Standing


def decided(name: str, before: Standing, after: Standing) -> str:
    """The first of these that changed.

    1. it is parked, or no longer
    2. it wakes up for a request, or goes to rest
    3. it grows, or shrinks
    4. a restart is over, or goes on with fewer
    5. anything else that is remembered of it
    """
    if (before.parked_at is None) != (after.parked_at is None):  # 1
        return f"{name} is parked" if after.parked_at is not None else f"{name} is no longer parked"
    if (before.asked_at is None) != (after.asked_at is None):  # 2
        return f"{name} goes to rest" if after.asked_at is None else f"{name} wakes up"
    if before.grown != after.grown:  # 3
        more = after.grown > before.grown
        return f"{name} gets a replica more" if more else f"{name} gives a replica back"
    if before.restarting and not after.restarting:  # 4
        return f"the restart of {name} is over"
    if before.restarting != after.restarting:
        return f"the restart of {name} goes on, {len(after.restarting)} to go"
    return f"what is wanted of {name} changed"  # 5
