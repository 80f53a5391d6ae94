"""How near a model is to a replica more or less: its load against the thresholds of scaling, as the page draws it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.domain.scale import REST_SHARE, Load
from cluster.domain.types import ModelView, World
from llmgw_site.console.figures import percent
from llmgw_site.lib.units import format_seconds

BEYOND = 1.25
"""The scale reaches so many times as far as the upper threshold."""
MOST_PIPS = 24


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """`load`, `up` and `down` are places on the scale in percent; `down` None: nothing can be taken back now."""

    words: str
    load: float
    up: float
    down: float | None
    up_words: str
    down_words: str
    progress: float | None  # of the time after which a step is taken, in percent
    progress_words: str
    look: str


def gauge(world: World, model: ModelView, load: Load, now: float) -> Gauge | None:
    """None where nothing scales: its maximum is its base, it is at rest, or nothing of it is ready."""
    if model.limit <= model.least or not load.ready:
        return None
    if load.capacity:
        up, rest = load.capacity, REST_SHARE * (load.capacity - load.best)
        up_words = f"one more above {load.capacity:g} under way, as measured"
        down_words = f"one less below {rest:g} under way, {REST_SHARE:.0%} of what the others were measured to serve"
    else:
        up, rest = float(load.slots + load.ready), float(load.slots - load.widest)
        up_words = "one more from 1 request that waits" + (
            f" for each of {load.ready} replicas" if load.ready > 1 else ""
        )
        down_words = f"one less up to {rest:g} under way, the slots of the others"
    top = max(BEYOND * up, load.in_flight, 1.0)
    standing, spare = model.standing, bool(model.standing.grown)
    progress, words, look = None, "", "warn" if load.pressed else ""
    if standing.pressed_since is not None:
        progress, words = _progress(
            "too much has been under way", now - standing.pressed_since, world.scale_up_after, "one more"
        )
    elif standing.quiet_since is not None:
        progress, words = _progress("it has been quiet", now - standing.quiet_since, world.scale_down_after, "one less")
    elif load.pressed and model.target >= model.limit:
        words = f"too much is under way, and it has the {model.limit} replicas of its maximum"
    waiting = f", {load.waiting} wait" if load.waiting else ""
    return Gauge(
        words=f"{load.in_flight} under way at {load.slots} slot{'' if load.slots == 1 else 's'}{waiting}",
        load=percent(load.in_flight, top) or 0.0,
        up=percent(up, top) or 0.0,
        down=percent(rest, top) if spare and load.ready > 1 else None,
        up_words=up_words,
        down_words=down_words if spare and load.ready > 1 else "",
        progress=progress,
        progress_words=words,
        look=look,
    )


def _progress(what: str, spent: float, after: float, then: str) -> tuple[float, str]:
    text = f"{what} for {format_seconds(max(0.0, spent))}; {then} after {format_seconds(after)}"
    return percent(spent, after) or 0.0, text


def pips(model: ModelView, ready: int, wanted: int) -> tuple[str, ...]:
    """A mark for each replica up to the maximum: `ready`, `missing` (wanted and not ready) or `spare` (allowed); none where
    there would be too many to look at."""
    most = max(model.limit, wanted, ready)
    if most > MOST_PIPS:
        return ()
    marks = ["ready"] * ready + ["missing"] * max(0, wanted - ready)
    return tuple(marks + ["spare"] * (most - len(marks)))
