"""A scheduler that breaks a rule is found out by a few fleets: one part of it is replaced by a wrong one each time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.domain import starting, victims
from cluster.domain.quotas import Ledger
from cluster.domain.simulation.random_case import random_case
from cluster.domain.simulation.run import simulate
from cluster.domain.types import ModelView
from cluster.domain.victims import Asker, Ground

FLEETS = 32


def caught(rule: str) -> bool:
    return any(any(item.rule == rule for item in simulate(random_case(seed)).violations) for seed in range(FLEETS))


def anybody(asked: Asker, other: ModelView) -> Ground | None:
    return Ground.CLASS if other.id != asked.model.id else None


WRONG: list[tuple[str, str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("guarantees protect nobody", "guarantee_broken", lambda patch: patch.setattr(Ledger, "protects", lambda *_: False)),
    ("limits stop nobody", "limit_broken", lambda patch: patch.setattr(Ledger, "over_limit", lambda *_, **__: "")),
    ("every class gives way", "class_inversion", lambda patch: patch.setattr(victims, "model_ground", anybody)),
    ("nobody gives way", "starved", lambda patch: patch.setattr(starting, "make_room", lambda *_, **__: None)),
    ("nobody says why", "unexplained", lambda patch: patch.setattr(starting, "missing", lambda *_: None)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "spoil"), [item[1:] for item in WRONG], ids=[item[0] for item in WRONG])
def test_a_wrong_scheduler_is_found_out(
    rule: str, spoil: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch)
    assert caught(rule)
