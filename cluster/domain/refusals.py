"""The words of a refusal: what a profile lacks on a node, with the figures, so that somebody can act on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cluster.domain.board import Board
from cluster.domain.feasible import PINNED, Answer, answer_of, of_class, to_fetch, why_not
from cluster.domain.room import Room, card_margin, margin
from cluster.domain.types import ModelView, NodeView, ProfileView
from llmgw_site.lib.units import format_bytes

SHOWN = 8
"""Cards of a node that are told one by one."""


@dataclass(frozen=True)
class Verdict:
    answer: Answer
    code: str = ""
    message: str = ""


OK = Verdict(Answer.OK)


def feasible(
    board: Board, node: NodeView, profile: ProfileView, without: Iterable[str] = (), model: ModelView | None = None
) -> Verdict:
    """Whether a profile can run on a node, with words. `without`: replicas to count as gone (they would be replaced)."""
    mark = board.mark()
    for replica_id in without:
        if board.replica(replica_id) is not None:
            board.lift(replica_id)
    room = board.rooms[node.id]
    found = verdict(room, profile, why_not(room, profile, model), model)
    board.back(mark)
    return found


def verdict(room: Room, profile: ProfileView, code: str, model: ModelView | None = None) -> Verdict:
    return Verdict(answer_of(code), code, words(room, profile, code, model)) if code else OK


def words(room: Room, profile: ProfileView, code: str, model: ModelView | None = None) -> str:
    """The sentence of a refusal, about `it`, the node."""
    return _WORDS[code](room, profile, model)


def class_words(profile: ProfileView) -> str:
    return f" of class {' or '.join(profile.card_classes)}" if profile.card_classes else ""


def _state(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    """A node in maintenance that is off says both."""
    node = room.node
    return f"it is {node.state.value}" + (f" and {node.maintenance_words}" if node.maintenance else "")


def _maintenance(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    return f"it is {room.node.maintenance_words}"


def _labels(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    missing = [f"{key}={value}" for key, value in profile.labels if room.node.labels.get(key) != value]
    return f"it lacks the label {', '.join(missing)}"


def _memory(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    most = max(0, room.node.memory_total - margin(room.node))
    return f"it needs {format_bytes(profile.memory)} of memory and the whole node can give {format_bytes(most)}"


def _memory_now(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    return f"it needs {format_bytes(profile.memory)} of memory and {format_bytes(room.memory)} are free for it now"


def _cores(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    return f"the profile wants {profile.threads} threads and it has {room.node.cores} cores"


def _cores_now(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    return f"the profile wants {profile.threads} cores and {max(0, room.cores)} of {room.node.cores} are free now"


def _few_cards(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    have = [card.klass or "unknown" for card in room.node.cards]
    shown = f"{len(have)} ({', '.join(sorted(set(have)))})" if have else "none"
    return f"the profile wants {profile.cards} cards{class_words(profile)} and it has {shown}"


def _card_memory(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    found = of_class(profile, room.node.cards)[:SHOWN]
    most = ", ".join(format_bytes(max(0, card.memory_total - card_margin(card))) for card in found)
    return f"it needs {_need(profile)} and its cards can give {most}"


def _card_memory_now(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    parts = []
    for card, free in zip(room.node.cards, room.cards, strict=True):
        if not profile.card_classes or card.klass in profile.card_classes:
            others = f" ({format_bytes(card.foreign)} held by other programs)" if card.foreign else ""
            parts.append(f"{format_bytes(max(0, free))}{others}" if card.usable else "none of one that is out")
    return f"it needs {_need(profile)} and its cards have now {', '.join(parts[:SHOWN])}"


def _need(profile: ProfileView) -> str:
    total = format_bytes(profile.card_memory)
    if profile.cards == 1:
        return f"{total} of one card"
    if not profile.even:
        return f"{total} over {profile.cards} cards"
    return f"{format_bytes(-(-profile.card_memory // profile.cards))} of each of {profile.cards} cards"


def _cards_out(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    out = [f"card {card.uuid} is {card.maintenance}" for card in room.node.cards if card.maintenance]
    return f"the profile wants {profile.cards} cards{class_words(profile)}, and {'; '.join(out[:SHOWN])}"


def _health(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    bad = [f"card {card.uuid}: {card.problem}" for card in room.node.cards if card.problem]
    return f"the profile wants {profile.cards} cards{class_words(profile)}, and of its cards {'; '.join(bad[:SHOWN])}"


def _disk(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    need = format_bytes(to_fetch(model, room.node) if model else 0)
    return f"the weights need {need} of disk and {format_bytes(room.node.disk_free or 0)} are free"


Words = Callable[[Room, ProfileView, ModelView | None], str]
_WORDS: dict[str, Words] = {
    PINNED: lambda room, profile, model: f"the profile may run only on {', '.join(profile.nodes)}",
    "node_stale": _state,
    "node_offline": _state,
    "no_inference_module": lambda room, profile, model: "it does not run the module inference",
    "node_cordoned": _maintenance,
    "node_drained": _maintenance,
    "engine_missing": lambda room, profile, model: f"it has no {profile.engine}",
    "engine_broken": lambda room, profile, model: (
        f"its {profile.engine} cannot run: {room.node.engines[profile.engine]}"
    ),
    "label_missing": _labels,
    "no_fabric": lambda room, profile, model: f"it is on no fabric, and the profile spans {profile.span} nodes of one",
    "too_few_cores": _cores,
    "too_little_memory": _memory,
    "too_few_cards": _few_cards,
    "no_card_of_class": _few_cards,
    "too_little_card_memory": _card_memory,
    "no_cores_now": _cores_now,
    "no_memory_now": _memory_now,
    "cards_in_maintenance": _cards_out,
    "cards_unhealthy": _health,
    "no_card_memory_now": _card_memory_now,
    "no_disk_now": _disk,
}
