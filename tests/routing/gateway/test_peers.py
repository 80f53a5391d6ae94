"""What a node knows of the others: candidates, marks, counts, and the list of models."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from cluster.domain.modules import MapNode
from llmgw_site.lib.config import load
from llmgw_site.lib.errors import Kind, Refused
from routing.domain.choose import Route
from routing.domain.nodes import Rule, Strategy
from routing.domain.offers import NodeOffers, Offer
from routing.domain.snapshot import External, ModelEntry, Placed
from routing.gateway.load import Flights
from routing.gateway.metrics import Metrics
from routing.gateway.peers import FRESH, Peers
from tests.routing.gateway.fake_cluster import SELF, FakeClock, FakeCluster, map_node, view_of

CONFIG = load({})


def placed(*spec: str) -> tuple[Placed, ...]:
    """`a:ready` is a replica on node a."""
    pairs = [item.split(":") for item in spec]
    return tuple(Placed(replica_id=f"rep_{name}", node_id=f"node_{name}", state=state) for name, state in pairs)


def model(name: str = "m", *spec: str, **other: Any) -> ModelEntry:
    return ModelEntry(name=name, created=1, placed=placed(*spec), **other)


class World:
    """Peers of a router in a cluster of these nodes."""

    def __init__(self, *nodes: MapNode, models: tuple[ModelEntry, ...] = (), **other: Any) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster(self.clock, *nodes)
        self.view = view_of(*models)
        self.rule = Rule()
        arguments = {"view": lambda: self.view, "rule": lambda: self.rule, "dice": lambda: 0.0, **other}
        self.peers = Peers(CONFIG, self.clock, self.cluster, **arguments)

    def choose(self, name: str = "m", *, session: str = "", without: Any = frozenset()) -> str:
        """The chosen node's name, or the refusal's code."""
        found = self.peers.choose(self.view.routes[name], session=session, without=without)
        return found.code if isinstance(found, Refused) else found.name

    def hear(self, node: str, *states: str) -> None:
        """`m:ready` is an offer of model m."""
        offers = [Offer(model=name, serving_state=state) for name, state in (item.split(":") for item in states)]
        self.peers.heard(f"node_{node}", NodeOffers(node_id=f"node_{node}", models=tuple(offers)))

    def listed(self) -> list[str]:
        return list(self.peers.listed())


A, B, C = map_node("a"), map_node("b"), map_node("c")


# --- candidates


def test_candidates_are_the_nodes_where_it_is_placed_and_those_that_offer_it() -> None:
    world = World(A, B, C, models=(model("m", "a:failed", "c:failed"),))
    assert world.choose() == "model_not_ready"
    world.hear("b", "m:ready")
    assert world.choose() == "b"


def test_this_node_is_no_candidate_of_its_own() -> None:
    world = World(map_node("x", node_id=SELF), models=(model(),))
    world.view = view_of(ModelEntry(name="m", created=1, placed=(Placed(replica_id="r", node_id=SELF, state="ready"),)))
    assert world.choose() == "model_not_ready"


def test_a_node_that_is_stale_answers_and_one_that_is_offline_or_without_the_module_does_not() -> None:
    models = (model("m", "a:ready", "b:ready"),)
    assert World(map_node("a", state="stale"), models=models).choose() == "a"
    assert World(map_node("a", state="offline"), B, models=models).choose() == "b"
    assert World(map_node("a", "edge"), B, models=models).choose() == "b"


def test_a_row_that_says_it_cannot_is_left_out_and_a_working_one_is_preferred() -> None:
    world = World(A, B, C, models=(model("m", "a:failed", "b:starting", "c:ready"),))
    assert world.choose() == "c"
    assert world.choose(without={"node_c"}) == "b"  # it may be up by now
    assert world.choose(without={"node_c", "node_b"}) == "model_not_ready"


def test_of_two_replicas_on_one_node_the_ready_one_counts() -> None:
    entry = ModelEntry(
        name="m",
        created=1,
        placed=(
            Placed(replica_id="1", node_id="node_a", state="ready"),
            Placed(replica_id="2", node_id="node_a", state="failed"),
        ),
    )
    assert World(A, models=(entry,)).choose() == "a"


def test_what_a_node_says_itself_counts_over_an_older_snapshot() -> None:
    world = World(A, B, models=(model("m", "a:ready", "b:ready"),))
    world.hear("a", "m:failed")
    assert world.choose() == "b"
    world.hear("a", "m:ready")
    assert world.choose() == "a"


def test_an_external_model_goes_to_a_node_that_runs_cloud() -> None:
    entry = ModelEntry(name="m", created=1, external=External(provider_id="p", model="theirs"))
    world = World(A, map_node("cl", "cloud"), models=(entry,))
    assert world.choose() == "cl"
    world.peers.silent("node_cl")
    assert world.choose() == "cl"  # nobody else: tried anyway


# --- refusals


@pytest.mark.parametrize(
    ("nodes", "spec", "state", "words"),
    [
        ((A,), ("a:starting",), None, ""),
        ((A,), ("a:failed",), "failed", "could not be started"),
        ((map_node("a", state="offline"),), ("a:ready",), "lost", "its node is offline"),
        ((map_node("a", "edge"),), ("a:ready",), "lost", "does not run inference"),
        ((), ("a:ready",), "absent", "no replica of it runs"),
        ((A,), (), "absent", "no replica of it runs"),
    ],
)
def test_f04_a_model_of_the_catalogue_without_a_node_is_503_never_404(
    nodes: tuple[MapNode, ...], spec: tuple[str, ...], state: str | None, words: str
) -> None:
    world = World(*nodes, models=(model("m", *spec),))
    found = world.peers.choose(world.view.routes["m"], session="")
    if state is None:
        assert isinstance(found, MapNode)
        return
    assert isinstance(found, Refused)
    assert (found.kind, found.code) == (Kind.UNAVAILABLE, "model_not_ready")
    assert found.retry_after
    assert found.extra["state"] == state
    assert words in found.message


def test_f52_a_model_at_zero_replicas_is_503_also_on_a_router_that_has_just_started() -> None:
    world = World(A, models=(model("m"),))
    assert world.choose() == "model_not_ready"
    assert world.listed() == ["m"]


def test_f69_a_node_in_maintenance_that_is_switched_off_is_told_with_why() -> None:
    off = map_node("a", state="offline", maintenance="drained", maintenance_why="new power supply")
    world = World(off, models=(model("m", "a:lost"),))
    found = world.peers.choose(world.view.routes["m"], session="")
    assert isinstance(found, Refused)
    assert "drained: new power supply" in found.message
    on = map_node("a", maintenance="cordoned", maintenance_why="soon")
    assert World(on, models=(model("m", "a:ready"),)).choose() == "a"  # what runs there goes on


# --- when a node stops answering


def test_an_unreachable_node_is_skipped_for_thirty_seconds() -> None:
    world = World(A, B, models=(model("m", "a:ready", "b:ready"),))
    world.peers.unreachable("node_a")
    assert {world.choose() for _ in range(5)} == {"b"}
    world.hear("a", "m:ready")  # that it answers a question meanwhile does not shorten it
    world.clock.at += 29.9
    assert world.choose() == "b"
    world.clock.at += 0.2
    assert world.choose() == "a"


def test_if_every_node_is_marked_they_are_tried_anyway_and_one_that_answers_is_clear() -> None:
    world = World(A, B, models=(model("m", "a:ready", "b:ready"),))
    world.peers.unreachable("node_a")
    world.peers.unreachable("node_b")
    assert world.choose() == "a"
    assert world.choose(without={"node_a"}) == "b"
    assert world.peers.down_for("node_b") == 0.0
    world.clock.at += 2.0
    world.peers.reached("node_b", seconds=2.1)  # sent before it was marked: proves nothing
    assert world.peers.down_for("node_b") == 2.0
    world.peers.reached("node_b", seconds=1.0)
    assert world.peers.down_for("node_b") is None
    assert world.choose() == "b"


def test_f07_one_failed_question_clears_by_itself() -> None:
    world = World(A, B, models=(model("m", "a:ready", "b:ready"),))
    world.peers.silent("node_a")
    world.clock.at += 3.0
    assert world.choose() == "b"
    assert world.peers.down_for("node_a") == 3.0
    world.hear("a", "m:ready")
    assert world.choose() == "a"
    assert world.peers.down_for("node_a") is None


# --- strategies


def test_round_robin_keeps_its_turn_for_each_model_by_itself() -> None:
    world = World(A, B, C, models=tuple(model(name, "a:ready", "b:ready", "c:ready") for name in ("m", "n")))
    world.rule = Rule(strategy=Strategy.ROUND_ROBIN)
    assert [world.choose(name) for name in "mnmnmm"] == ["a", "a", "b", "b", "c", "a"]


def test_answer_times_are_averaged_and_forgotten() -> None:
    world = World(A, B, models=(model("m", "a:ready", "b:ready"),))
    for name, seconds in (("a", 2.0), ("b", 1.0), ("b", 2.0)):
        world.peers.enter(f"node_{name}", "m")
        world.peers.leave(f"node_{name}", "m", seconds=seconds)
    assert [item["answer_s"] for item in world.peers.shown(model("m", "a:ready", "b:ready"))] == [2.0, 1.2]
    assert world.choose() == "b"
    world.clock.at += FRESH + 1
    assert [item["answer_s"] for item in world.peers.shown(model("m", "a:ready", "b:ready"))] == [None, None]
    world.peers.enter("node_a", "m")
    world.peers.leave("node_a", "m", seconds=9.0)
    assert [item["answer_s"] for item in world.peers.shown(model("m", "a:ready", "b:ready"))] == [9.0, None]
    assert world.choose() == "b"  # measured anew


def test_a_session_goes_where_it_was_while_that_is_not_overloaded() -> None:
    world = World(A, B, C, models=(model("m", "a:ready", "b:ready", "c:ready"),))
    body = b'{"messages":[{"role":"user","content":"hi"}]}'
    assert world.peers.session("k", b"mine", body) == ""  # nobody asked for it: not even the body is read
    world.rule = Rule(strategy=Strategy.ROUND_ROBIN, affinity=True)
    session = world.peers.session("k", None, body)
    home = world.choose(session=session)
    assert {world.choose(session=session) for _ in range(6)} == {home}
    world.peers.enter(f"node_{home}", "m")
    world.peers.enter(f"node_{home}", "m")
    assert home not in {world.choose(session=session) for _ in range(2)}
    for _ in range(2):
        world.peers.leave(f"node_{home}", "m", seconds=None)
    assert world.choose(session=session) == home


# --- counts


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("mn"), st.integers(0, 5), st.booleans()), max_size=80),
    st.randoms(),
)
def test_counts_return_to_exactly_zero_in_whatever_order_requests_end(spec: list[Any], shuffle: Any) -> None:
    world = World(A, B, C)
    peers, expected = world.peers, Counter[tuple[str, str]]()
    under_way: list[Any] = []
    for name, of, ends, answered in spec:
        peers.enter(f"node_{name}", of)
        expected[f"node_{name}", of] += 1
        under_way.append((f"node_{name}", of, answered))
        shuffle.shuffle(under_way)
        for _ in range(min(ends, len(under_way))):
            node_id, of_model, ok = under_way.pop()
            peers.leave(node_id, of_model, seconds=0.1 if ok else None)
            expected[node_id, of_model] -= 1
        assert peers.in_flight == +expected
    for node_id, of_model, _ in under_way:
        peers.leave(node_id, of_model, seconds=None)
    assert peers.in_flight == {}


def test_a_node_that_leaves_the_map_is_forgotten_but_for_what_is_under_way_there() -> None:
    world = World(A, B, models=(model("m", "a:ready", "b:ready"),))
    world.peers.enter("node_a", "m")
    world.peers.unreachable("node_a")
    world.hear("a", "m:ready")
    world.peers.keep({"node_b"})
    assert (world.peers.standings, world.peers.unreachable_counts) == ({}, {})
    assert world.peers.in_flight == {("node_a", "m"): 1}
    world.peers.leave("node_a", "m", seconds=1.0)
    assert world.peers.in_flight == {}


# --- the list of models


def test_a_model_drops_out_when_all_its_nodes_are_down_and_comes_back_when_one_answers() -> None:
    world = World(A, B, models=(model("both", "a:ready", "b:ready"), model("one", "a:ready"), model("none")))
    assert world.listed() == ["both", "none", "one"]  # nobody has been asked yet
    world.peers.silent("node_a")
    assert world.listed() == ["both", "none"]
    world.peers.silent("node_b")
    assert world.listed() == ["none"]
    world.hear("a")
    assert world.listed() == ["both", "none", "one"]


def test_a_node_that_is_offline_or_gone_from_the_map_serves_nothing() -> None:
    world = World(A, models=(model("m", "a:ready"),))
    world.cluster.set(map_node("a", state="offline"))
    assert world.listed() == []
    world.cluster.set(A)
    assert world.listed() == ["m"]
    world.cluster.set()
    assert world.listed() == []


def test_garbage_of_one_node_spoils_nothing() -> None:
    world = World(A, B, models=(model("m", "a:ready"), model("n", "b:ready")))
    world.hear("b", "n:ready")
    world.peers.heard("node_a", None)
    assert world.listed() == ["m", "n"]  # it is up, and nothing more is known of it
    assert world.choose("m") == "a"


def test_a_node_that_answers_with_garbage_is_chosen_last() -> None:
    world = World(A, B, models=(model("m", "a:ready", "b:ready"),))
    world.peers.heard("node_a", None)
    assert {world.choose() for _ in range(3)} == {"b"}
    assert world.choose(without={"node_b"}) == "a"
    world.hear("a", "m:ready")
    assert world.choose(without={"node_b"}) == "a"
    world.peers.enter("node_b", "m")
    assert world.choose() == "a"


def test_a_node_that_does_not_speak_of_a_model_since_the_snapshot_is_chosen_last() -> None:
    world = World(A, B, models=(model("m", "a:ready", "b:ready"),))
    world.hear("a", "other:ready")
    world.hear("b", "m:ready")
    world.peers.enter("node_b", "m")
    assert world.choose() == "b"
    world.view = replace(world.view, made_at=world.clock.at + 1.0)  # the controllers have heard of it since
    assert world.choose() == "a"


def test_answer_times_of_models_that_nobody_asks_for_are_forgotten() -> None:
    world = World(A, models=(model("m", "a:ready"),))
    world.peers.enter("node_a", "m")
    world.peers.leave("node_a", "m", seconds=1.0)
    world.peers.keep({"node_a"})
    assert world.peers._latency
    world.clock.at += FRESH + 1.0
    world.peers.keep({"node_a"})
    assert not world.peers._latency


def test_disabled_models_are_not_listed_and_what_engines_say_is_kept() -> None:
    offers = {"m": Offer(model="m", context=512)}
    world = World(
        A,
        models=(model("m", "a:ready"), model("off", "a:ready", enabled=False)),
        own=lambda route: offers.get(route.model.name),
    )
    world.peers.heard(
        "node_a", NodeOffers(node_id="a", models=(Offer(model="m", context=2048, said={"meta": {"n": 1}}),))
    )
    assert world.peers.listed() == {"m": {"context_length": 512, "meta": {"n": 1}}}
    assert [offer.model for offer in world.peers.offers().models] == ["m"]
    assert world.peers.listed_one(Route(model=model("off", enabled=False))) is None


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_are_remembered_are_those_that_would_be_found_anew(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [map_node(name) for name in "abcd"]
    models = [
        model(name, *(f"{n}:{dice.choice(('ready', 'starting'))}" for n in dice.sample("abcd", 2))) for name in "mnop"
    ]
    world = World(*nodes, models=tuple(models))
    for _ in range(200):
        world.clock.at += 1
        name = dice.choice("abcd")
        match dice.randrange(6):
            case 0:
                world.peers.silent(f"node_{name}")
            case 1:
                world.peers.unknown(f"node_{name}")
            case 2:
                world.cluster.set(*dice.sample(nodes, dice.randint(1, 4)))
                assert world.cluster.map is not None
                world.peers.keep({node.node_id for node in world.cluster.map.nodes})
            case _:
                world.hear(name, *(f"{item}:{dice.choice(('ready', 'draining'))}" for item in dice.sample("mnop", 2)))
        kept = {entry.name: world.peers.rows(entry) for entry in models}
        world.peers._rows.clear()
        assert kept == {entry.name: world.peers.rows(entry) for entry in models}
        offering = {name for node in world.peers.standings.values() for name in node.offers or ()}
        assert set(world.peers._offering) == offering


# --- for administrators


def test_metrics_have_a_series_for_each_other_node_and_none_for_one_that_went() -> None:
    world = World(A, B, map_node("me", node_id=SELF))
    metrics = Metrics(Flights(world.clock))
    metrics.follow(world.peers, world.cluster)
    world.peers.enter("node_a", "m")
    world.peers.enter("node_a", "n")
    world.peers.unreachable("node_b")

    def shown() -> list[str]:
        lines = generate_latest(metrics.registry).decode().splitlines()
        return [line for line in lines if line.startswith("llmgw_node_")]

    assert shown() == [
        'llmgw_node_requests_in_flight{node="a"} 2.0', 'llmgw_node_requests_in_flight{node="b"} 0.0',
        'llmgw_node_unreachable_total{node="a"} 0.0', 'llmgw_node_unreachable_total{node="b"} 1.0',
    ]  # fmt: skip
    world.cluster.set(A)
    assert shown() == ['llmgw_node_requests_in_flight{node="a"} 2.0', 'llmgw_node_unreachable_total{node="a"} 0.0']


def test_what_is_shown_of_the_nodes_of_a_model() -> None:
    entry = model("m", "a:ready", "b:starting")
    world = World(A, B, models=(entry,))
    world.peers.enter("node_a", "m")
    world.peers.unreachable("node_b")
    world.clock.at += 12.34
    assert world.peers.shown(entry) == [
        {"model": "m", "node": "a", "node_id": "node_a", "serving_state": "ready", "down_for_s": None, "in_flight": 1, "answer_s": None},
        {"model": "m", "node": "b", "node_id": "node_b", "serving_state": "starting", "down_for_s": 12.3, "in_flight": 0, "answer_s": None},
    ]  # fmt: skip
