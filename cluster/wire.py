"""What agent and controllers say to each other, and what agent and gateway leave for each other in files.

Versioned frozen messages, to and from plain dicts. Rules of the wire: every message has a version `v`; unknown fields
are ignored, missing ones have defaults, so controller N talks to nodes N-1. Sizes are bytes, times Unix seconds.

    agent -> controller   POST /api/v1/agent/heartbeat   Heartbeat, answered by Wanted
    agent -> controller   POST /api/v1/agent/usage       UsageBatch, answered by {"stored": [record ids],
                                                       "refused": [{"record_id", "reason"}]}
    agent -> controller   GET  /api/v1/agent/snapshot?have=VERSION   the snapshot (routing.domain.snapshot), or 304
    agent -> controller   GET  /api/v1/agent/manifest?version=ID     catalog.domain.manifests.Manifest as a plain dict
    agent -> controller   POST /api/v1/agent/join        JoinRequest, answered by JoinAnswer (cluster.domain.joining)
    agent -> controller   POST /api/v1/agent/certificate CertificateRequest, answered by CertificateAnswer
    gateway -> controller POST /api/v1/agent/demand      Demand, answered by DemandAnswer
    agent -> controller   GET  /ws/agent                 websocket, signed as a call: nudges to look again now (Nudge), Ping
    agent -> gateway      <data>/cluster/engines.json    EnginesFile
    agent -> gateway      <data>/cluster/module-map.json, modules.json   MapFile, ModulesFile (cluster.domain.modules)
    gateway -> agent      <data>/run/agent.sock          one JSON Load a line
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cluster.domain.codec import VERSION as VERSION
from cluster.domain.codec import WireError as WireError
from cluster.domain.codec import from_dict as from_dict
from cluster.domain.codec import to_dict as to_dict
from cluster.domain.fetching import REGISTRY as REGISTRY
from cluster.domain.fetching import FetchOrder as FetchOrder
from cluster.domain.fetching import FetchReport as FetchReport
from cluster.domain.fetching import FetchSource as FetchSource
from cluster.domain.joining import ControllerAddress as ControllerAddress
from cluster.domain.joining import JoinAnswer as JoinAnswer
from cluster.domain.joining import JoinRequest as JoinRequest
from cluster.domain.modules import ModuleMap, ModuleReport

# --- agent -> controller ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CardReport:
    """One accelerator as NVML reports it; None is what the driver does not tell, never zero."""

    uuid: str
    name: str = ""
    memory_total: int | None = None
    memory_used: int | None = None
    memory_foreign: int | None = None  # held by processes that are not engines of ours
    problem: str = ""  # why it must not be used: Xid or ECC errors, fallen off the bus; empty: healthy
    temperature_c: int | None = None
    power_w: float | None = None
    utilisation: float | None = None  # 0..1


@dataclass(frozen=True, kw_only=True)
class Hardware:
    cores: int = 0
    memory_total: int = 0
    memory_available: int = 0
    disk_free: int = 0
    load_1m: float | None = None
    cards: tuple[CardReport, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EngineBuild:
    """An engine this node can run: `kind` is `llama.cpp` or `vllm`; `problem` says why it cannot, if it cannot.
    `architectures`: of models that it can load, as its own files name them; none: it does not tell."""

    kind: str
    version: str = ""
    problem: str = ""
    architectures: tuple[str, ...] = ()
    spans: bool = False  # it can be a part of a replica over several nodes, and this agent knows how


@dataclass(frozen=True, kw_only=True)
class WeightsReport:
    """What a node has at the path of a model's weights. `size`: bytes of all parts, of a folder 0; None: it has nothing
    there that it could read. Of each whole version of its store `path` is the version's id, asked for or not."""

    path: str
    size: int | None = None
    folder: bool = False


