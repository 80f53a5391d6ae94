"""The words of a refusal: what a profile lacks on a node, with the figures, so that somebody can act on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from cluster.domain.board import Board
from cluster.domain.feasible import PINNED, Answer, answer_of, of_class, why_not
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
    need, most = told_apart(profile.memory, max(0, room.node.memory_total - margin(room.node)))
    return f"it needs {need} of memory and the whole node can give {most}"


def _memory_now(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    need, left = told_apart(profile.memory, room.memory)
    return f"it needs {need} of memory and {left} are free for it now"


def _cores(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    return f"the profile wants {_count(profile.threads, 'thread')} and it has {_count(room.node.cores, 'core')}"


def _cores_now(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    wanted, free = _count(profile.threads, "core"), max(0, room.cores)
    return f"the profile wants {wanted} and {free} of {room.node.cores} {'is' if free == 1 else 'are'} free now"


def _few_cards(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    have = [card.klass or "unknown" for card in room.node.cards]
    shown = f"{len(have)} ({', '.join(sorted(set(have)))})" if have else "none"
    return f"the profile wants {_cards(profile)} and it has {shown}"


def _card_memory(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    found = of_class(profile, room.node.cards)
    each, total = _each(profile), _total(profile)
    most = [max(0, card.memory_total - card_margin(card)) for card in found]
    return f"it needs {_need(profile)} and its cards can give {_listed(_apart(size, each, total) for size in most)}"


def _card_memory_now(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    parts, each, total = [], _each(profile), _total(profile)
    for card, free in zip(room.node.cards, room.cards, strict=True):
        if not profile.card_classes or card.klass in profile.card_classes:
            others = f" ({format_bytes(card.foreign)} held by other programs)" if card.foreign else ""
            parts.append(f"{_apart(max(0, free), each, total)}{others}" if card.usable else "none of one that is out")
    return f"it needs {_need(profile)} and its cards have now {_listed(parts)}"


def _listed(parts: Iterable[str]) -> str:
    """As the cards come; a row of equal ones is counted: `8 x 46.1 GiB`."""
    rows = [(text, sum(1 for _ in equal)) for text, equal in groupby(parts)]
    return ", ".join(text if count == 1 else f"{count} x {text}" for text, count in rows[:SHOWN])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def told_apart(need: int, have: int) -> tuple[str, str]:
    """Two sizes in words; to the byte where they differ and would read the same."""
    words = format_bytes(need), format_bytes(have)
    return words if words[0] != words[1] or need == have else (f"{need:,} B", f"{have:,} B")


def _apart(have: int, *needs: int) -> str:
    same = any(need != have and format_bytes(need) == format_bytes(have) for need in needs)
    return f"{have:,} B" if same else format_bytes(have)


def _each(profile: ProfileView) -> int:
    """Bytes that a card must have at least."""
    if profile.even or profile.cards == 1:
        return -(-profile.card_memory // max(1, profile.cards))
    return profile.card_base + profile.pieces.size


def _total(profile: ProfileView) -> int:
    """Bytes that its cards hold together, whole layers."""
    if profile.even or profile.cards == 1:
        return profile.card_memory
    found = profile.pieces
    return profile.card_base * profile.cards + found.number * found.size + found.extra


def _cards(profile: ProfileView) -> str:
    return f"{profile.cards} card{'' if profile.cards == 1 else 's'}{class_words(profile)}"


def _need(profile: ProfileView) -> str:
    if profile.cards == 1:
        return f"{format_bytes(profile.card_memory)} of one card"
    if profile.even:
        return f"{format_bytes(_each(profile))} of each of {profile.cards} cards"
    total = f"{format_bytes(_total(profile))} over {profile.cards} cards"
    size = profile.pieces.size
    if size == 1:
        return total
    beside = f" beside {format_bytes(profile.card_base)} on each" if profile.card_base else ""
    return f"{total}, in layers of {format_bytes(size)}{beside}"


def _cards_out(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    out = [f"card {card.uuid} is {card.maintenance}" for card in of_class(profile, room.node.cards) if card.maintenance]
    return f"the profile wants {_cards(profile)}, and {'; '.join(out[:SHOWN])}"


def _health(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    bad = [f"card {card.uuid}: {card.problem}" for card in of_class(profile, room.node.cards) if card.problem]
    return f"the profile wants {_cards(profile)}, and of its cards {'; '.join(bad[:SHOWN])}"


def _disk(room: Room, profile: ProfileView, model: ModelView | None) -> str:
    if model is not None and model.weights in room.node.no_room:
        return f"it has no room for the weights: {room.node.no_room[model.weights]}"
    size, promised = model.weights_size if model is not None else 0, room.disk_promised
    need, free = told_apart(size, max(0, (room.node.disk_free or 0) - promised))
    others = f" beside {format_bytes(promised)} for weights that are to come for others" if promised else ""
    return f"the weights need {need} of disk and {free} are free{others}"


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
    "no_fabric_address": lambda room, profile, model: room.node.unreachable,
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
    "no_weights_now": lambda room, profile, model: f"it does not say that it has {model.weights if model else 'them'}",
}
CODES = frozenset(_WORDS)
"""All codes of a node."""
