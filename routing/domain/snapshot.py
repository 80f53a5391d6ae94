"""The snapshot: the immutable, compiled view of keys and models that the data path works from.

Compiled on controllers (`routing/selectors.py`), written by the agent to `<data>/cluster/snapshot.json`, read by
`routing/gateway/table.py`. `version` is opaque to nodes: `EPOCH:COUNTER` (the epoch names a store, the counter rises
within it), and a mark behind it where the node is given more than others.
Plain dicts by `cluster.wire.to_dict` and `from_dict`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LimitEntry:
    """What a key, or all keys of a scope together, may have at most; None: as much as there is."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None  # of requests and answers together
    parallel: int | None = None  # requests at a time


@dataclass(frozen=True, kw_only=True)
class BudgetEntry:
    """A budget of a key or a scope of which so much is spent that something follows. Amounts in millionths of `currency`."""

    budget_id: str
    period: str  # day, month
    amount: int
    spent: int  # at least, when this was told
    resets_at: float  # Unix time; from then on nothing follows from this entry
    hard: bool = True  # once all of it is spent, what costs something is refused
    currency: str = ""


@dataclass(frozen=True, kw_only=True)
class KeyEntry:
    """A text of an API key, by its SHA-256. Revoked keys are absent: what is not here is refused. A key that was rotated is
    there twice, its old text until it ends."""

    key_id: str
    sha256: str  # hex of the whole key text
    prefix: str  # shown in logs
    project_id: str
    models: tuple[str, ...] | None = None  # names it may use; None: all. Its scopes may allow less: see tenancy.py
    expires_at: float | None = None
    user: str = ""  # id of the user whose key it is; empty: the project's
    priority: int = 0  # see queueing.py
    limit: LimitEntry | None = None  # of the key, all its texts together
    name: str = ""  # what people call it; only where a limit or a budget has to be named
    budgets: tuple[BudgetEntry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScopeEntry:
    """An organisation, a team or a project from which something follows for the keys below it, or that lies between."""

    scope_id: str
    kind: str  # organisation, team, project
    name: str
    parent: str = ""  # id of the scope above; empty: none
    models: tuple[str, ...] | None = None  # names that may be used below it; None: all
    limit: LimitEntry | None = None  # of all keys below it together
    budgets: tuple[BudgetEntry, ...] = ()  # the same
    priority_class: str = ""  # of their requests, see queueing.py; empty: as the scope above says


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A replica that shall run, and where. `state` as in cluster.domain.states.ReplicaState, `lost` included."""

    replica_id: str
    node_id: str
    state: str = "pending"
    slots: int = 1
    concurrency: float = 0.0  # requests at once that it was measured to serve well; 0: not measured


@dataclass(frozen=True, kw_only=True)
class External:
    """Who answers for a model that no engine of ours runs."""

    provider_id: str
    model: str  # the provider's own name for it


@dataclass(frozen=True, kw_only=True)
class ProviderEntry:
    """An external OpenAI-compatible provider. Its key is sealed to the node that asked, and only where that runs `cloud`."""

    provider_id: str
    name: str
    url: str  # base URL, `/v1` included
    key_file: str = ""  # file on the cloud node; read afresh for each use
    sealed_key: str = ""  # under the pairwise key of node and controllers (cluster.domain.signing)
    key_digest: str = ""  # names the key, so that a new one makes a new snapshot


@dataclass(frozen=True, kw_only=True)
class AdminEntry:
    """An administrator's token, by the SHA-256 of its text: for the endpoints that a node's gateway answers itself."""

    token_id: str
    sha256: str
    user: str
    expires_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class AdapterEntry:
    """An adapter of a model: asked for by its own name, answered by the model's replicas. `weights`: names its file, as engines do;
    `former`: the one before its last update, which answers where it is still loaded; empty: none."""

    name: str
    created: int  # Unix seconds
    weights: str
    scale: float = 1.0
    former: str = ""


@dataclass(frozen=True, kw_only=True)
class TargetEntry:
    """A model or an adapter that an alias stands for."""

    model: str  # its name
    weight: int = 1  # of the sum of all weights the share of requests


@dataclass(frozen=True, kw_only=True)
class AliasEntry:
    """A name that stands for one of several models: asked for like one (see aliases.py)."""

    name: str
    created: int  # Unix seconds
    targets: tuple[TargetEntry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PriceEntry:
    """What a million tokens cost, in micro-units of `currency`."""

    input: int
    output: int
    cached: int | None = None  # of a prompt, from the engine's cache; None: as `input`
    currency: str = ""  # the cluster's


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """A model of the catalogue. Not enabled: refused with `reason`."""

    name: str
    created: int  # Unix seconds
    owned_by: str = "llmgw"
    enabled: bool = True
    code: str = ""  # why it cannot be served, if the controllers know: stable code
    reason: str = ""  # the same for people, with what to do
    replicas: tuple[str, ...] = ()  # replica ids that may answer, wherever they are
    context: int | None = None
    embeddings: bool = False
    first_byte_timeout: float | None = None  # seconds; None: the node's setting
    idle_timeout: float | None = None
    queue_length: int | None = None  # None: the node's setting
    queue_wait: float | None = None  # seconds; likewise
    fallbacks: tuple[str, ...] = ()  # names of models that answer while it cannot, the first choice first
    placed: tuple[Placed, ...] = ()  # the same replicas, with node and state
    external: External | None = None
    weights: str = ""  # path on the nodes that run it: each of them says whether it has that
    on_demand: bool = False  # at rest until it is asked for: a gateway with a request for it tells a controller
    adapters: tuple[AdapterEntry, ...] = ()
    price: PriceEntry | None = None  # None: what it costs is not known
    parent: str = ""  # of an adapter: the model whose replicas answer (see adapters.py); in no snapshot

    @property
    def base(self) -> str:
        """The name of the model that engines run for it."""
        return self.parent or self.name


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    version: str
    made_at: float
    keys: tuple[KeyEntry, ...] = ()
    models: tuple[ModelEntry, ...] = ()
    admins: tuple[AdminEntry, ...] = ()
    providers: tuple[ProviderEntry, ...] = ()  # on nodes that run `cloud`
    scopes: tuple[ScopeEntry, ...] = ()
    aliases: tuple[AliasEntry, ...] = ()
