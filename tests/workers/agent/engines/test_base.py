"""workers.agent.engines.base: what the controllers want, as the command builder takes it."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.domain.engine_command import CardUse
from cluster.wire import CardReport, Serve, Weights
from llmgw_site.lib.units import GIB
from workers.agent.engines.base import run_of

REPORTS = (CardReport(uuid="a", name="L4", memory_total=24 * GIB), CardReport(uuid="b", name="L4", memory_total=None))


@pytest.mark.parametrize(
    ("fields", "uses"),
    [
        ({}, ()),
        (
            {"card_memory": (20 * GIB, 9 * GIB), "card_base": GIB, "card_layers": (24, 3), "cards": ("a", "b")},
            (
                CardUse(memory=20 * GIB, base=GIB, layers=24, total=24 * GIB),
                CardUse(memory=9 * GIB, base=GIB, layers=3),
            ),
        ),
        # of a controller that knew nothing of layers, and of one that knew nothing of shares
        ({"cards": ("a",), "card_memory": (GIB,)}, (CardUse(memory=GIB, total=24 * GIB),)),
        ({"cards": ("a", "gone")}, (CardUse(memory=0, total=24 * GIB), CardUse(memory=0))),
    ],
)
def test_cards_come_with_what_is_theirs(fields: dict[str, Any], uses: tuple[CardUse, ...]) -> None:
    serve = Serve(engine="llama.cpp", model="m", weights=Weights(path="/w/m.gguf"), **fields)
    assert run_of(serve, port=4000, threads=3, cards=REPORTS).cards == uses