@dataclass(frozen=True, kw_only=True)
class ReplicaReport:
    """What the agent sees of one replica. `state`: see cluster.domain.states.ReplicaState."""

    replica_id: str
    generation: int
    state: str
    code: str = ""  # reason code of a failure or of waiting
    message: str = ""  # the same for people
    log_tail: str = ""  # last lines of the engine's log, of a failed start
    attempt: int = 1  # starts of this generation so far
    pid: int | None = None
    port: int | None = None
    started_at: float | None = None
    ready_at: float | None = None
    context: int | None = None  # tokens per slot, as the engine reports
    slots: int | None = None
    memory: int | None = None  # proportional set size of the engine's processes
    card_memory: int | None = None  # what they have of all cards together
    cpu: float | None = None  # cores that they kept busy in the last seconds, on average
    in_flight: int = 0
    waiting: int | None = None  # of these in the engine's own queue, as it says itself; None: it does not
    last_used_at: float | None = None
    wedged: int = 0  # times in a row that its engine was ready and then gave no token


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """Everything the agent sees; level-triggered, so a lost one costs time, never truth."""

    node_id: str
    boot_id: str  # of the agent process
    sent_at: float
    version: str = ""  # of llmgw
    name: str = ""
    address: str = ""  # base URL of this node's node listener
    hardware: Hardware = field(default_factory=Hardware)
    engines: tuple[EngineBuild, ...] = ()
    replicas: tuple[ReplicaReport, ...] = ()
    snapshot_version: str = ""  # that the node holds
    spool_records: int | None = None  # closed usage records not yet shipped
    problems: tuple[str, ...] = ()  # for people: disk short, spool growing, ...
    modules: tuple[ModuleReport, ...] = ()  # none: a node of before modules; it runs inference, router and edge
    roles: tuple[str, ...] = ()  # of its own settings, whatever the cluster setup says
    map_version: str = ""  # that the node holds
    weights_mark: str | None = (
        None  # names what lies there of the models' weights; empty: it has not looked yet; None: it never looks
    )
    weights: tuple[WeightsReport, ...] | None = None  # that itself, where the controllers hold it under another mark
    fetches: tuple[FetchReport, ...] | None = (
        None  # the orders that are not whole yet; None: it knows none, as before them
    )


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A file on the node's disk. The node checks that it is there and has this size (0: any) before each start.

    `sha256` (empty: not known) is checked once, by the job that adds the model: reading it anew costs minutes a start.
    With a `version`, `path` is that of a file within it ("": its folder), which the node has in its store or is to fetch, and
    `size` is that of the whole version.
    """

    path: str
    size: int = 0
    sha256: str = ""
    version: str = ""

    @property
    def name(self) -> str:
        """Names the file, wherever a node has it."""
        return f"{self.version}/{self.path}" if self.version else self.path


@dataclass(frozen=True, kw_only=True)
class AdapterFile:
    """An adapter that an engine loads beside its model. `name`: what clients ask for; `rank`: 0: not known."""

    name: str
    weights: Weights
    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class Serve:
    """How an engine runs a model: the profile, resolved by the controllers. 0 and "" mean: the node's default."""

    engine: str  # llama.cpp | vllm
    model: str  # name that the engine serves it under
    weights: Weights
    context: int = 0  # tokens per slot
    slots: int = 0  # requests at once
    threads: int = 0
    embeddings: bool = False
    pooling: str = ""
    args: tuple[str, ...] = ()  # vetted again on the node
    env: dict[str, str] = field(default_factory=dict)
    start_timeout: float = 0.0
    drain_timeout: float = 0.0
    memory: int = 0  # reserved
    cards: tuple[str, ...] = ()  # UUIDs of the cards that it uses; none: the processor
    card_memory: tuple[int, ...] = ()  # bytes of each of them that it may use
    card_base: int = 0  # of which so many are for no layer
    card_layers: tuple[int, ...] = ()  # layers for each of them, where that is known
    projector: str = ""  # path within the weights' version of what lets the model see or hear
    adapters: tuple[AdapterFile, ...] = ()
    nodes: int = 1  # of one fabric that share the replica; of more than one, each runs a part
    rank: int = 0  # of this node's part; 0 leads, and it alone answers clients
    master: str = ""  # the leader's IP address on the fabric
    master_port: int = 0  # where its parts meet
    address: str = ""  # this node's IP address on the fabric


