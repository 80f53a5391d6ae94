"""One model as its card shows it: replicas, what it waits for, room for more, what was decided about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Q

from catalog.models import Alias, Event, Model
from catalog.selectors import events_about
from cluster.domain.headroom import Headroom, headroom
from cluster.domain.memory import warning
from cluster.domain.plan import Wait
from cluster.domain.scale import load_of
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView as Picture
from cluster.domain.types import ReplicaView as Shares
from cluster.models import Replica
from cluster.selectors import database_now, from_unix, replica_view, statuses, world
from llmgw_site.console.admission import Admission, admission
from llmgw_site.console.figures import percent
from llmgw_site.console.gauge import Gauge, gauge, pips
from llmgw_site.console.placement import NodeMap, node_maps
from llmgw_site.console.selectors.cluster import since
from llmgw_site.console.selectors.quotas import scopes
from llmgw_site.console.selectors.requests import waits
from llmgw_site.console.views import ModelView
from llmgw_site.lib.units import format_seconds

WINDOW = 30
"""Minutes that the curve of waiting shows."""
NEWEST, FIRST = 40, 8
"""Decisions that the card has, and that it shows at once."""


@dataclass(frozen=True, kw_only=True)
class ReplicaRow:
    """A replica with what it holds. `reserved`: bytes of its nodes' memory, `cores` 0: as many as the node takes.

    `cpu`: cores that it kept busy, of `cpu_of`: those reserved for it, else all of its node. `told_at`: when its node told
    that and `memory`.
    """

    id: str
    node: str
    profile: str
    state: ReplicaState
    since: datetime
    created_at: datetime
    run: bool
    why: str
    message: str
    code: str
    attempt: int
    memory: int | None
    reserved: int
    cores: int
    cards: int
    in_flight: int
    slots: int | None
    cpu: float | None
    cpu_of: int
    told_at: datetime | None
    warning: str  # where it takes more than it holds
    notes: tuple[str, ...]

    @property
    def cpu_percent(self) -> float | None:
        return percent(self.cpu, self.cpu_of)

    @property
    def memory_percent(self) -> float | None:
        return percent(self.memory, self.reserved)


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    row: Model
    view: ModelView
    klass: str
    scaling: str
    standing: tuple[str, ...]  # what is remembered of it, in words
    replicas: tuple[ReplicaRow, ...]
    waits: tuple[Wait, ...]
    room: Headroom
    decisions: Sequence[Event]
    parked: bool
    failing: bool
    each: float  # tokens a second of one replica; 0: not measured
    owner: str  # path of its scope; empty: nobody's
    pips: tuple[str, ...]
    gauge: Gauge | None
    admission: Admission | None  # None: a provider's
    nodes: tuple[NodeMap, ...]
    other_nodes: int

    @property
    def newest(self) -> Sequence[Event]:
        return self.decisions[:FIRST]

    @property
    def older(self) -> Sequence[Event]:
        return self.decisions[FIRST:]

    @property
    def room_is_new(self) -> bool:
        """Whether what stands in the way of one more is not said above already."""
        return self.room.message != self.view.status.reason


ModelRow = Model
"""A row as the page's forms hand it on to services."""


def model_row(model_id: str) -> ModelRow | None:
    return Model.objects.filter(pk=model_id).first()


