from __future__ import annotations

import copy
from typing import Any

import pytest

from cluster.domain.simulation.describe import BadCase, described
from cluster.domain.simulation.report import report
from cluster.domain.simulation.run import simulate
from cluster.domain.types import Klass
from llmgw_site.cli.simulate import EXAMPLE
from llmgw_site.lib.units import GIB


def test_the_example_is_a_case_and_its_run_breaks_no_rule() -> None:
    case = described(EXAMPLE)
    assert (len(case.nodes), sum(len(node.cards) for node in case.nodes), case.hours) == (10, 32, 2.0)
    assert [(model.name, model.base, model.limit, model.klass) for model in case.models] == [
        ("chat", 2, 6, Klass.CRITICAL),
        ("batch", 24, 24, Klass.OPPORTUNISTIC),
        ("tiny", 0, 1, Klass.OPPORTUNISTIC),
    ]
    assert case.nodes[0].cards[0].memory_total == 80 * GIB
    assert case.scopes[0].guarantee.cards == (("H100", 8),)
    assert [item.at for item in case.happenings] == [2400.0, 3600.0]
    outcome = simulate(case)
    assert outcome.violations == ()
    told = report(outcome)
    for word in ("10 nodes, 32 cards", "cores", "card memory", "preempted", "violations  none"):
        assert word in told


def test_counted_nodes_and_models_get_numbers() -> None:
    case = described({"nodes": [{"name": "n", "count": 2}], "models": [{"name": "m", "count": 2, "arrives": "5 min"}]})
    assert [node.name for node in case.nodes] == ["n0", "n1"]
    assert case.absent == {"m0", "m1"}
    assert [(item.at, item.kind, item.subject) for item in case.happenings] == [
        (300.0, "model_add", "m0"), (300.0, "model_add", "m1"),
    ]  # fmt: skip


def changed(*path: Any, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(EXAMPLE)
    place: Any = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return made


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "the description has to be an object"),
        ({}, "nodes: there is none"),
        (changed("nodes", 0, "coers", value=4), "nodes[0].coers is not known here; known are cards, cores"),
        (changed("nodes", 0, "cores", value="many"), "nodes[0].cores has to be a number"),
        (changed("nodes", 0, "memory", value="lots"), "nodes[0].memory: 'lots' is no size"),
        (changed("nodes", 0, "cards", 0, "class", value=3), "nodes[0].cards[0].class has to be a text"),
        (changed("nodes", 1, "name", value="big"), "nodes[1]: there is a node big0 already"),
        (changed("nodes", 0, "count", value=10**9), "nodes[0].count has to be a number from 1 to 100000"),
        (changed("nodes", 0, "cards", 0, "count", value=65), "nodes[0].cards[0].count has to be a number from 1 to 64"),
        (changed("models", 0, "count", value=10**9), "models[0].count has to be a number from 1 to 100000"),
        (changed("for", value="1000000 h"), "for and tick: that is 1.8e+08 looks, and at most 1,000,000 are tried"),
        (changed("for", value="soon"), "for: 'soon' is no span"),
        (changed("models", 0, "class", value="vip"), "models[0].class is 'vip': write one of opportunistic, standard"),
        (changed("models", 1, "owner", value="nobody"), "models[1].owner: there is no scope nobody"),
        (changed("models", 0, "profiles", 0, "even", value=1), "models[0].profiles[0].even has to be true or false"),
        (changed("models", 0, "load", "kind", value="tide"), "models[0].load.kind is 'tide'"),
        (changed("happenings", 0, "node", value="huge"), "happenings[0].node: there is no node huge"),
        (changed("happenings", 0, value={"what": "card_bad", "node": "small0"}), "node small0 has 0 cards"),
        (changed("scopes", 0, "parent", value="none"), "scopes[0].parent: there is no scope none"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_with_its_place(values: Any, words: str) -> None:
    with pytest.raises(BadCase) as caught:
        described(values)
    assert words in str(caught.value)