@dataclass(frozen=True, kw_only=True)
class WantedReplica:
    """`run` True: have it running at this generation; False: drain it, then stop it. Not listed: stop it, drained.
    `hold`: have all that it takes, and begin when the nodes of its other parts have, too."""

    replica_id: str
    generation: int
    run: bool
    serve: Serve
    grace: float | None = None  # seconds that it may drain at most, where its room is taken; None: as its profile says
    hold: bool = False


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Answer to a heartbeat, the only place where wanted state stands."""

    server_time: float
    snapshot_version: str = ""
    replicas: tuple[WantedReplica, ...] = ()
    heartbeat: float = 1.0  # seconds to the next one
    map_version: str = ""  # that is current
    map: ModuleMap | None = None  # only where the node's is not the current one
    roles: tuple[str, ...] | None = None  # by the cluster setup; None: it does not name this node
    weights_mark: str | None = None  # of the report of weights that the controllers hold; None: they keep none
    fetches: tuple[FetchOrder, ...] = ()  # versions that the node lacks and shall have
    kept: tuple[str, ...] | None = (
        None  # versions not to be removed: of a data node all that there are; None: nothing is said of them
    )
    removed: tuple[str, ...] = ()  # versions that the node has and that somebody removed


@dataclass(frozen=True, kw_only=True)
class CertificateRequest:
    """A node asks for its next certificate."""

    csr: str  # PEM


@dataclass(frozen=True, kw_only=True)
class CertificateAnswer:
    certificate: str  # PEM
    ca_certificate: str  # PEM


NODES_GROUP = "nodes"
"""The channel layer's group of every connected node; each is in `node_group` of its own id too."""


def node_group(node_id: str) -> str:
    return f"node.{node_id}"


@dataclass(frozen=True, kw_only=True)
class Nudge:
    """Through the websocket from a controller: look again now. `removed`: nodes that are out of the cluster from now on.
    `revoked`: SHA-256 of texts of keys and admin tokens that are worth nothing from now on, whatever snapshot a node holds.

    `echoes`: from now on this controller sends each `Ping` back as it came. Its first message says so; an older one never does.
    """

    reason: str = ""
    removed: tuple[str, ...] = ()
    echoes: bool = False
    revoked: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ping:
    """Through the same websocket from an agent, and back: `web` is at work. A gateway before a `web` that stands still
    goes on answering the websocket's own pings."""

    ping: int


LONGEST_PING = 64
"""Characters."""


@dataclass(frozen=True, kw_only=True)
class UsageBatch:
    """Closed usage records, oldest first, each a routing.domain.records.UsageRecord as a plain dict."""

    node_id: str
    records: tuple[dict[str, Any], ...] = ()


# --- gateway -> controller ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Requests wait at this gateway for a model that runs on demand. Said again about each second, as long as they do."""

    model: str  # its name
    attempt: float | None = None  # that they wait for, as the answer before named it; None: a request has just come


@dataclass(frozen=True, kw_only=True)
class DemandAnswer:
    """How the attempt stands. `state`: see cluster.domain.demand.Stage."""

    state: str
    attempt: float = 0.0  # an attempt is named by its time
    code: str = ""  # why it came to nothing: stable code
    message: str = ""  # the same for people; of one that goes on, how far it is


# --- agent <-> gateway on one node --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LocalAdapter:
    """An adapter that an engine has loaded. `weights`: name of its file; `id`: the engine's number of it, None: it goes by name."""

    name: str
    weights: str
    id: int | None = None


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """A running engine of this node, as the gateway needs it. `state`: `ready` or `draining`."""

    replica_id: str
    model: str  # the catalogue's name
    engine: str
    state: str
    host: str
    port: int
    key: str  # the engine's own API key; engines.json is 0600 for it
    slots: int = 1
    context: int = 0  # tokens per slot; 0: not known
    served_name: str = ""  # name the engine wants in the body; empty: any
    leaving: bool = False  # ready, and about to drain or in doubt: for requests of those who have nobody else
    adapters: tuple[LocalAdapter, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StartingReplica:
    """A wanted replica of this node that is not ready: why, for 503 answers."""

    replica_id: str
    model: str
    state: str
    code: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class EnginesFile:
    """Engines of this node; written by the agent at each change, watched by the gateway."""

    written_at: float
    engines: tuple[LocalEngine, ...] = ()
    starting: tuple[StartingReplica, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReplicaLoad:
    in_flight: int = 0
    last_used_at: float | None = None
    waiting: int | None = None  # in the engine's own queue, as it says itself; None: it does not, or not any more
    still_for: float | None = None  # seconds that its engine has computed nothing, by its own counts; None: not known
    patience: float | None = None  # seconds that a request to it waits for its first byte; None: not told


@dataclass(frozen=True, kw_only=True)
class Load:
    """What the gateway tells the agent, each second and at once when a draining replica becomes idle."""

    replicas: dict[str, ReplicaLoad] = field(default_factory=dict)
    suspects: tuple[str, ...] = ()  # replicas whose engine refused a connection or broke off: look at them
    problems: tuple[str, ...] = ()  # of the gateway itself, for people
