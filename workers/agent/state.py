"""What the machine keeps about each replica, and the times it goes by. Changed by `machine.py` only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cluster.wire import ReplicaLoad, Serve, WantedReplica
from llmgw_site.lib.units import GIB

START_BASE = 300.0
START_PER_GIB = 20.0
"""Seconds for any engine, and for each GiB of its weights: a disk of 50 MiB/s has read them by then."""
START_UNKNOWN = 1200.0
"""Seconds where nobody knows how large they are."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The times that decisions go by, in seconds."""

    start_timeout: float = 7200.0  # at most, of a profile that names none: see `start_deadline`
    drain_timeout: float = 300.0  # the same
    handover: float = (
        0.0  # from the word to stop to the drain: routers learn meanwhile that they shall send nothing more
    )
    drain_notice: float = (
        0.5  # the gateway needs so long to learn that an engine drains; what it counts before proves nothing
    )
    term_grace: float = 10.0  # from SIGTERM to SIGKILL
    kill_again: float = 10.0  # an engine in an uninterruptible call is told again
    longest_pause: float = 60.0  # between two attempts to start
    failures_to_backoff: int = 3
    stable_after: float = 60.0  # ready for so long, the failures before it are forgotten
    probe_first: float = 0.1  # pause between looks at a starting engine, growing to
    probe_longest: float = 1.0
    probe_ready: float = 15.0  # pause between looks at a ready one
    silent_looks: int = 4  # so many looks without an answer, and for
    silent_for: float = 60.0  # so long, and a ready engine is replaced
    deep_every: float = 120.0  # a ready engine that computed nothing for so long is asked for a token; 0: never
    deep_suspect: float = 10.0  # pause between two of these while requests to it fail
    deep_patience: float = 60.0  # an engine with nothing else to do has so long for one
    deep_misses: int = 2  # so many that did not come, and it is replaced
    gateway_grace: float = 3.0  # a gateway that restarts has so long to come back and say what is in flight

    def start_deadline(self, serve: Serve) -> float:
        """Seconds that an engine may take to become ready: as its profile says, else by the size of its weights."""
        size = serve.weights.size
        by_size = START_BASE + START_PER_GIB * size / GIB if size else START_UNKNOWN
        return serve.start_timeout or min(by_size, self.start_timeout)


class Phase(StrEnum):
    SPAWNING = "spawning"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    ENDING = "ending"


@dataclass(kw_only=True)
class Process:
    """The one process of a replica."""

    launch: int
    generation: int
    serve: Serve
    phase: Phase
    started_at: float
    pid: int | None = None
    port: int = 0
    key: str = field(default="", repr=False)
    ready_at: float | None = None
    context: int | None = None
    slots: int | None = None
    loras: tuple[int, ...] = ()  # the engine's numbers of `serve.adapters`
    since: float = 0.0  # when the phase began
    asked_at: float | None = None  # the look that has no answer yet
    next_probe: float = 0.0
    probe_pause: float = 0.0
    silent: int = 0
    heard_at: float = 0.0
    deep_asked_at: float | None = None  # the token that a ready engine owes
    deep_alone: bool = False  # nothing else was in it when it was asked
    deep_last: float = 0.0
    deep_missed: int = 0
    next_deep: float = 0.0
    owed_since: float | None = None  # the first question since the last token; None: it owes none
    moved_at: float | None = None  # when it last computed, by its own counts; None: it does not tell
    doubted_at: float = 0.0  # when something last spoke against it
    killed_at: float | None = None
    load: ReplicaLoad | None = None  # the gateway's figures
    engine_in_flight: int | None = None  # the engine's own
    idle: bool = False  # draining, and the gateway, knowing it, says that nothing is in flight
    leave_at: float | None = None  # ready, not wanted any more: when its drain begins
    ending: tuple[str, str] | None = None  # code and message, if it ends because it failed


@dataclass(kw_only=True)
class Replica:
    """What is wanted, what runs, and what went wrong so far."""

    replica_id: str
    wanted: WantedReplica | None = None
    process: Process | None = None
    failures: int = 0  # unexpected ends in a row
    wedged: int = 0  # of these the last ones, of an engine that was ready and gave no token
    attempt: int = 0  # starts of this generation
    retry_at: float = 0.0
    code: str = ""
    message: str = ""
    log_tail: str = ""
    final: bool = False
    ended: bool = False  # a part of a replica over several nodes whose process ended: alone it never begins again
    lacks: str = ""  # version of its weights that is to be fetched first
    last_used_at: float | None = None

    @property
    def run(self) -> bool:
        return self.wanted is not None and self.wanted.run

    @property
    def held(self) -> bool:
        """Whether it begins with others, and they are not there yet."""
        return self.wanted is not None and self.wanted.hold

    @property
    def at_rest(self) -> bool:
        """Without a process: whether nothing of it is to be begun by itself."""
        return not self.run or self.final or self.ended or bool(self.lacks) or self.held


def versions(serve: Serve) -> tuple[str, ...]:
    """What it needs of this node's store: its weights' version and those of its adapters."""
    found = (serve.weights.version, *(item.weights.version for item in serve.adapters))
    return tuple(dict.fromkeys(version for version in found if version))
