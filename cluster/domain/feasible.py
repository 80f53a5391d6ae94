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
        "no_cores_now", "no_memory_now", "no_card_memory_now", "no_disk_now",
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
    """Why a profile cannot run on a node of this kind; empty if it could, were the node empty. The state of the node and
    its maintenance count here, for nodes of one kind share them too."""
    if not profile.may_run_on(node):
        return PINNED
    if node.state is not NodeState.ONLINE:
        return "node_" + node.state.value
    if not node.runs(Module.INFERENCE):
        return "no_inference_module"
    if node.maintenance:
        return "node_drained" if node.drained else "node_cordoned"
    if profile.engine not in node.engines:
        return "engine_missing"
    if node.engines[profile.engine]:
        return "engine_broken"
    if any(node.labels.get(key) != value for key, value in profile.labels):
        return "label_missing"
    if profile.span > 1 and not node.fabric:
        return "no_fabric"
    if profile.threads > node.cores:
        return "too_few_cores"
    if profile.memory > node.memory_total - margin(node):
        return "too_little_memory"
    return _lasting_cards(node, profile)


def _lasting_cards(node: NodeView, profile: ProfileView) -> str:
    if not profile.cards:
        return ""
    if len(node.cards) < profile.cards:
        return "too_few_cards"
    found = of_class(profile, node.cards)
    if len(found) < profile.cards:
        return "no_card_of_class"
    most = sorted((card.memory_total - card_margin(card) for card in found), reverse=True)
    return "" if holds(profile, most) else "too_little_card_memory"


def fits_now(room: Room, profile: ProfileView, model: ModelView | None = None) -> bool:
    """Whether `passing` has nothing to say. It is asked of thousands of nodes, so it works nothing else out."""
    if profile.threads > room.cores or profile.memory > room.memory:
        return False
    disk = room.node.disk_free
    if disk is not None and model is not None and model.weights and disk < to_fetch(model, room.node):
        return False
    return not profile.cards or holds(profile, left_now(room, profile))


def left_now(room: Room, profile: ProfileView) -> Sequence[int]:
    """What is left of each card that a profile may use, the most first."""
    if not profile.card_classes or (room.klass is not None and room.klass in profile.card_classes):
        return room.top
    return sorted((free for _, free in cards_left(room, profile)), reverse=True)


def passing(room: Room, profile: ProfileView, model: ModelView | None = None) -> str:
    """Why a profile cannot run on this node now, which could otherwise; empty if it can."""
    node = room.node
    if profile.threads > room.cores:
        return "no_cores_now"
    if profile.memory > room.memory:
        return "no_memory_now"
    if model is not None and node.disk_free is not None and node.disk_free < to_fetch(model, node):
        return "no_disk_now"
    if profile.cards and not holds(profile, left_now(room, profile)):
        return _which_cards(room, profile)
    return ""


def to_fetch(model: ModelView, node: NodeView) -> int:
    """Bytes of weights that do not lie on the node yet."""
    return 0 if not model.weights or model.weights in node.weights else model.weights_size


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
    """Whether the first cards of these (bytes left, the most first) can hold the profile's card memory."""
    if len(left) < profile.cards:
        return False
    if profile.even or profile.cards == 1:
        return left[profile.cards - 1] * profile.cards >= profile.card_memory
    piece, base, chosen = max(profile.layer, 1), profile.card_base, left[: profile.cards]
    if base and chosen[-1] < base:
        return False
    return sum((free - base) // piece * piece for free in chosen) >= profile.card_memory - base * profile.cards


def _which_cards(room: Room, profile: ProfileView) -> str:
    """Whether it is maintenance or a verdict of health that makes cards too few, or who uses them."""
    offered = usable = 0
    for card in room.node.cards:
        if not card.maintenance and (not profile.card_classes or card.klass in profile.card_classes):
            offered += 1
            usable += not card.problem
    if offered < profile.cards:
        return "cards_in_maintenance"
    return "cards_unhealthy" if usable < profile.cards else "no_card_memory_now"
