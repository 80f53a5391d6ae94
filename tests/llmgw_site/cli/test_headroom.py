"""`llmgw headroom NAME` against a real server."""

from __future__ import annotations

import json

import pytest

from llmgw_site.cli.headroom import fit
from llmgw_site.lib.units import GIB
from tests.cluster.rows import Machine, a_model_row, report, tick
from tests.llmgw_site.cli.conftest import Llmgw

pytestmark = pytest.mark.django_db(transaction=True)


def test_headroom_names_nodes_and_those_who_would_make_room(llmgw: Llmgw) -> None:
    machine = Machine("one")
    machine.heartbeat()
    low = a_model_row("low", profile={"memory": 5 * GIB}, priority_class="opportunistic")
    tick()
    machine.heartbeat(report(low.placed.get(), "ready"))
    a_model_row("high", profile={"memory": 4 * GIB}, priority_class="critical")
    done = llmgw("headroom", "high")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("high: no further replica fits now.\n")
    assert "One more does not fit: no suitable node for high" in done.out
    assert low.placed.get().pk in done.out
    assert "5.0 GiB" in done.out
    told = json.loads(llmgw("headroom", "low", "--json").out)
    assert (told["fits"], told["room_from"]) == (0, [])
    assert llmgw("headroom", "nobody").code == 4
    a_model_row("small", profile={"memory": GIB}, priority_class="opportunistic")
    assert "Beyond these one more does not fit: no suitable node for small" in llmgw("headroom", "small").out


@pytest.mark.parametrize(
    ("fits", "counted", "allowed", "said"),
    [
        (0, True, 3, "no further replica fits now"),
        (1, True, 1, "1 more replica fits"),
        (3, True, 9, "3 more replicas fit"),
        (3, True, 1, "3 more replicas fit, and its maximum allows 1 more"),
        (100, False, 0, "at least 100 more replicas fit, and its maximum allows no more"),
    ],
)
def test_how_many_in_words(fits: int, counted: bool, allowed: int, said: str) -> None:
    assert fit({"fits": fits, "counted": counted, "allowed": allowed}) == said
