"""Frozen views of catalogue rows, as the floors above work with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LimitView:
    """What a key or the keys of a scope may use of the endpoint; None: as much as there is."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    parallel: int | None = None


@dataclass(frozen=True, kw_only=True)
class KeyView:
    """A text of a key that is worth something now."""

    key_id: str
    sha256: str
    prefix: str
    project_id: str
    models: tuple[str, ...] | None  # names it may use; None: all
    expires_at: float | None
    user_id: str = ""  # whose it is; empty: the project's
    priority: int = 0
    limit: LimitView | None = None
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class ScopeView:
    """An organisation, a team or a project, with what it says of the keys below it."""

    scope_id: str
    kind: str  # organisation, team, project
    name: str
    parent: str  # id of the scope above; empty: none
    models: tuple[str, ...] | None  # names that may be used below it; None: all
    limit: LimitView | None = None  # of all keys below it together
    priority_class: str = ""  # of their requests; empty: as the scope above says


@dataclass(frozen=True, kw_only=True)
class ProfileView:
    """One way to run a model; 0 means the node's or the setting's value."""

    profile_id: str
    name: str
    engine: str
    priority: int
    context: int
    slots: int
    threads: int
    memory: int
    args: tuple[str, ...]
    env: Mapping[str, str]
    start_timeout: float
    drain_timeout: float
    nodes: tuple[str, ...] = ()  # names of the only nodes that it may run on; none: any
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus_per_node: int = 0
    tp: int = 0
    pp: int = 1
    card_classes: tuple[str, ...] = ()
    card_memory: int = 0
    measured_tps: float = 0.0  # tokens/s of one replica; 0: not measured
    measured_concurrency: float = 0.0  # requests at once that one replica serves well; 0: not measured


@dataclass(frozen=True, kw_only=True)
class AliasView:
    """A name that stands for one of several models or adapters. `targets`: their names and weights."""

    name: str
    created_at: float
    targets: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class AdapterView:
    """A LoRA adapter of a model. `path`: on the nodes; with a `version_id`, within that: the file that an engine is given, or
    empty: the folder. `size`: bytes. `former_id`, `former_path`: the version before its last update, and the file within it;
    or the path alone of a file on the nodes."""

    name: str
    created_at: float
    path: str
    version_id: str = ""
    former_id: str = ""
    former_path: str = ""
    size: int = 0
    scale: float = 1.0
    rank: int = 0  # 0: not known
    format: str = "gguf"


@dataclass(frozen=True, kw_only=True)
class PriceView:
    """What a million tokens cost, in millionths of the cluster's currency."""

    input: int
    output: int
    cached: int | None = None  # from the engine's cache; None: as `input`


@dataclass(frozen=True, kw_only=True)
class ModelView:
    """A model with its enabled profiles, first choice first. An external one has a provider, and no weights or profiles."""

    model_id: str
    name: str
    enabled: bool
    replicas: int  # that shall run whatever the load
    created_at: float
    updated_at: float
    weights_path: str
    weights_size: int | None
    weights_sha256: str
    embeddings: bool
    owner: str  # name of the owning project; empty: everybody's
    facts: Mapping[str, Any] = field(default_factory=dict)
    profiles: tuple[ProfileView, ...] = ()
    max_replicas: int | None = None
    rest_after: float | None = None  # seconds; None: the setting
    priority_class: str = ""
    scope_id: str = ""  # of the organisation, team or project that owns it
    first_byte_timeout: float | None = None  # seconds; None: the node's setting
    idle_timeout: float | None = None
    queue_length: int | None = None  # None: the node's setting
    queue_wait: float | None = None  # seconds; likewise
    fallbacks: tuple[str, ...] = ()
    price: PriceView | None = None
    provider_id: str = ""
    provider_model: str = ""  # the provider's own name for it
    provider_enabled: bool = True
    version_id: str = ""  # of weights that the cluster fetches; empty: they lie at `weights_path`
    first: str = ""  # of a version: file that an engine is given; empty: the folder
    projector: str = ""  # of a version: file that lets it see or hear
    adapters: tuple[AdapterView, ...] = ()

    @property
    def external(self) -> bool:
        """Whether a provider answers for it, and no engine of ours."""
        return bool(self.provider_id)


@dataclass(frozen=True, kw_only=True)
class ProviderView:
    """An external provider, for the nodes that run the cloud module."""

    provider_id: str
    name: str
    url: str
    api_key_file: str = ""
    key_digest: str = ""  # names the key that is set; empty: none is


@dataclass(frozen=True, kw_only=True)
class AdminView:
    """An admin token of an active superuser that is worth something now."""

    token_id: str
    sha256: str
    user: str
    expires_at: float


@dataclass(frozen=True, kw_only=True)
class QuotaView:
    """A part of the tenancy tree with what it is guaranteed and limited to; both empty where nobody set a quota.

    An amount is `{"cards": {class: number}, "cores": n, "memory": bytes}`, each part of it optional.
    """

    scope_id: str
    kind: str  # organisation | team | project
    name: str
    parent_id: str = ""
    guarantee: Mapping[str, Any] = field(default_factory=dict)
    limit: Mapping[str, Any] = field(default_factory=dict)
