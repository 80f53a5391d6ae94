"""Guarantees against the fleet, against those above and against limits; and how scopes stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.accounts import books
from cluster.domain.amounts import WHOLE, cards_of, of_fleet, part_of, words
from cluster.domain.guarantees import check, worse
from cluster.domain.modules import Module
from cluster.domain.states import NodeState
from cluster.domain.types import Amount, ScopeView, World
from llmgw_site.lib.units import GIB, MIB
from tests.cluster.builders import a_card, a_node
from tests.cluster.domain.test_quotas import cards, cards_node, on, owned, tree

FLEET = {"cores": 16, "memory": 64 * GIB, "cards:L4": 4 * WHOLE}


@pytest.mark.parametrize(
    ("size", "part"),
    [
        (0, 0),
        (1, WHOLE // int(23.04 * GIB)),
        (24 * GIB, WHOLE),  # more than it can give is no more than the card
        (20 * GIB, WHOLE),
        (12 * GIB, WHOLE),  # no second one fits beside it
        (11 * GIB, WHOLE // 2),
        (8 * GIB, WHOLE // 2),  # two fit, a third one does not
        (7 * GIB, WHOLE // 3),
        (2 * GIB, WHOLE // 11),
    ],
)
def test_a_part_of_a_card_is_one_of_as_many_as_fit_there(size, part) -> None:
    """24 GiB less the margin of 4 % are 23.04 GiB."""
    (found,) = cards_of(a_node(cards=(a_card(memory=24 * GIB),))).values()
    assert found[0] == "cards:L4"
    assert part_of(found[1], size) == part


def test_a_card_that_tells_no_memory_counts_whole() -> None:
    (found,) = cards_of(a_node(cards=(a_card(memory=0),))).values()
    assert part_of(found[1], GIB) == WHOLE


def test_the_fleet_is_all_that_engines_can_get_when_every_node_is_well() -> None:
    nodes = [
        cards_node(state=NodeState.OFFLINE),
        a_node("two", memory=8 * GIB, maintenance="drained"),
        a_node("web", memory=8 * GIB, modules=frozenset({Module.CONTROLLER.value})),
    ]
    assert of_fleet(nodes) == {"cores": 36, "memory": 72 * GIB - 2 * 512 * MIB, "cards:L4": 4 * WHOLE}


@pytest.mark.parametrize(
    ("amounts", "code", "message"),
    [
        ({}, "", ""),
        ({"o1": {"guarantee": cards(3)}, "o2": {"guarantee": cards(1)}}, "", ""),
        (
            {"o1": {"guarantee": cards(3)}, "o2": {"guarantee": cards(2)}},
            "guarantees_over_fleet",
            "the guarantees add up to 5 cards of class L4 (name-o1 3, name-o2 2), and the fleet has 4",
        ),
        (  # an organisation that names nothing is guaranteed what those beneath it are
            {"p1": {"guarantee": cards(3)}, "t3": {"guarantee": cards(2)}},
            "guarantees_over_fleet",
            "the guarantees add up to 5 cards of class L4 (name-o1 3, name-o2 2), and the fleet has 4",
        ),
        (
            {"o1": {"guarantee": cards(1, "H100")}},
            "guarantees_over_fleet",
            "the guarantees add up to 1 card of class H100 (name-o1 1), and the fleet has none: its cards are of L4",
        ),
        (
            {"o1": {"guarantee": Amount(cores=17)}},
            "guarantees_over_fleet",
            "the guarantees add up to 17 cores (name-o1 17), and the fleet has 16",
        ),
        (
            {"o1": {"guarantee": Amount(memory=65 * GIB)}},
            "guarantees_over_fleet",
            "the guarantees add up to 65.0 GiB of memory (name-o1 65.0 GiB), and the fleet has 64.0 GiB",
        ),
        (
            {
                "t1": {"guarantee": Amount(cores=4)},
                "p1": {"guarantee": Amount(cores=3)},
                "p2": {"guarantee": Amount(cores=2)},
            },
            "guarantees_over_parent",
            "the guarantees within the team name-t1 add up to 5 cores (name-p1 3, name-p2 2), and it is guaranteed 4",
        ),
        (  # past a team that names nothing
            {"o1": {"guarantee": Amount(cores=4)}, "p1": {"guarantee": Amount(cores=5)}},
            "guarantees_over_parent",
            "the guarantees within the organisation name-o1 add up to 5 cores (name-t1 5), and it is guaranteed 4",
        ),
        ({"o1": {"guarantee": Amount(cores=4)}, "p1": {"guarantee": cards(2)}}, "", ""),  # another thing
        (
            {"p1": {"guarantee": Amount(cores=4), "limit": Amount(cores=3)}},
            "guarantee_over_limit",
            "the project name-p1 is guaranteed 4 cores, and its limit is 3",
        ),
        (
            {"p1": {"guarantee": Amount(cores=4)}, "o1": {"limit": Amount(cores=3)}},
            "guarantee_over_limit",
            "the organisation name-o1 is guaranteed 4 cores (name-t1 4), and its limit is 3",
        ),
        ({"p1": {"guarantee": Amount(cores=4), "limit": Amount(cores=4, memory=1)}}, "", ""),
        ({"o1": {"limit": Amount(cores=1000)}}, "", ""),  # a limit above the fleet limits nothing
    ],
)
def test_guarantees_are_checked_with_their_sums(amounts, code, message) -> None:
    found = check(tree(**amounts), FLEET)
    assert [(item.code, item.message) for item in found] == ([(code, message)] if code else [])


def test_a_fleet_without_cards_says_so() -> None:
    (found,) = check(tree(o1={"guarantee": cards(1)}), {"cores": 1, "memory": 1})
    assert found.message.endswith("and the fleet has no card")


def test_only_what_a_change_makes_worse_is_its_fault() -> None:
    """A node has left, and 5 of 4 are guaranteed: giving one back goes through, though 5 of 4 were too many too."""
    before = check(tree(o1={"guarantee": cards(4)}, o2={"guarantee": cards(2)}), FLEET)
    better = check(tree(o1={"guarantee": cards(3)}, o2={"guarantee": cards(2)}), FLEET)
    assert before
    assert better
    assert worse(before, better) is None
    found = worse(better, before)
    assert found is not None
    assert found.over == 2 * WHOLE
    other = check(tree(o1={"guarantee": cards(4)}, o2={"guarantee": Amount(cards=(("L4", 2),), cores=99)}), FLEET)
    assert (worse(before, other) or found).key == "cores"


def test_how_scopes_stand() -> None:
    node = cards_node()
    first, second = owned("first", "p1"), owned("second", "t1")
    world = World(
        models=(first, second, owned("third", "t1")),
        nodes=(node,),
        replicas=(on(first, node, 0), on(first, node, 1), on(second, node, 2)),
        scopes=tree(p1={"guarantee": cards(1)}, o1={"limit": cards(2), "guarantee": cards(9)}),
    )
    found = books(world)
    assert [item.scope.id for item in found.accounts] == ["o1", "t1", "p1", "p2", "t2", "p3", "o2", "t3", "p4"]
    accounts = {item.scope.id: item for item in found.accounts}
    assert accounts["p1"].path == ("name-o1", "name-t1", "name-p1")
    assert accounts["p1"].borrowed == {"cards:L4": WHOLE}
    assert accounts["t1"].models == ("second", "third")
    assert accounts["o1"].held["cards:L4"] == 3 * WHOLE
    assert accounts["o1"].keys == ("cards:L4", "cores", "memory")
    assert [item.set for item in found.accounts].count(True) == 2
    assert [item.code for item in found.problems] == ["guarantees_over_fleet", "guarantee_over_limit"]
    assert books(replace(world, scopes=())).accounts == ()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("cores", 1, "1 core"),
        ("cores", 0, "0 cores"),
        ("memory", GIB, "1.0 GiB of memory"),
        ("cards:L4", WHOLE, "1 card of class L4"),
        ("cards:L4", WHOLE // 3, "0.33 cards of class L4"),
        ("cards:", 2 * WHOLE, "2 cards of class unknown"),
    ],
)
def test_amounts_in_words(key: str, value: Any, text: str) -> None:
    assert words(key, value) == text


cores = st.one_of(st.none(), st.integers(0, 12))


@given(st.lists(st.tuples(cores, cores, st.integers(0, 99)), max_size=6), st.integers(0, 24))
def test_a_tree_has_no_problem_exactly_when_every_sum_fits(
    found: list[tuple[int | None, int | None, int]], fleet: int
) -> None:
    """Guarantee, limit and parent of each scope; a scope without a guarantee counts for those beneath it."""
    above = [pick % (number + 1) - 1 for number, (_, _, pick) in enumerate(found)]  # -1: an organisation
    scopes = tuple(
        ScopeView(
            id=f"s{number}", kind="team", name=f"s{number}", parent=f"s{above[number]}" if above[number] >= 0 else "",
            guarantee=Amount(cores=guarantee), limit=Amount(cores=limit),
        )
        for number, (guarantee, limit, _) in enumerate(found)
    )  # fmt: skip
    beneath = dict.fromkeys(range(-1, len(found)), 0)
    counts = [0] * len(found)
    codes = set()
    for number in reversed(range(len(found))):
        guarantee, limit, _ = found[number]
        counts[number] = beneath[number] if guarantee is None else guarantee
        beneath[above[number]] += counts[number]
        if guarantee is not None and beneath[number] > guarantee:
            codes.add(("guarantees_over_parent", f"s{number}", beneath[number] - guarantee))
        if limit is not None and counts[number] > limit:
            codes.add(("guarantee_over_limit", f"s{number}", counts[number] - limit))
    if beneath[-1] > fleet:
        codes.add(("guarantees_over_fleet", "", beneath[-1] - fleet))
    problems = check(scopes, {"cores": fleet, "memory": 0})
    assert {(item.code, item.scope_id, item.over) for item in problems} == codes
    assert len(problems) == len(codes)
    for item in problems:  # what makes none larger goes through, what makes one does not
        assert worse(problems, [item]) is None
        assert worse([other for other in problems if other != item], problems) == item
