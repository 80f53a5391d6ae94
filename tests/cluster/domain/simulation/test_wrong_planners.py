"""A scheduler that breaks a rule is found out by a few fleets: one part of it is replaced by a wrong one each time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from cluster.domain import claims, feasible, place, places, plan, preempt, reconcile, starting, victims
from cluster.domain.quotas import Ledger
from cluster.domain.room import Room
from cluster.domain.simulation import run
from cluster.domain.simulation.random_case import random_case
from cluster.domain.simulation.run import simulate
from cluster.domain.types import ModelView, NodeView, ProfileView, ReplicaView, Share, World
from cluster.domain.victims import Asker, Ground

FLEETS, CROWDED = 40, 14
Patch = pytest.MonkeyPatch


def caught(rule: str) -> bool:
    return any(any(item.rule == rule for item in simulate(random_case(seed)).violations) for seed in range(FLEETS))


def caught_in_a_crowd(rule: str) -> bool:
    """What is rare elsewhere: many models on a few nodes."""
    cases = (random_case(seed, nodes=5, models=20) for seed in range(CROWDED))
    return any(any(item.rule == rule for item in simulate(case).violations) for case in cases)


def anybody(asked: Asker, other: ModelView) -> Ground | None:
    return Ground.CLASS if other.id != asked.model.id else None


def cards_held(times: int) -> Callable[[Patch], None]:
    """What a replica holds of a card counts so many times."""

    def spoil(patch: Patch) -> None:
        hold = Room._hold

        def wrong(room: Room, share: Share, sign: int) -> None:
            hold(room, share, sign)
            for place_, card in enumerate(room.node.cards):
                if card.usable:
                    room.cards[place_] -= sign * (times - 1) * dict(share.cards).get(card.uuid, 0)
            room._top = None

        patch.setattr(Room, "_hold", wrong)

    return spoil


def foreign_unseen(patch: Patch) -> None:
    made = Room.__init__

    def wrong(room: Room, node: NodeView, index: int) -> None:
        made(room, node, index)
        room.cards = [
            free + card.foreign if card.usable else free for free, card in zip(room.cards, node.cards, strict=True)
        ]

    patch.setattr(Room, "__init__", wrong)


def busiest_first(patch: Patch) -> None:
    def wrong(there: Any, replica: ReplicaView) -> tuple[int, int, int]:
        klass, requests, size = right(there, replica)
        return (klass, -requests, size)

    right = places.Places.dearness
    patch.setattr(places.Places, "dearness", wrong)
    patch.setattr(places.Places, "_alone", lambda there, room: ((0, 0, 0), (0, *there.key([room])), [room]))


def without(patch: Patch, *codes: str) -> None:
    """These reasons against a node are not known."""
    right = feasible.lasting

    def wrong(node: NodeView, profile: ProfileView) -> str:
        why = right(node, profile)
        return "" if why in codes else why

    for module in (feasible, place):
        patch.setattr(module, "lasting", wrong)


def backwards(models: Iterable[ModelView], order: Any = reconcile._order) -> Any:
    return order(models)[::-1]


def one_fewer(board: Any, model_id: str) -> Sequence[ReplicaView]:
    return plan.running(board, model_id)[1:]


WRONG: list[tuple[str, str, Callable[[Patch], Any]]] = [
    ("guarantees protect nobody", "guarantee_broken", lambda patch: patch.setattr(Ledger, "protects", lambda *_: False)),
    ("limits stop nobody", "limit_broken", lambda patch: patch.setattr(Ledger, "over_limit", lambda *_, **__: "")),
    ("every class gives way", "class_inversion", lambda patch: patch.setattr(victims, "model_ground", anybody)),
    ("nobody gives way", "starved", lambda patch: patch.setattr(starting, "make_room", lambda *_, **__: None)),
    ("busy ones before idle ones", "dearer", busiest_first),
    ("the lowest class first", "class_inversion", lambda patch: patch.setattr(
        reconcile, "_order", backwards
    )),
    ("a card is promised half", "promised_twice", cards_held(0)),
    ("a card is promised double", "starved", cards_held(2)),
    ("other programs are not seen", "promised_twice", foreign_unseen),
    ("labels are not looked at", "misplaced", lambda patch: without(patch, "label_missing")),
    ("maintenance is not looked at", "misplaced", lambda patch: without(patch, "node_cordoned", "node_drained")),
    ("no step is held", "flapping", lambda patch: patch.setattr(run, "World", partial(World, scale_down_after=40.0))),
    ("one too many is started", "refused", lambda patch: patch.setattr(starting, "running", one_fewer)),
    ("nobody says why", "unexplained", lambda patch: patch.setattr(starting, "missing", lambda *_, **__: None)),
]  # fmt: skip


RARE: list[tuple[str, str, Callable[[Patch], Any]]] = [
    ("no turn is waited for", "class_inversion", lambda patch: patch.setattr(victims, "_turn_is_over", lambda *_: True)),
    ("all who may give way do", "in_vain", lambda patch: patch.setattr(preempt._Trial, "prune", lambda _: None)),
    ("kept room is free for everybody", "promised_twice", lambda patch: patch.setattr(Room, "keep", lambda *_: None)),
    ("room is kept for ever", "in_vain", lambda patch: [
        patch.setattr(module, "ended", lambda *_, **__: "") for module in (claims, reconcile)
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "spoil"), [item[1:] for item in WRONG], ids=[item[0] for item in WRONG])
def test_a_wrong_scheduler_is_found_out(rule: str, spoil: Callable[[Patch], Any], monkeypatch: Patch) -> None:
    spoil(monkeypatch)
    assert caught(rule)


def test_a_scheduler_that_takes_the_same_room_back_and_forth_is_found_out(monkeypatch: Patch) -> None:
    """As if all that anybody borrowed could be had back at any moment. Fleets of which thirds take room are among these."""
    monkeypatch.setattr(Ledger, "within_guarantee", lambda *_, **__: True)
    missing = {"rule", "text"}
    for seed in range(FLEETS):
        for item in simulate(random_case(seed)).violations:
            missing -= {"rule"} if item.rule == "class_inversion" else set()
            missing -= {"text"} if "gives it back now" in item.text else set()
        if not missing:
            break
    assert not missing


@pytest.mark.prove
@pytest.mark.parametrize(("rule", "spoil"), [item[1:] for item in RARE], ids=[item[0] for item in RARE])
def test_a_wrong_scheduler_is_found_out_in_a_crowd(
    rule: str, spoil: Callable[[Patch], Any], monkeypatch: Patch
) -> None:
    spoil(monkeypatch)
    assert caught_in_a_crowd(rule)
