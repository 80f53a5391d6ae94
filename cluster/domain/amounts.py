"""How much of a fleet something is, as plain sums: cores, bytes of memory, and cards by class.

A sum has a whole number for each thing that it names: `cores`, `memory` (bytes), and `cards:CLASS` in millionths of a card.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from catalog.domain.types import QuotaView
from cluster.domain.modules import Module
from cluster.domain.room import card_margin, margin
from cluster.domain.types import Amount, NodeView, ScopeView, Share
from llmgw_site.lib.units import format_bytes

Sum = Mapping[str, int]
Cards = Mapping[str, tuple[str, int]]
"""Cards of a node by UUID: what sums call their class, and bytes that engines can have of each."""
CORES, MEMORY, CARDS = "cores", "memory", "cards:"
WHOLE = 1_000_000
"""A card."""


def scope_of(view: QuotaView) -> ScopeView:
    """A part of the tenancy tree, as the catalogue keeps it."""
    return ScopeView(
        id=view.scope_id,
        kind=view.kind,
        name=view.name,
        parent=view.parent_id,
        guarantee=amount_of(view.guarantee),
        limit=amount_of(view.limit),
    )


def amount_of(kept: Mapping[str, Any]) -> Amount:
    cards = tuple(sorted(kept.get("cards", {}).items()))
    return Amount(cards=cards, cores=kept.get("cores"), memory=kept.get("memory"))


def of_amount(amount: Amount) -> dict[str, int]:
    """A guarantee or a limit."""
    named = {CARDS + klass: count * WHOLE for klass, count in amount.cards}
    if amount.cores is not None:
        named[CORES] = amount.cores
    if amount.memory is not None:
        named[MEMORY] = amount.memory
    return named


def cards_of(node: NodeView) -> Cards:
    """The cards of a node as `of_shares` looks them up."""
    return {card.uuid: (_key(card.klass), card.memory_total - card_margin(card)) for card in node.cards}


def of_shares(shares: Iterable[Share], cards: Mapping[str, Cards]) -> dict[str, int]:
    """What a replica takes. `cards`: by node id; one that its node has no more is nothing of the fleet."""
    total: dict[str, int] = {}
    for share in shares:
        if share.cores:
            total[CORES] = total.get(CORES, 0) + share.cores
        if share.memory:
            total[MEMORY] = total.get(MEMORY, 0) + share.memory
        if share.cards:
            there = cards.get(share.node_id, {})
            for uuid, size in share.cards:
                if uuid in there:
                    key, usable = there[uuid]
                    total[key] = total.get(key, 0) + part_of(usable, size)
    return total


def part_of(usable: int, size: int) -> int:
    """How much of a card that can give `usable` bytes so many of them are, in millionths: one part of as many as fit there
    beside each other.

    More than half of what the card can give is the whole card, for no second one fits beside it; more than a third is a
    half. So replicas of a kind that hold n cards by this sum can stand on n cards.
    """
    return WHOLE // max(1, usable // size) if size > 0 else 0


@cache
def _key(klass: str) -> str:
    return CARDS + klass


def of_fleet(nodes: Iterable[NodeView]) -> dict[str, int]:
    """All that engines can get when every node is well: of nodes that run the module inference, offline ones too."""
    total: dict[str, int] = {CORES: 0, MEMORY: 0}
    for node in nodes:
        if not node.runs(Module.INFERENCE):
            continue
        total[CORES] += node.cores
        total[MEMORY] += max(0, node.memory_total - margin(node))
        for card in node.cards:
            total[CARDS + card.klass] = total.get(CARDS + card.klass, 0) + WHOLE
    return total


def as_amount(total: Sum) -> dict[str, Any]:
    """A sum as the API writes amounts: `{"cards": {class: number}, "cores": n, "memory": bytes}`."""
    cards = {
        key.removeprefix(CARDS): figure(key, value) for key, value in sorted(total.items()) if key.startswith(CARDS)
    }
    plain = {key: total[key] for key in (CORES, MEMORY) if key in total}
    return {**({"cards": cards} if cards else {}), **plain}


def figure(key: str, value: int) -> int | float:
    """The plain number: cards as cards, to the hundredth."""
    if not key.startswith(CARDS):
        return value
    return value // WHOLE if value % WHOLE == 0 else round(value / WHOLE, 2)


def words(key: str, value: int) -> str:
    """`2 cards of class L4`, `8 cores`, `4.0 GiB of memory`."""
    if key == MEMORY:
        return f"{format_bytes(value)} of memory"
    count, noun = figure(key, value), "core" if key == CORES else "card"
    of_class = "" if key == CORES else f" of class {key.removeprefix(CARDS) or 'unknown'}"
    return f"{count} {noun}{'' if count == 1 else 's'}{of_class}"


def short(key: str, value: int) -> str:
    """The same without its unit, for a sentence that has named it."""
    return format_bytes(value) if key == MEMORY else str(figure(key, value))
