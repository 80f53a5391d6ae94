"""What nodes serve: how a node says it, and what becomes of it when many do.

A node that runs inference or cloud answers GET /api/v1/node/models with NodeOffers; routers ask every node and merge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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


def works(state: str) -> Works:
    """What a serving state means for the choice of a node. `pending`, `starting`, `backoff` may be over by now."""
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
