"""Reads of the cluster: the world that decisions are made from, what a node shall do, how models stand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Protocol

from django.conf import settings
from django.db import connection
from django.db.models import Count, Q, QuerySet, Sum

from catalog import selectors as catalog
from catalog.domain.types import ModelView as CatalogModel
from cluster.domain import explain, health
from cluster.domain.amounts import scope_of
from cluster.domain.explain import ModelStatus
from cluster.domain.fetching import NO_ROOM
from cluster.domain.holdings import Holding
from cluster.domain.modules import LEGACY_MODULES, ModuleReport, ModuleState
from cluster.domain.plan import Plan
from cluster.domain.reconcile import reconcile
from cluster.domain.setup import Setup, SetupNode, roles_of
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import (
    CardView,
    Claim,
    Klass,
    ModelView,
    NodeView,
    ReplicaView,
    ScopeView,
    Share,
    Standing,
    World,
)
from cluster.domain.waits import TO_MOVE
from cluster.models import ClusterIdentity, ClusterSetup, ModelStanding, Node, Replica
from cluster.selectors import parts
from cluster.selectors.fleet import NodeRow, node_rows
from cluster.selectors.holdings import Holdings, sought
from cluster.selectors.queue import job_as_dict as job_as_dict
from cluster.selectors.queue import job_dict as job_dict
from cluster.selectors.queue import jobs as jobs
from cluster.selectors.queue import latest_jobs as latest_jobs
from cluster.selectors.queue import open_jobs as open_jobs
from cluster.selectors.ways import Measured, measured, profile_view
from cluster.selectors.ways import digest_of as digest_of
from cluster.selectors.ways import serve_of as serve_of
from cluster.wire import Serve, WantedReplica, from_dict, to_dict

NOW = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "extract(epoch FROM clock_timestamp())",
}
"""Unix time by the database's clock, as an SQL expression."""


def database_now() -> float:
    """Unix time by the database's clock, the one that all controllers share."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {NOW[connection.vendor]}")
        return float(cursor.fetchone()[0])


def unix(moment: datetime) -> float:
    return moment.timestamp()


def from_unix(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


def listening_of(identity: ClusterIdentity | None) -> health.Listening:
    if identity is None or identity.listening_since is None or identity.listening_at is None:
        return health.Listening()
    return health.Listening(unix(identity.listening_since), unix(identity.listening_at))


def world(now: float | None = None, *, waits: bool = True) -> World:
    """Everything that decisions need. Ten queries, however many rows; one more where no time is given, three where
    there are quotas."""
    return picture(now, waits=waits)[0]


def picture(now: float | None = None, *, waits: bool = True) -> tuple[World, Mapping[str, Serve]]:
    """The world, and what each enabled profile resolves to, by its id. `waits`: for what nodes will say of new weights."""
    now = database_now() if now is None else now
    listening = listening_of(ClusterIdentity.objects.filter(id=ClusterIdentity.ONLY).first())
    serves: dict[str, Serve] = {}
    standings = {row.model_id: row for row in ModelStanding.objects.all()}
    catalogue = catalog.model_views()
    setup = cluster_setup()
    found = list(Replica.objects.defer("serve", "log_tail", "why").order_by("id"))
    replicas, used = tuple(replica_view(row) for row in found), _used(found)
    held = _held(replicas)
    lies, sizes = Holdings([sought(item) for item in catalogue], now if waits else math.inf), measured()
    nodes = tuple(node_view(node, setup, listening, now, held, lies.of(node)) for node in node_rows())
    models = tuple(
        _model_view(item, serves, sizes, standings.get(item.model_id), used.get(item.model_id), lies)
        for item in catalogue
    )
    claims = tuple(
        Claim(model_id=row.model_id, shares=shares_of(row.claim), until=row.claim_until)
        for row in standings.values()
        if row.claim
    )
    config = settings.CONFIG
    made = World(
        models=models,
        nodes=nodes,
        replicas=replicas,
        scopes=scopes(),
        claims=claims,
        pack=config.placement == "pack",
        heard_every=config.heartbeat,
        scale_up_after=config.scale_up_after,
        scale_down_after=config.scale_down_after,
    )
    return made, serves


def _used(replicas: Iterable[Replica]) -> dict[str, float]:
    """When each model's replicas were last used, by what nodes report: no row is written for it."""
    used: dict[str, float] = {}
    for row in replicas:
        if row.last_used_at is not None:
            used[row.model_id] = max(unix(row.last_used_at), used.get(row.model_id, 0.0))
    return used


