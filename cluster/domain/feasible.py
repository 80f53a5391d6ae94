"""Hard checks of one profile on one node. Every refusal has a code, and words with figures for whoever asks.

A plan looks at each of thousands of nodes, so looking (`why_not`) makes no words; `refusals.words` makes them for the few
nodes that are told. What a node is (`lasting`) is looked at apart from what it has left now (`passing`): nodes of one kind
share the first answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from cluster.domain.modules import Module
from cluster.domain.room import Room, card_margin, margin
from cluster.domain.states import NodeState
from cluster.domain.types import CardView, ModelView, NodeView, ProfileView

PINNED = "pinned_elsewhere"
"""Code of a profile that may not run on this node."""
NOT_NOW = frozenset(
    {
        "node_stale", "node_offline", "node_cordoned", "node_drained", "cards_in_maintenance", "cards_unhealthy",
        "no_cores_now", "no_memory_now", "no_card_memory_now", "no_disk_now", "no_weights_now",
    }
)  # fmt: skip
"""Codes of what may change by itself; all others are for ever."""
BUSY = frozenset({"no_cores_now", "no_memory_now", "no_card_memory_now"})
"""Those of them that the end of a replica can mend."""


class Answer(StrEnum):
    OK = "ok"
    NOT_NOW = "not_now"  # may become possible by itself
    NEVER = "never"  # not without a change of node or profile


def answer_of(code: str) -> Answer:
    return Answer.OK if not code else Answer.NOT_NOW if code in NOT_NOW else Answer.NEVER


def why_not(room: Room, profile: ProfileView, model: ModelView | None = None) -> str:
    """The code of the first check that says no; empty if the profile can run there now."""
    return lasting(room.node, profile) or passing(room, profile, model)


def lasting(node: NodeView, profile: ProfileView) -> str:
    """Why a profile cannot run on a node of this kind; empty if it could, were the node empty.

    1. the profile may not run there
    2. nothing is known of its hardware yet, as it has not been heard: its state says so
    3. what no waiting mends: modules, engines, labels, fabric, and the hardware however empty it is
    4. its state and its maintenance, which may pass. They come last: who brings a node back that is too small in any case
       has not been told why. Nodes of one kind share them, so they stand here
    """
    if not profile.may_run_on(node):  # 1
        return PINNED
    off = node.state is not NodeState.ONLINE
    if off and not node.memory_total:  # 2
        return "node_" + node.state.value
    why = _unfit(node, profile)  # 3
    if why:
        return why
    if off:  # 4
        return "node_" + node.state.value
    if node.maintenance:
        return "node_drained" if node.drained else "node_cordoned"
    return ""


def _unfit(node: NodeView, profile: ProfileView) -> str:
    if not node.runs(Module.INFERENCE):
        return "no_inference_module"
    if profile.engine not in node.engines:
        return "engine_missing"
    if node.engines[profile.engine]:
        return "engine_broken"
    if any(node.labels.get(key) != value for key, value in profile.labels):
        return "label_missing"
    if profile.span > 1 and not node.fabric:
        return "no_fabric"
    if profile.span > 1 and node.unreachable:
        return "no_fabric_address"
    if profile.threads > node.cores:
        return "too_few_cores"
    if profile.memory > node.memory_total - margin(node):
        return "too_little_memory"
    return _unfit_cards(node, profile)


def _unfit_cards(node: NodeView, profile: ProfileView) -> str:
    if not profile.cards:
        return ""
    if len(node.cards) < profile.cards:
        return "too_few_cards"
    found = of_class(profile, node.cards)
    if len(found) < profile.cards:
        return "no_card_of_class"
    return "" if holds(profile, whole(found)) else "too_little_card_memory"


def whole(cards: Iterable[CardView]) -> list[int]:
    """What each of these cards gives when nobody uses it, the most first; those left out that give nothing, as where the
    driver does not tell how much they have."""
    return sorted((most for card in cards if (most := card.memory_total - card_margin(card)) > 0), reverse=True)


def fits_now(room: Room, profile: ProfileView, model: ModelView | None = None) -> bool:
    """Whether `passing` has nothing to say. It is asked of thousands of nodes, so it works nothing else out."""
    if profile.threads > room.cores or profile.memory > room.memory:
        return False
    if (
        model is not None
        and model.weights
        and (model.weights in room.node.lacks or room.lacks_disk(model.weights, model.weights_size))
    ):
        return False
    return not profile.cards or holds(profile, left_now(room, profile))


def left_now(room: Room, profile: ProfileView) -> Sequence[int]:
    """What is left of each card that a profile may use, the most first."""
    if not profile.card_classes or (room.klass is not None and room.klass in profile.card_classes):
        return room.top
    return sorted((free for _, free in cards_left(room, profile)), reverse=True)


def passing(room: Room, profile: ProfileView, model: ModelView | None = None) -> str:
    """Why a profile cannot run on this node now, which could otherwise; empty if it can.

    1. what the end of no replica mends: weights that it lacks, its disk, and cards that are in maintenance or unhealthy
    2. what others use: cores, memory, cards
    """
    if model is not None:  # 1
        if model.weights in room.node.lacks:
            return "no_weights_now"
        if room.lacks_disk(model.weights, model.weights_size):
            return "no_disk_now"
    if profile.cards:
        why = _cards_out(room, profile)
        if why:
            return why
    if profile.threads > room.cores:  # 2
        return "no_cores_now"
    if profile.memory > room.memory:
        return "no_memory_now"
    return "no_card_memory_now" if profile.cards and not holds(profile, left_now(room, profile)) else ""


def of_class(profile: ProfileView, cards: Iterable[CardView]) -> list[CardView]:
    """The cards that a profile may use by their class."""
    return [card for card in cards if not profile.card_classes or card.klass in profile.card_classes]


def cards_left(room: Room, profile: ProfileView) -> list[tuple[CardView, int]]:
    """The cards of a node that a profile may use, with the bytes that are left of each."""
    return [
        (card, free)
        for card, free in zip(room.node.cards, room.cards, strict=True)
        if free > 0 and (not profile.card_classes or card.klass in profile.card_classes)
    ]


def holds(profile: ProfileView, left: Sequence[int]) -> bool:
    """Whether the first cards of these (bytes left, the most first) can hold the profile's card memory.

    1. evenly, or on one card: the fullest of them has room for its part
    2. by layers: each of them has room for one beside what every card needs, for llama.cpp uses no card that gets none;
       and all of them for as many as there are (`ProfileView.pieces`)
    """
    if len(left) < profile.cards:
        return False
    if profile.even or profile.cards == 1:  # 1
        return left[profile.cards - 1] * profile.cards >= profile.card_memory
    most, _ = bounds(profile, left[: profile.cards])  # 2
    return most[-1] > 0 and sum(most) >= profile.pieces.number


def bounds(profile: ProfileView, left: Sequence[int]) -> tuple[list[int], int]:
    """How many pieces each of these cards can hold (bytes left, the most first), and the place of the card where the output
    layer lies: the one where its extra bytes cost the fewest pieces, of equals the emptiest."""
    _, size, extra = profile.pieces
    base, host = profile.card_base, 0
    most = [(free - base) // size for free in left]
    if extra:
        beside = [(free - base - extra) // size for free in left]
        able = [place for place, count in enumerate(beside) if count > 0]
        host = min(able, key=lambda place: (most[place] - beside[place], place), default=0)
        most[host] = beside[host] if able else 0
    return most if min(most) > 0 else [0] * len(most), host


def _cards_out(room: Room, profile: ProfileView) -> str:
    """Whether maintenance, or a verdict of health, leaves too few cards or too small ones, whoever uses them."""
    if room.sound:
        return ""
    found = of_class(profile, room.node.cards)
    if holds(profile, whole(card for card in found if card.usable)):
        return ""
    healthy = holds(profile, whole(card for card in found if not card.maintenance))
    return "cards_unhealthy" if healthy else "cards_in_maintenance"
