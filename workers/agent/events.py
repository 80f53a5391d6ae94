"""What happens to the machine (events) and what it wants done (instructions). Plain values; no I/O.

`launch` numbers the processes of one agent: news of a process that is already gone can never be taken for news of
its successor. Each instruction names its cause, so that the log can be read backwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cluster.wire import ReplicaLoad, Serve, WantedReplica


class Verdict(StrEnum):
    """What a look at an engine found."""

    LOADING = "loading"  # nobody listens yet, or it answers 503: normal for as long as the start may take
    READY = "ready"  # alive; of a deep look: one real token (or embedding) came out
    SILENT = "silent"  # no answer in time
    BROKEN = "broken"  # an answer that a loaded engine does not give; `message` has it


# --- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WantedArrived:
    """Wanted state, whole: from a controller's answer, or at start from this node's own copy of the last one."""

    replicas: tuple[WantedReplica, ...]


@dataclass(frozen=True, kw_only=True)
class InferenceSwitched:
    """This node's inference module is on or off. Off: nothing that is wanted is run."""

    on: bool


@dataclass(frozen=True, kw_only=True)
class Adopted:
    """An engine that an earlier agent started is alive. `ready_at` None: that agent never saw it ready."""

    replica_id: str
    generation: int
    serve: Serve
    pid: int
    port: int
    key: str = field(repr=False)
    started_at: float
    ready_at: float | None = None
    context: int | None = None
    slots: int | None = None
    loras: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Spawned:
    replica_id: str
    launch: int
    pid: int
    port: int
    key: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SpawnFailed:
    """No process came to be. `final`: trying again cannot help until something is changed."""

    replica_id: str
    launch: int
    code: str
    message: str
    final: bool = False


@dataclass(frozen=True, kw_only=True)
class Exited:
    """The process is gone. `status`: exit code, negative for a signal, None for an adopted one (nobody can know)."""

    replica_id: str
    launch: int
    status: int | None
    log_tail: str = ""


@dataclass(frozen=True, kw_only=True)
class Probed:
    replica_id: str
    launch: int
    deep: bool
    verdict: Verdict
    message: str = ""
    context: int | None = None  # tokens per slot
    slots: int | None = None
    in_flight: int | None = None  # requests that the engine works on, as it says itself
    loras: tuple[int, ...] = ()  # the engine's numbers of its adapters


@dataclass(frozen=True, kw_only=True)
class LoadReported:
    """The gateway's figures."""

    replicas: Mapping[str, ReplicaLoad]
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GatewayGone:
    """The gateway's connection ended; what it said no longer counts."""


@dataclass(frozen=True, kw_only=True)
class WeightsSeen:
    """Versions that are whole in this node's store (None: as before), and how those stand that are to be fetched, each with a
    reason code and words for people."""

    whole: frozenset[str] | None = None
    fetches: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Time went by."""


Event = (
    WantedArrived
    | InferenceSwitched
    | Adopted
    | Spawned
    | SpawnFailed
    | Exited
    | Probed
    | LoadReported
    | GatewayGone
    | WeightsSeen
    | Tick
)


# --- instructions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Spawn:
    """Write the intent, start the engine, answer with Spawned or SpawnFailed; later with Exited."""

    replica_id: str
    launch: int
    generation: int
    serve: Serve
    cause: str


@dataclass(frozen=True, kw_only=True)
class Signal:
    """Send it to the engine's whole process group. `kill` False: SIGTERM."""

    replica_id: str
    launch: int
    kill: bool
    cause: str


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Look at the engine, answer with Probed. `deep`: ask for one real token or embedding."""

    replica_id: str
    launch: int
    deep: bool
    cause: str


@dataclass(frozen=True, kw_only=True)
class Remember:
    """Note beside the intent that this engine is ready, for the next agent's adoption."""

    replica_id: str
    launch: int
    ready_at: float
    context: int | None
    slots: int | None
    loras: tuple[int, ...] = ()
    cause: str


@dataclass(frozen=True, kw_only=True)
class Forget:
    """The replica has no process left and is not wanted: drop the intent and the log."""

    replica_id: str
    cause: str


@dataclass(frozen=True, kw_only=True)
class WriteEngines:
    """What the gateway should know changed: write engines.json."""

    cause: str


@dataclass(frozen=True, kw_only=True)
class ReportNow:
    """What the controllers should know changed: send a heartbeat at once."""

    cause: str


Instruction = Spawn | Signal | Probe | Remember | Forget | WriteEngines | ReportNow