def _model_view(
    model: CatalogModel,
    serves: dict[str, Serve],
    sizes: Mapping[str, Measured],
    standing: ModelStanding | None,
    used: float | None = None,
    lies: Holdings | None = None,
) -> ModelView:
    """`sizes`: measured memory by digest. `used`: when its replicas were last used; a request that waits for it counts too.
    `lies`: what nodes say of weights, once all were looked at."""
    profiles = []
    for profile in model.profiles:
        serve = serves[profile.profile_id] = serve_of(model, profile)
        profiles.append(profile_view(model, profile, serve, sizes))
    on_demand = model.replicas == 0 and bool(model.max_replicas)
    klass = model.priority_class or ("opportunistic" if on_demand else "standard")
    weights = sought(model).name
    unsaid = lies is not None and weights in lies.unsaid
    return ModelView(
        id=model.model_id,
        name=model.name,
        enabled=model.enabled,
        base=model.replicas,
        most=model.max_replicas,
        klass=Klass[klass.upper()],
        rest_after=settings.CONFIG.rest_after if model.rest_after is None else model.rest_after,
        standing=standing_of(standing, used) if standing else Standing(used_at=used),
        owner=model.scope_id,
        profiles=tuple(profiles),
        external=model.external,
        provider_enabled=model.provider_enabled,
        weights=weights,
        weights_size=model.weights_size or 0,
        asking=unsaid and lies is not None and weights in lies.awaited,
        unsaid=unsaid,
    )


def standing_of(row: ModelStanding, used: float | None = None) -> Standing:
    values = {item.name: getattr(row, item.name) for item in fields(Standing)}
    values["used_at"] = max((at for at in (row.used_at, used) if at is not None), default=None)
    vetted = None if row.vetted is None else tuple(row.vetted)
    return Standing(**{**values, "restarting": tuple(row.restarting), "vetted": vetted})


def shares_of(rows: list[dict[str, Any]]) -> tuple[Share, ...]:
    """Shares as a column keeps them."""
    return tuple(
        Share(
            node_id=item["node_id"],
            memory=item["memory"],
            cores=item["cores"],
            cards=tuple((uuid, size) for uuid, size in item["cards"]),
        )
        for item in rows
    )


def scopes() -> tuple[ScopeView, ...]:
    """The whole tenancy tree with its quotas; none of it where no quota is set. One query, or four."""
    return tuple(scope_of(item) for item in catalog.scope_views())


def clock() -> tuple[health.Listening, float]:
    """What the state of a node is computed from, beside the node: two queries. Read it before the nodes: they can only
    be younger than it says, whatever comes in between."""
    return listening_of(ClusterIdentity.objects.filter(id=ClusterIdentity.ONLY).first()), database_now()


def node_state_of(node: Seen, listening: health.Listening, now: float) -> NodeState:
    seen = unix(node.last_seen_at) if node.last_seen_at else None
    config = settings.CONFIG
    return health.node_state(seen, listening, now, stale_after=config.stale_after, offline_after=config.offline_after)


class Seen(Protocol):
    """Of a node's row, what its state is computed from."""

    @property
    def last_seen_at(self) -> datetime | None: ...


def age_of(node: Node, now: float) -> float | None:
    """Seconds since a node's last heartbeat; None if there was none."""
    return max(0.0, round(now - unix(node.last_seen_at), 3)) if node.last_seen_at else None


def is_member(node_id: str) -> bool:
    """Whether this node is in the cluster now."""
    return Node.objects.filter(id=node_id, removed_at__isnull=True).exists()


def _held(replicas: Iterable[ReplicaView]) -> dict[str, int]:
    """Bytes of each card, by UUID, that replicas hold."""
    held: dict[str, int] = {}
    for replica in replicas:
        for share in replica.shares:
            for uuid, size in share.cards:
                held[uuid] = held.get(uuid, 0) + size
    return held


