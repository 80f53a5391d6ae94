"""The other nodes, as this one knows them: what they serve, which of them fail to answer, what it has in progress there.

Who the candidates are is said by snapshot and module map; asking every node what it serves, each CONFIG.peers_refresh
and at once where a node is new in the map, says who is alive and how engines stand. Everything here runs on the event
loop's one thread; decisions are `routing.domain.nodes` and `routing.domain.offers`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from cluster.domain.modules import MapNode, Module, ModuleMap
from llmgw_site.lib.clock import Clock
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Refused
from routing.domain.affinity import session_of
from routing.domain.choose import Route, Waiting, not_ready
from routing.domain.nodes import Candidate, Rule, Strategy, Works, choose_node
from routing.domain.offers import NodeOffers, Offer, listed, merged
from routing.domain.rows import LOST, Row, module_for, placed_by_node, row_of
from routing.domain.snapshot import ModelEntry
from routing.gateway.table import View

FRESH = 60.0
"""Seconds after which an answer time is no longer recent: the node is measured anew."""
_WEIGHT = 0.2
"""Of the newest answer time in the moving average."""


class Cluster(Protocol):
    """What is needed of routing.gateway.membership.Members."""

    @property
    def node_id(self) -> str: ...

    @property
    def map(self) -> ModuleMap | None: ...

    def runs(self, module: str) -> bool: ...

    def now(self) -> float: ...


class Standing:
    """What asking a node, and sending requests to it, has shown. Times are the clock's monotonic ones, `heard_at` not."""

    __slots__ = ("beats", "down_since", "garbled", "heard_at", "marked_at", "offers", "silent", "skipped_until")

    def __init__(self) -> None:
        self.offers: dict[str, Offer] | None = None  # by model; None: not known
        self.garbled = False  # the last time it was asked, it answered with something that cannot be used
        self.heard_at = 0.0  # cluster time of its last good answer
        self.silent = False  # the last time it was asked, it did not answer
        self.beats = False  # it says that it is at a request while that waits there: see hop.py
        self.marked_at = self.skipped_until = 0.0
        self.down_since: float | None = None  # neither requests nor questions are answered

    def doubts(self, row: Row, made_at: float) -> bool:
        """Whether what the snapshot alone says of a model there is to be doubted: the node answers with what cannot be
        used, or has been asked since then and does not speak of the model."""
        return not row.own and (self.garbled or (self.offers is not None and self.heard_at > made_at))