def model_card(model_id: str) -> ModelCard | None:
    """The card of a model; None where there is none with this id. A fixed number of queries."""
    row = Model.objects.filter(pk=model_id).first()
    if row is None:
        return None
    now = database_now()
    picture = world(now)
    plan, found = statuses(picture, now)
    model = picture.model(model_id)
    if model is None:
        return None
    status = found[model_id]
    replicas = tuple(_replica(item, model, picture.state(view)) for item, view in _rows(model_id))
    view = ModelView(
        id=model_id,
        name=row.name,
        status=status,
        engine="",
        context=None,
        slots=None,
        in_flight=sum(item.in_flight for item in replicas),
        embeddings=row.embeddings,
    )
    room = headroom(picture, model, now)
    more: dict[str, int] = {}
    for place in room.places:
        more[place.node] = more.get(place.node, 0) + place.count
    ready = [item for item in picture.of_model(model_id) if picture.state(item) is ReplicaState.READY and item.run]
    maps, others = node_maps(picture, model, more)
    return ModelCard(
        row=row,
        view=view,
        klass=model.klass.name.lower(),
        scaling=scaling(model),
        standing=_standing(model),
        replicas=replicas,
        waits=tuple(item for item in plan.waits if item.model_id == model_id and item.message != status.reason),
        room=room,
        decisions=list(events_about(model_id)[:NEWEST]),
        parked=model.standing.parked_at is not None,
        failing=any(item.state in (ReplicaState.FAILED, ReplicaState.BACKOFF) for item in replicas),
        each=max((item.measured_tps for item in row.profiles.all() if item.enabled), default=0.0),
        owner=dict(scopes()).get(model.owner, "") if model.owner else "",
        pips=pips(model, status.ready, status.wanted),
        gauge=gauge(picture, model, load_of(model, ready), now),
        admission=None if row.external else _admission(row, model, ready, now),
        nodes=maps,
        other_nodes=others,
    )


def _admission(row: Model, model: Picture, ready: Sequence[Shares], now: float) -> Admission:
    names = [row.name, *row.adapters.values_list("name", flat=True)]
    aliases = Alias.objects.filter(Q(targets__model=row) | Q(targets__adapter__model=row)).values_list(
        "name", flat=True
    )
    usual = settings.CONFIG
    return admission(
        model,
        ready,
        waits(names, aliases, WINDOW, from_unix(now)),
        length=row.queue_length,
        wait=row.queue_wait,
        usual_length=usual.queue_length,
        usual_wait=usual.queue_wait,
    )


def scaling(model: Picture) -> str:
    """How many replicas it has, in words."""
    if model.external:
        return "a provider answers for it"
    if model.on_demand:
        return f"on demand, at most {replicas_words(model.limit)}, rests after {format_seconds(model.rest_after)} without a request"
    if not model.limit:
        return "no replicas"
    if model.limit == model.base:
        return f"{replicas_words(model.base)} always"
    return f"{model.base} to {replicas_words(model.limit)} by its load"


def replicas_words(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _standing(model: Picture) -> tuple[str, ...]:
    now = model.standing
    found = []
    if now.grown:
        found.append(f"grown by {now.grown} because of load")
    if now.failures:
        found.append(f"{now.failures} starts in a row failed")
    if now.parked_at is not None:
        found.append(f"parked since {from_unix(now.parked_at):%Y-%m-%d %H:%M} UTC")
    if now.restarting:
        found.append(f"{len(now.restarting)} to restart")
    return tuple(found)


def _rows(model_id: str) -> list[tuple[Replica, Shares]]:
    rows = Replica.objects.select_related("node", "profile").filter(model_id=model_id).order_by("slot", "id")
    rows = rows.prefetch_related("parts__node")
    return [(row, replica_view(row)) for row in rows.defer("serve", "log_tail")]


def _replica(row: Replica, model: Picture, state: ReplicaState) -> ReplicaRow:
    shares = replica_view(row)
    notes = []
    if parts := list(row.parts.all()):
        told = [f"{part.node.name} ({'leads' if part.rank == 0 else part.state})" for part in parts]
        notes.append(f"over {len(parts)} nodes: {', '.join(told)}")
    if row.grown:
        notes.append("added under load")
    if model.restarts(shares):
        notes.append("to restart")
    if not row.run:
        notes.append("is being stopped")
    return ReplicaRow(
        id=row.pk,
        node=row.node.name,
        profile=row.profile.name if row.profile else "",
        state=state,
        since=since(row, state),
        created_at=row.created_at,
        run=row.run,
        why=row.why,
        message=row.message,
        code=row.code,
        attempt=row.attempt,
        memory=row.memory,
        reserved=row.reserved or shares.reserved,
        cores=sum(item.cores for item in shares.shares),
        cards=len(shares.cards),
        in_flight=row.in_flight,
        slots=row.slots,
        cpu=row.cpu,
        cpu_of=sum(item.cores for item in shares.shares) or int(row.node.hardware.get("cores") or 0),
        told_at=row.node.last_seen_at,
        warning=warning(row.reserved, row.memory),
        notes=tuple(notes),
    )
