"""Why a model finds no place: each node, or each class of cards, with its reason and the figures; what is said twice is
said once, so that ten thousand nodes make a few sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cluster.domain.board import Board
from cluster.domain.feasible import BUSY, NOT_NOW, PINNED, cards_left, of_class, passing, whole
from cluster.domain.refusals import CODES, words
from cluster.domain.room import Room
from cluster.domain.types import ModelView, ProfileView

NAMED = 12
"""Nodes up to which each has its own words; of more, those with one reason are told together by the one that comes nearest."""
FEW = 3
"""Nodes of such a group that are named, and fabrics."""
GROUPS = 12
"""Groups that are told; of the others their number with each code."""
FAILED_THERE = "failed_there"
_FAILED_WORDS = "it has failed there and is not placed there again without a change"
FABRIC_TOO_SMALL = "fabric_too_small"
"""Code of a model that spans more nodes than any fabric has for it."""
UNFIT = CODES - NOT_NOW | {"no_suitable_node", FABRIC_TOO_SMALL}
"""Codes of a model that no waiting helps: nodes, or its profiles, have to change."""
Refused = tuple[Room, str]
"""A node, and the code of what is in the way there; empty: nothing is."""


@dataclass(frozen=True, kw_only=True)
class NoPlace:
    """Why a model is nowhere: a stable code, and a sentence that names each node, or class of cards, and its reason.

    `waits`: it can be placed once something ends or comes back. `busy`: it fits the hardware, and others use it.
    """

    code: str
    message: str
    waits: bool = False
    busy: bool = False


@dataclass(frozen=True)
class Outlook:
    """What waiting would help. `busy`: nodes enough have the hardware, and others use it."""

    waits: bool
    busy: bool


def look(board: Board, model: ModelView, profile: ProfileView, codes: Sequence[str]) -> list[Refused]:
    """Each node with what is in the way there now. `codes`: what lasts, by index."""
    pairs = zip(board.by_index, codes, strict=True)
    return [(room, code or passing(room, profile, model)) for room, code in pairs]


def outlook(profile: ProfileView, found: Iterable[Refused]) -> Outlook:
    """1. on one node: what is in the way on any of them
    2. over several: whether a fabric has as many as it takes that have room or are only in use, or may come back
    """
    if profile.span == 1:  # 1
        codes = {code for _, code in found}
        return Outlook(waits=not codes.isdisjoint(NOT_NOW), busy=not codes.isdisjoint(BUSY))
    fabrics = _fabrics(found)  # 2
    return Outlook(
        waits=any(item.later >= profile.span for item in fabrics.values()),
        busy=any(item.fit >= profile.span for item in fabrics.values()),
    )


def refused(board: Board, model: ModelView, profile: ProfileView, codes: Sequence[str]) -> NoPlace:
    """Why a profile is nowhere now.

    1. nodes that it may not run on by its own word are left out, unless all are
    2. the code is that of the nodes if all agree; else `no_room_now` if waiting may help, `no_suitable_node` if it cannot
    3. over several nodes: `fabric_too_small` where no fabric has nodes enough for it, `no_fabric_now` where one has, and
       some of them have room
    """
    found = look(board, model, profile, codes)
    seen = outlook(profile, found)
    told = [item for item in found if item[1] and item[1] != PINNED] or [item for item in found if item[1]]  # 1
    parts = _each(profile, model, told) if len(told) <= NAMED else _together(board, profile, model, told)
    reasons = {why for _, why in told}
    code = reasons.pop() if len(reasons) == 1 else "no_room_now" if seen.waits else "no_suitable_node"  # 2
    if profile.span > 1:  # 3
        fabrics = _fabrics(found)
        if fabrics:
            parts.insert(0, _fabric_words(profile, fabrics))
            if not seen.waits:
                code = FABRIC_TOO_SMALL
            elif any(item.now for item in fabrics.values()):
                code = "no_fabric_now"
    message = f"no suitable node for {model.name}, because {'; '.join(parts)}"
    return NoPlace(code=code, message=message, waits=seen.waits, busy=seen.busy)


# --- fabrics


@dataclass
class _Fabric:
    """Nodes of a fabric: that have room now; that have the hardware; that would have it if they came back."""

    now: int = 0
    fit: int = 0
    later: int = 0


def _fabrics(found: Iterable[Refused]) -> dict[str, _Fabric]:
    """Those with a node that may hold a part at some time."""
    fabrics: dict[str, _Fabric] = {}
    for room, code in found:
        if room.node.fabric and (not code or code in NOT_NOW):
            item = fabrics.setdefault(room.node.fabric, _Fabric())
            item.now += not code
            item.fit += not code or code in BUSY
            item.later += 1
    return fabrics


def _fabric_words(profile: ProfileView, fabrics: dict[str, _Fabric]) -> str:
    best = sorted(fabrics.items(), key=lambda pair: (-pair[1].fit, -pair[1].later, -pair[1].now, pair[0]))
    told = ", ".join(f"{name} has {item.later} ({item.now} with room now)" for name, item in best[:FEW])
    more = f", and {len(best) - FEW} other fabrics no more" if len(best) > FEW else ""
    return f"it spans {profile.span} nodes of one fabric, and of nodes that could hold a part fabric {told}{more}"


# --- nodes


def _each(profile: ProfileView, model: ModelView, told: Iterable[Refused]) -> list[str]:
    names: dict[str, list[str]] = {}
    for room, code in told:
        names.setdefault(_words(room, profile, code, model), []).append(room.node.name)
    return [f"{', '.join(nodes)}: {text}" for text, nodes in names.items()]


class _Group:
    """Nodes with one reason. `nearest`: the one whose figure is the best; `alike`: all have that figure."""

    __slots__ = ("alike", "best", "code", "count", "klass", "names", "nearest")

    def __init__(self, code: str, klass: str, nearest: Room, best: int) -> None:
        self.code, self.klass, self.nearest, self.best = code, klass, nearest, best
        self.alike, self.count, self.names = True, 0, list[str]()

    def add(self, room: Room, figure: int) -> None:
        self.count += 1
        if len(self.names) < FEW:
            self.names.append(room.node.name)
        if figure != self.best:
            self.alike = False
            if figure > self.best:
                self.best, self.nearest = figure, room


def _together(board: Board, profile: ProfileView, model: ModelView, told: Iterable[Refused]) -> list[str]:
    """Reasons in order: what others use, what may pass, what is too small, all else; the more nodes, the sooner."""
    groups: dict[tuple[str, object], _Group] = {}
    kinds, asked = board.kinds, [key for key, _ in profile.labels]
    for room, code in told:
        figure = _FIGURES.get(code)
        if figure is None:  # words without figures: alike for nodes of a kind, but for labels and what people wrote
            node = room.node
            key: object = (kinds[room.index], node.maintenance_why, *(node.labels.get(label) for label in asked))
            klass, size = "", 0
        else:
            klass = "" if code not in _OF_CARDS else room.klass if room.klass is not None else "mixed"
            key, size = klass, figure(room, profile)
        group = groups.get((code, key))
        if group is None:
            group = groups[code, key] = _Group(code, klass, room, size)
        group.add(room, size)
    merged: dict[str, _Group] = {}
    for group in groups.values():
        text = _words(group.nearest, profile, group.code, model)
        text = text if group.alike else f"at best, on {group.nearest.node.name}, {text}"
        text = f"with cards of class {group.klass}: {text}" if group.klass else text
        there = merged.setdefault(text, group)
        if there is not group:
            there.count, there.names = there.count + group.count, (there.names + group.names)[:FEW]
    order = sorted(merged.items(), key=lambda pair: (_rank(pair[1].code), -pair[1].count))
    parts = [_group_words(group, text) for text, group in order[:GROUPS]]
    rest = Counter[str]()
    for _, group in order[GROUPS:]:
        rest[group.code] += group.count
    if rest:
        parts.append(f"and {rest.total()} more nodes ({', '.join(f'{n} {code}' for code, n in rest.most_common())})")
    return parts


def _group_words(group: _Group, text: str) -> str:
    more = f" and {group.count - len(group.names)} more" if group.count > len(group.names) else ""
    return f"{', '.join(group.names)}{more}{' ' if group.klass else ': '}{text}"


def _rank(code: str) -> int:
    if code in BUSY:
        return 0
    return 1 if code in NOT_NOW else 2 if code in _FIGURES else 3


def _words(room: Room, profile: ProfileView, code: str, model: ModelView) -> str:
    return _FAILED_WORDS if code == FAILED_THERE else words(room, profile, code, model)


def _of_cards(profile: ProfileView, left: Sequence[int]) -> int:
    """How near some cards (bytes of each, the most first) come to holding a profile."""
    if profile.even or profile.cards == 1:
        return left[profile.cards - 1] if len(left) >= profile.cards else 0
    return sum(left[: profile.cards])


_OF_CARDS = frozenset({"no_card_memory_now", "too_little_card_memory"})
_FIGURES: dict[str, Callable[[Room, ProfileView], int]] = {
    "too_few_cores": lambda room, profile: room.node.cores,
    "no_cores_now": lambda room, profile: room.cores,
    "too_little_memory": lambda room, profile: room.node.memory_total,
    "no_memory_now": lambda room, profile: room.memory,
    "no_disk_now": lambda room, profile: (room.node.disk_free or 0) - room.disk_promised,
    "too_little_card_memory": lambda room, profile: _of_cards(profile, whole(of_class(profile, room.node.cards))),
    "no_card_memory_now": lambda room, profile: _of_cards(
        profile, sorted((free for _, free in cards_left(room, profile)), reverse=True)
    ),
}  # fmt: skip
"""By code: the figure by which a node comes nearer than another."""
