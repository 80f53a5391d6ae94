"""What one replica of a profile needs of each node: as declared, else estimated; and what must be declared because it
cannot be estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from catalog.domain import card_footprint
from catalog.domain.facts import ModelFacts
from catalog.domain.footprint import estimate


class Way(Protocol):
    """Of a profile, what its needs follow from; 0: not declared."""

    @property
    def engine(self) -> str: ...

    @property
    def context(self) -> int: ...

    @property
    def slots(self) -> int: ...

    @property
    def memory(self) -> int: ...

    @property
    def card_memory(self) -> int: ...

    @property
    def gpus_per_node(self) -> int: ...

    @property
    def tp(self) -> int: ...

    @property
    def pp(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Bytes of the node's own memory, of its cards together, of the largest piece that cannot be divided, of the output
    layer, and of what each card holds beside its pieces. `layers`: repeating ones; 0: not known."""

    memory: int
    card_memory: int = 0
    layer: int = 0
    layers: int = 0
    tail: int = 0
    card_base: int = 0


@dataclass(frozen=True, kw_only=True)
class Undeclared:
    """What must be declared: the field, a code, and words."""

    field: str
    code: str
    message: str


_DECLARE = "say how much to reserve, such as 2GiB (over the API in bytes)"


def cards_of(way: Way) -> int:
    """Cards of each node; 0: it runs on the processor."""
    return way.tp or way.gpus_per_node


def needs(way: Way, facts: ModelFacts, weights: int) -> Needs:
    """`weights`: bytes of the model's files; 0: not known."""
    cards = cards_of(way)
    if not cards:
        memory = way.memory or estimate(facts, weights=weights, context=way.context, slots=way.slots).total
        return Needs(memory=memory)
    if way.engine == "vllm":
        found = card_footprint.evenly(
            facts, cards=cards, weights=weights, context=way.context, card_memory=way.card_memory
        )
    else:
        found = card_footprint.by_layers(
            facts, cards=cards, weights=weights, context=way.context, slots=way.slots, card_memory=way.card_memory
        )
    of_cards = found.cards
    if way.pp > 1 and not way.card_memory:
        # each node has an equal part of the layers, and all that a card has beside them
        beside = cards * card_footprint.VLLM_CARD
        of_cards = -(-(found.cards - beside) // way.pp) + beside
    return Needs(
        memory=way.memory or found.memory,
        card_memory=of_cards,
        layer=found.layer,
        layers=found.layers,
        tail=found.tail,
        card_base=found.base,
    )


def undeclared(way: Way, facts: ModelFacts, weights: int) -> Undeclared | None:
    """What cannot be estimated and was not declared; None: nothing.

    1. on cards: `card_memory_required` where the size of the weights is not known
    2. on the processor: `memory_required` where it is not known, and for vLLM always: its cache takes what it is given
    """
    known = bool(weights or facts.bytes)
    if cards_of(way):  # 1
        if way.card_memory or known:
            return None
        text = "card_memory: the weights are not on this machine, so what they take of the cards cannot be estimated"
        return Undeclared(
            field="card_memory", code="card_memory_required", message=f"{text}: mend the path, or {_DECLARE}."
        )
    if way.memory or (known and way.engine != "vllm"):  # 2
        return None
    why = "vLLM's memory on a processor cannot be estimated: "
    if not known:
        why = "the weights are not on this machine, so the memory that the model takes cannot be estimated: mend the path, or "
    return Undeclared(field="memory", code="memory_required", message=f"memory: {why}{_DECLARE}.")