class Peers:
    """See the module. `rule` says how to choose; `own` what this node itself offers of a model."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        cluster: Cluster,
        *,
        view: Callable[[], View],
        rule: Callable[[], Rule] = Rule,
        own: Callable[[Route], Offer | None] = lambda route: None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.in_flight: dict[tuple[str, str], int] = {}
        """Requests of this node in progress at others, by node and model; never zero."""
        self.unreachable_counts: dict[str, int] = {}
        """How often a request could not reach a node, by node."""
        self.suspects: set[str] = set()
        """Nodes that should be asked at once, since a request has just found them gone."""
        self.standings: dict[str, Standing] = {}
        self._config = config
        self._clock = clock
        self._cluster = cluster
        self._view = view
        self._rule = rule
        self._own = own
        self._dice = dice
        self._latency: dict[tuple[str, str], tuple[float, float]] = {}  # moving average, and when it was last fed
        self._last: dict[str, str] = {}  # by model: the node chosen last
        self._offering: dict[str, set[str]] = {}  # by model: nodes that say they serve it, or are about to
        self._nodes: dict[str, MapNode] = {}  # of the map
        self._clouds: list[str] = []
        self._rows: dict[str, tuple[Row, ...]] = {}  # made when they are asked for
        self._rows_of: tuple[View | None, ModuleMap | None] = (None, None)

    # --- a request ---

    def session(self, key_id: str, explicit: bytes | None, body: bytes) -> str:
        """What names the conversation of a request: for `choose` here, for the replica's choice, and for the next node.

        `explicit` is the client's x-session-id. Empty where the strategy does not look at it, which costs nothing.
        """
        return session_of(key_id, explicit, body) if self._rule().follows_sessions else ""

    def choose(self, route: Route, *, session: str, without: Collection[str] = frozenset()) -> MapNode | Refused:
        """Another node to send a request to, or 503 `model_not_ready`; `without` names nodes already tried."""
        model = route.model.name
        rows = self.rows(route.model)
        rule = self._rule()
        now, made_at = self._clock.monotonic(), self._view().made_at
        found = choose_node(
            [self._candidate(row, route.model.base, now, made_at) for row in rows],
            rule,
            last=self._last.get(model, ""),
            session=session,
            dice=self._dice(),
            without=without,
        )
        if found is None:
            return self.refusal(route)
        if rule.strategy is Strategy.ROUND_ROBIN:
            self._last[model] = found.node_id
        return next(row.node for row in rows if row.node.node_id == found.node_id)

    def works(self, route: Route) -> bool:
        """Whether the node that `choose` would take is known to serve this model now."""
        now, made_at = self._clock.monotonic(), self._view().made_at
        candidates = [self._candidate(row, route.model.base, now, made_at) for row in self.rows(route.model)]
        found = choose_node(candidates, Rule())
        return found is not None and found.state is Works.WORKS

    def enter(self, node_id: str, model: str) -> None:
        """A request goes to this node; exactly one `leave` follows, however it ends."""
        key = node_id, model
        self.in_flight[key] = self.in_flight.get(key, 0) + 1

    def leave(self, node_id: str, model: str, *, seconds: float | None) -> None:
        """It is over. `seconds` from sending it to the first byte of its answer; None: there was none."""
        key = node_id, model
        left = self.in_flight[key] - 1
        if left:
            self.in_flight[key] = left
        else:
            del self.in_flight[key]
        if seconds is not None:
            now = self._clock.monotonic()
            before, at = self._latency.get(key, (seconds, now))
            if now - at > FRESH:
                before = seconds
            self._latency[key] = before + _WEIGHT * (seconds - before), now

    def unreachable(self, node_id: str) -> None:
        """No connection to it stood: it is left out for CONFIG.node_skip."""
        standing = self.standings.setdefault(node_id, Standing())
        now = self._clock.monotonic()
        standing.marked_at, standing.skipped_until = now, now + self._config.node_skip
        if standing.down_since is None:
            standing.down_since = now
            self.suspects.add(node_id)
        self.unreachable_counts[node_id] = self.unreachable_counts.get(node_id, 0) + 1

    def reached(self, node_id: str, *, seconds: float) -> None:
        """It answered a request, whatever it said, that was sent so long ago. What was sent before it was marked proves nothing."""
        standing = self.standings.get(node_id)
        if standing is None or (standing.down_since is None and not standing.skipped_until):
            return
        if self._clock.monotonic() - seconds >= standing.marked_at:
            standing.down_since, standing.silent, standing.skipped_until = None, False, 0.0

    def beats(self, node_id: str) -> bool:
        """Whether it is known to send interim answers; versions before do not."""
        standing = self.standings.get(node_id)
        return standing is not None and standing.beats

    def note_beats(self, node_id: str, beats: bool) -> None:
        """What an answer of it said."""
        self.standings.setdefault(node_id, Standing()).beats = beats

    def skipped(self, node_id: str) -> bool:
        """Whether it lately failed to answer: it is left out while there are others."""
        standing = self.standings.get(node_id)
        return standing is not None and (standing.silent or self._clock.monotonic() < standing.skipped_until)

    def down_for(self, node_id: str) -> float | None:
        """Seconds since it stopped answering; None: it answers, as far as is known."""
        standing = self.standings.get(node_id)
        if standing is None or standing.down_since is None:
            return None
        return self._clock.monotonic() - standing.down_since

    def _candidate(self, row: Row, model: str, now: float, made_at: float) -> Candidate:
        node_id = row.node.node_id
        standing, state = self.standings.get(node_id), row.state
        if state is Works.WORKS and standing is not None and standing.doubts(row, made_at):
            state = Works.UNKNOWN
        return Candidate(
            node_id=node_id,
            state=state,
            skipped=standing is not None and (standing.silent or now < standing.skipped_until),
            in_flight=self.in_flight.get((node_id, model), 0),
            latency=self._recent(node_id, model, now),
            slots=row.slots,
        )

    # --- what there is ---

    def rows(self, model: ModelEntry) -> tuple[Row, ...]:
        """The other nodes that serve this model or shall, those that are down or cannot included, by node id."""
        view, known = self._view(), self._cluster.map
        if self._rows_of[0] is not view or self._rows_of[1] is not known:
            if self._rows_of[1] is not known:
                self._nodes = {node.node_id: node for node in known.nodes} if known is not None else {}
                self._clouds = [node_id for node_id, node in self._nodes.items() if node.runs(Module.CLOUD)]
            self._rows.clear()
            self._last = {name: node_id for name, node_id in self._last.items() if name in view.routes}
            self._rows_of = view, known
        rows = self._rows.get(model.name)
        if rows is None:
            rows = self._rows[model.name] = tuple(self._find(model, view.made_at))
        return rows

    def _find(self, model: ModelEntry, made_at: float) -> Iterator[Row]:
        """Where it is placed, where it is offered, and for an external model every node that runs cloud."""
        placed, module = placed_by_node(model.placed), module_for(model)
        wanted = {*placed, *self._offering.get(model.name, ())}
        if model.external is not None:
            wanted.update(self._clouds)
        for node_id in sorted(wanted - {self._cluster.node_id}):
            node, standing = self._nodes.get(node_id), self.standings.get(node_id)
            if node is not None:
                offers = standing.offers if standing is not None else None
                yield row_of(
                    node,
                    module,
                    offer=offers.get(model.name) if offers is not None else None,
                    placed=placed.get(node_id),
                    heard_at=standing.heard_at if standing is not None and offers is not None else 0.0,
                    made_at=made_at,
                )

    def refusal(self, route: Route) -> Refused:
        """503, never 404: the model is in the catalogue, whatever becomes of its nodes."""
        rows = self.rows(route.model)
        waiting = tuple(Waiting(state=row.serving_state, code=row.code, message=row.message) for row in rows)
        return not_ready(Route(model=route.model, waiting=route.waiting + waiting))

    def listed(self) -> dict[str, Mapping[str, Any]]:
        """The models of the catalogue that are offered now, by name, each with what engines say of it."""
        routes = self._view().routes
        found = ((name, self.listed_one(routes[name])) for name in sorted(routes))
        return {name: said for name, said in found if said is not None}

    def listed_one(self, route: Route) -> Mapping[str, Any] | None:
        """What engines say of this model; None: it is not offered now."""
        entry = route.model
        rows = self.rows(entry)
        up = [row.node.node_id for row in rows if self._up(row)]
        own = self._own(route)
        offers = [] if own is None else [own]
        for node_id in up:
            standing = self.standings.get(node_id)
            if standing is not None and standing.offers is not None and entry.name in standing.offers:
                offers.append(standing.offers[entry.name])
        shall = {item.node_id for item in entry.placed} | {row.node.node_id for row in rows}
        seen = listed(entry, placed_on=shall, offered=bool(offers), up={*up, self._cluster.node_id})
        return merged(offers) if seen else None

    def offers(self) -> NodeOffers:
        """What this node itself offers: the answer to GET /api/v1/node/models."""
        own = (self._own(route) for _, route in sorted(self._view().routes.items()) if route.model.enabled)
        models = tuple(offer for offer in own if offer is not None)
        return NodeOffers(node_id=self._cluster.node_id, models=models, beats=True)

    def shown(self, model: ModelEntry) -> list[dict[str, Any]]:
        """The other nodes that serve this model or shall, for administrators."""
        told = []
        for row in self.rows(model):
            node_id = row.node.node_id
            down, latency = self.down_for(node_id), self._recent(node_id, model.name, self._clock.monotonic())
            told.append(
                {
                    "model": model.name,
                    "node": row.node.name,
                    "node_id": node_id,
                    "serving_state": row.serving_state,
                    "down_for_s": None if down is None else round(down, 1),
                    "in_flight": self.in_flight.get((node_id, model.name), 0),
                    "answer_s": None if latency is None else round(latency, 6),
                }
            )
        return told

    def heard_at(self, node_id: str) -> float | None:
        """Cluster time at which it last said what it serves; None: it has not been asked, or never answered."""
        standing = self.standings.get(node_id)
        return standing.heard_at or None if standing is not None else None

    def _recent(self, node_id: str, model: str, now: float) -> float | None:
        latency, at = self._latency.get((node_id, model), (None, 0.0))
        return latency if now - at <= FRESH else None

    def _up(self, row: Row) -> bool:
        standing = self.standings.get(row.node.node_id)
        return row.serving_state != LOST and (standing is None or not standing.silent)

    # --- what the others say ---

    def heard(self, node_id: str, offers: NodeOffers | None) -> None:
        """It answered the question what it serves; None: with something that cannot be used."""
        standing = self.standings.setdefault(node_id, Standing())
        standing.silent, standing.garbled, standing.down_since = False, offers is None, None
        standing.heard_at = self._cluster.now()
        if offers is not None:
            standing.beats = offers.beats
        self._take(node_id, standing, None if offers is None else {offer.model: offer for offer in offers.models})

    def silent(self, node_id: str) -> None:
        """It did not answer the question: it is left out until it does, and what it served is forgotten."""
        standing = self.standings.setdefault(node_id, Standing())
        standing.silent = True
        if standing.down_since is None:
            standing.down_since = self._clock.monotonic()
        self._take(node_id, standing, None)

    def unknown(self, node_id: str) -> None:
        """It is no longer asked, so nothing is known of what it serves."""
        standing = self.standings.get(node_id)
        if standing is not None:
            standing.silent = standing.garbled = False
            self._take(node_id, standing, None)

    def _take(self, node_id: str, standing: Standing, offers: dict[str, Offer] | None) -> None:
        """Only the rows that this concerns are made anew."""
        before, standing.offers = standing.offers or {}, offers
        for name in before.keys() - (offers or {}).keys():
            self._offering[name].discard(node_id)
            if not self._offering[name]:
                del self._offering[name]
        for name in offers or ():
            self._offering.setdefault(name, set()).add(node_id)
        here = {name for name, rows in self._rows.items() if any(row.node.node_id == node_id for row in rows)}
        for name in here | (offers or {}).keys():
            self._rows.pop(name, None)

    def keep(self, node_ids: Collection[str]) -> None:
        """Forget the nodes that are no longer in the map; what is in progress there ends by itself."""
        for node_id in [item for item in self.standings if item not in node_ids]:
            self.unknown(node_id)
            del self.standings[node_id]
        for node_id in [item for item in self.unreachable_counts if item not in node_ids]:
            del self.unreachable_counts[node_id]
        old = self._clock.monotonic() - FRESH
        for key in [item for item, (_, at) in self._latency.items() if item[0] not in node_ids or at < old]:
            del self._latency[key]