def node_view(
    node: Node | NodeRow,
    setup: Setup,
    listening: health.Listening,
    now: float,
    held: Mapping[str, int] | None = None,
    lies: Holding | None = None,
) -> NodeView:
    """`held`: bytes of each card that replicas hold; `lies`: weights that the node has and lacks; both where decisions are
    made of it. The disk of a node that tells nothing of weights is not looked at: they may lie there already."""
    hardware: dict[str, Any] = node.hardware
    return NodeView(
        id=node.id,
        name=node.name,
        state=node_state_of(node, listening, now),
        engines={item["kind"]: item.get("problem", "") for item in node.engines},
        cores=hardware.get("cores", 0),
        memory_total=hardware.get("memory_total", 0),
        memory_available=hardware.get("memory_available", 0),
        disk_free=None if lies is None else hardware.get("disk_free"),
        modules=_modules(node, setup),
        maintenance=node.maintenance,
        maintenance_why=node.maintenance_why,
        cards=tuple(_card_view(item, node.cards_maintenance, held or {}) for item in hardware.get("cards", ())),
        labels=node.labels,
        fabric=node.fabric,
        unreachable=parts.unreachable_of(node),
        weights=lies.has if lies is not None else frozenset(),
        lacks=lies.lacks if lies is not None else frozenset(),
        fetching={
            item["version"]: max(0, item["size"] - item["there"])
            for item in node.fetches or ()
            if item["size"] and item["code"] not in NO_ROOM
        },
        no_room={item["version"]: item["message"] for item in node.fetches or () if item["code"] in NO_ROOM},
    )


def _card_view(report: Mapping[str, Any], maintenance: Mapping[str, Any], held: Mapping[str, int]) -> CardView:
    """Where the driver does not tell whose its memory is, what is used beyond what replicas hold counts as others'."""
    uuid = report["uuid"]
    foreign = report.get("memory_foreign")
    if foreign is None:
        foreign = max(0, (report.get("memory_used") or 0) - held.get(uuid, 0))
    return CardView(
        uuid=uuid,
        klass=report.get("name", ""),
        memory_total=report.get("memory_total") or 0,
        foreign=foreign,
        problem=report.get("problem", ""),
        maintenance=maintenance.get(uuid, {}).get("state", ""),
    )


def _modules(node: Node | NodeRow, setup: Setup) -> frozenset[str]:
    """What runs on a node: as it reports, less what the cluster setup is about to switch off there.

    A node that reports neither modules nor roles is of before modules; one that has roles and no module runs none.
    """
    given = roles_of(setup, setup_node(node)) if not setup.empty else None
    running = {item["name"] for item in node.modules if item.get("state") == ModuleState.RUNNING}
    if not node.modules and not node.roles:
        running = {item.value for item in LEGACY_MODULES}
    return frozenset(running if given is None else running & {*given})


def replica_view(row: Replica) -> ReplicaView:
    return ReplicaView(
        id=row.id,
        model_id=row.model_id,
        profile_id=row.profile_id,
        node_id=row.node_id,
        slot=row.slot,
        generation=row.generation,
        run=row.run,
        digest=row.digest,
        shares=shares_of(row.shares) or (Share(node_id=row.node_id, memory=row.reserved),),
        state=ReplicaState(row.state),
        state_since=unix(row.state_since),
        code=row.code,
        message=row.message,
        attempt=row.attempt,
        in_flight=row.in_flight,
        waiting=row.waiting or 0,
        wedged=row.wedged,
        slots=row.slots or 1,
        grown=row.grown,
        proven=row.proven,
        used_at=unix(row.last_used_at) if row.last_used_at else None,
    )


def wanted_of(rows: list[Replica]) -> tuple[WantedReplica, ...]:
    """What a node shall do with its replicas; those that have stopped for good are left out."""
    return tuple(
        row.told
        or WantedReplica(
            replica_id=row.id,
            generation=row.generation,
            run=row.run,
            serve=from_dict(Serve, row.serve, where="serve"),
            grace=row.grace,
        )
        for row in rows
        if row.run or row.state != ReplicaState.STOPPED
    )


