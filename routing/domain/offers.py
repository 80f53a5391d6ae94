"""What nodes serve: how a node says it, and what becomes of it when many do.

A node that runs inference or cloud answers GET /api/v1/node/models with NodeOffers; routers ask every node and merge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from routing.domain.choose import Route
from routing.domain.nodes import Works
from routing.domain.snapshot import ModelEntry, Placed

READY = "ready"
_CANNOT = frozenset({"draining", "failed", "stopped", "lost"})


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A model on one node. `serving_state`: of its replica that is nearest to ready, as cluster.domain.states has them."""

    model: str
    serving_state: str = READY
    code: str = ""  # why it is not ready
    message: str = ""  # the same for people
    slots: int = 1  # requests at once, over all of its replicas here
    in_flight: int = 0
    context: int | None = None  # tokens of one request, prompt and answer
    said: dict[str, Any] = field(default_factory=dict)  # what the engine's own list of models says beyond id and owner


@dataclass(frozen=True, kw_only=True)
class NodeOffers:
    """Everything that one node serves or is about to."""

    node_id: str
    models: tuple[Offer, ...] = ()
    beats: bool = False  # it sends interim answers while a request that was passed on to it waits: see gateway/hop.py


MOST_FIGURES, MOST_TEXT, MOST_COUNT = 40, 500, 1 << 31
"""Entries, characters and numbers beyond which another node's word is not taken."""


def bounded(told: NodeOffers) -> NodeOffers:
    """What another node told, without anything that could do harm here: in the list of models, or in a message.

    Of `said` figures and switches stay, as they are or one level deep: texts name paths of machines.
    """
    return replace(
        told,
        models=tuple(
            replace(
                offer,
                serving_state=offer.serving_state[:MOST_TEXT],
                code=offer.code[:MOST_TEXT],
                message=offer.message[:MOST_TEXT],
                slots=min(max(1, offer.slots), MOST_COUNT),
                in_flight=min(max(0, offer.in_flight), MOST_COUNT),
                context=offer.context if offer.context is not None and 0 < offer.context < MOST_COUNT else None,
                said=_figures(offer.said, nested=True),
            )
            for offer in told.models
        ),
    )


def _figures(said: Mapping[str, Any], *, nested: bool) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in islice(said.items(), MOST_FIGURES):
        if nested and isinstance(value, dict):
            kept[name[:64]] = _figures(value, nested=False)
        elif isinstance(value, (int, float)):
            kept[name[:64]] = value
    return kept


_NEAREST = ("ready", "starting", "backoff", "draining", "fetching", "pending")


def own_offer(route: Route, *, in_flight: Mapping[str, int], said: Mapping[str, Mapping[str, Any]]) -> Offer | None:
    """What this node offers of a model from its own engines; None: nothing. `in_flight` and `said` are by replica.

    1. ready engines: slots and requests of all, the least context, and what the first says that says anything
    2. none ready, or all about to leave: the replica that is nearest to it says why
    """
    seats = route.seats
    if seats and route.leaving:
        return Offer(model=route.model.name, serving_state="draining")
    if seats:  # 1
        contexts = [seat.context for seat in seats if seat.context]
        return Offer(
            model=route.model.name,
            slots=sum(max(1, seat.slots) for seat in seats),
            in_flight=sum(in_flight.get(seat.replica_id, 0) for seat in seats),
            context=min(contexts, default=None),
            said=dict(next((said[seat.replica_id] for seat in seats if seat.replica_id in said), {})),
        )
    if not route.waiting:
        return None
    nearest = min(route.waiting, key=lambda w: _NEAREST.index(w.state) if w.state in _NEAREST else len(_NEAREST))  # 2
    return Offer(model=route.model.name, serving_state=nearest.state, code=nearest.code, message=nearest.message)


def works(state: str) -> Works:
    """What a serving state means for the choice of a node. `pending`, `fetching`, `starting`, `backoff` may be over by now."""
    if state == READY:
        return Works.WORKS
    return Works.CANNOT if state in _CANNOT else Works.UNKNOWN


def listed(entry: ModelEntry, *, placed_on: Collection[str], offered: bool, up: Collection[str]) -> bool:
    """Whether a model of the catalogue is in the list of models.

    1. disabled                                  no
    2. some live node offers it, in any state    yes
    3. no node shall serve it                    yes: it is in the catalogue, and a chat is told why it must wait
    4. else                                      if a node that shall serve it is up
    """
    if not entry.enabled:  # 1
        return False
    return offered or not placed_on or any(node_id in up for node_id in placed_on)  # 2 3 4


def merged(offers: Iterable[Offer]) -> Mapping[str, Any]:
    """What the list of models says of one model that these nodes offer, first come first kept.

    `context_length` is the least of all: a prompt that fits there fits everywhere.
    """
    said: dict[str, Any] = {}
    contexts = []
    for offer in offers:
        for name, value in offer.said.items():
            said.setdefault(name, value)
        if offer.context:
            contexts.append(offer.context)
    if contexts:
        said["context_length"] = min(contexts)
    return said


def newer(offer: Offer | None, placed: Placed | None, *, heard_at: float, made_at: float) -> Offer | None:
    """What is known of a model on a node: from the node itself, or from the snapshot where that is newer."""
    if placed is not None and (offer is None or made_at > heard_at):
        return Offer(model="", serving_state=placed.state, slots=placed.slots)
    return offer