def wanted_dicts(rows: list[Replica]) -> list[dict[str, Any]]:
    """`wanted_of` as plain dicts, as they go over the wire."""
    return [
        to_dict(row.told)
        if row.told
        else {
            "replica_id": row.id,
            "generation": row.generation,
            "run": row.run,
            "serve": row.serve,
            "grace": row.grace,
        }
        for row in rows
        if row.run or row.state != ReplicaState.STOPPED
    ]


def statuses(picture: World, now: float) -> tuple[Plan, dict[str, ModelStatus]]:
    """The plan for this moment, and how each model stands, by its id."""
    plan = reconcile(picture, now)
    return plan, {model.id: explain.model_status(picture, plan, model) for model in picture.models}


def waiting_to_move() -> dict[str, list[dict[str, str]]]:
    """By node id: the replicas that are to leave it and have no other place yet."""
    now = database_now()
    picture = world(now)
    plan, _ = statuses(picture, now)
    found: dict[str, list[dict[str, str]]] = {}
    for wait in plan.waits:
        replica, model = picture.replica(wait.replica_id), picture.model(wait.model_id)
        if wait.code == TO_MOVE and replica and model:
            told = {"replica": replica.id, "model": model.name, "message": wait.message}
            found.setdefault(replica.node_id, []).append(told)
    return found


def replicas_of(model_id: str) -> list[Replica]:
    """Rows of a model's replicas that shall run."""
    return list(Replica.objects.filter(model_id=model_id, run=True).order_by("slot"))


def still_asked(model_id: str) -> int:
    """How many replicas of a model shall not run any more and take requests all the same: their nodes have not told yet that
    they drain."""
    return Replica.objects.filter(model_id=model_id, run=False, state=ReplicaState.READY).count()


# --- the cluster setup


def cluster_setup() -> Setup:
    """The setup by node id; an empty one where nobody has set any."""
    row = ClusterSetup.objects.filter(id=ClusterSetup.ONLY).first()
    if row is None:
        return Setup()
    return Setup(
        controller_tier=tuple(row.controller_tier), nodes={key: tuple(roles) for key, roles in row.nodes.items()}
    )


def setup_node(node: Node | NodeRow, *, offline: bool = False) -> SetupNode:
    return SetupNode(id=node.id, name=node.name, own=tuple(node.roles), modules=modules_of(node), offline=offline)


def modules_of(node: Node | NodeRow) -> tuple[ModuleReport, ...]:
    """A node's modules as it last reported them; none of a node of before modules."""
    return tuple(from_dict(ModuleReport, item, where="modules") for item in node.modules)


def setup_nodes() -> list[SetupNode]:
    """Every node of the cluster, for checks of a setup. Three queries."""
    listening, now = clock()
    return [
        setup_node(node, offline=node_state_of(node, listening, now) is NodeState.OFFLINE)
        for node in Node.objects.filter(removed_at__isnull=True).order_by("name", "id")
    ]


# --- lists: what their rows show comes with them


def nodes() -> QuerySet[Node]:
    others = Count("parts", filter=Q(parts__rank__gt=0, parts__replica__run=True), distinct=True)
    running = Count("replicas", filter=Q(replicas__run=True), distinct=True) + others
    return Node.objects.filter(removed_at__isnull=True).annotate(replica_count=running).order_by("name", "id")


def replicas() -> QuerySet[Replica]:
    rows = Replica.objects.select_related("model", "node", "profile").prefetch_related("parts__node")
    return rows.order_by("model__name", "slot", "id")


def node_versions() -> list[str]:
    """Versions of llmgw that nodes run, each once."""
    rows = Node.objects.filter(removed_at__isnull=True).exclude(version="").order_by("version")
    return list(rows.values_list("version", flat=True).distinct())


def in_flight() -> dict[str, int]:
    """Requests that engines work at now, by model id."""
    rows = Replica.objects.order_by().values_list("model_id").annotate(Sum("in_flight"))
    return {model_id: count for model_id, count in rows if count}
