"""What nodes serve: said by one, merged from many, and which models are listed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.wire import WireError, from_dict, to_dict
from routing.domain.choose import Route, Seat, Waiting
from routing.domain.nodes import Works
from routing.domain.offers import (
    MOST_FIGURES,
    MOST_TEXT,
    NodeOffers,
    Offer,
    bounded,
    listed,
    merged,
    newer,
    own_offer,
    works,
)
from routing.domain.openai import model_list, model_object
from routing.domain.snapshot import ModelEntry, Placed


def entry(**other: Any) -> ModelEntry:
    return ModelEntry(name="m", created=7, **other)


def seat(name: str, **other: Any) -> Seat:
    return Seat(replica_id=name, host="h", port=1, key="", **other)


# --- one node


def test_ready_engines_of_a_model_are_one_offer() -> None:
    route = Route(model=entry(), seats=(seat("a", slots=2, context=4096), seat("b", slots=3, context=2048)))
    offer = own_offer(route, in_flight={"a": 1, "b": 2, "other": 9}, said={"b": {"meta": {"n_params": 5}}})
    assert offer == Offer(model="m", slots=5, in_flight=3, context=2048, said={"meta": {"n_params": 5}})


def test_what_is_not_ready_is_offered_with_its_reason() -> None:
    waiting = (Waiting(state="failed", message="no"), Waiting(state="starting", code="loading", message="3 of 9 GiB"))
    offer = own_offer(Route(model=entry(), waiting=waiting), in_flight={}, said={})
    assert offer == Offer(model="m", serving_state="starting", code="loading", message="3 of 9 GiB")
    assert own_offer(Route(model=entry()), in_flight={}, said={}) is None


def test_an_answer_is_read_as_it_was_written_and_garbage_is_refused() -> None:
    told = NodeOffers(node_id="n", models=(Offer(model="m", said={"meta": {"a": [1, None]}}),))
    assert from_dict(NodeOffers, orjson.loads(orjson.dumps(to_dict(told)))) == told
    for garbage in ([], {"node_id": 3}, {"node_id": "n", "models": [{"model": 1}]}, {"node_id": "n", "models": "m"}):
        with pytest.raises(WireError):
            from_dict(NodeOffers, garbage)


def test_of_what_another_node_tells_nothing_stays_that_could_do_harm() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"meta": deep}
    told = Offer(
        model="m", message="x" * 10_000, slots=-3, in_flight=-1, context=-5,
        said={"path": "/home/x", "max_model_len": 8, "on": True, "meta": {"n_params": 5, "file": "/x", "deep": deep}, "deep": deep},
    )  # fmt: skip
    (kept,) = bounded(NodeOffers(node_id="n", models=(told,))).models
    assert kept.said == {"max_model_len": 8, "on": True, "meta": {"n_params": 5}, "deep": {}}
    assert (len(kept.message), kept.slots, kept.in_flight, kept.context) == (MOST_TEXT, 1, 0, None)
    assert orjson.loads(model_list([(entry(), merged([kept]))]))
    crowd = Offer(model="m", said={str(number): number for number in range(10_000)}, context=4096, slots=2)
    (kept,) = bounded(NodeOffers(node_id="n", models=(crowd,))).models
    assert (len(kept.said), kept.context, kept.slots) == (MOST_FIGURES, 4096, 2)


# --- how it counts


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("ready", Works.WORKS),
        ("starting", Works.UNKNOWN),
        ("fetching", Works.UNKNOWN),
        ("pending", Works.UNKNOWN),
        ("backoff", Works.UNKNOWN),
        ("hibernating", Works.UNKNOWN),  # of a newer version
        ("draining", Works.CANNOT),
        ("failed", Works.CANNOT),
        ("stopped", Works.CANNOT),
        ("lost", Works.CANNOT),
    ],
)
def test_serving_states(state: str, wanted: Works) -> None:
    assert works(state) is wanted


def test_the_newer_of_node_and_snapshot_counts() -> None:
    offer, placed = Offer(model="m", serving_state="starting"), Placed(replica_id="r", node_id="n", state="ready")
    assert newer(offer, placed, heard_at=2.0, made_at=1.0) is offer
    assert newer(offer, placed, heard_at=1.0, made_at=2.0) == Offer(model="", serving_state="ready")
    assert newer(None, placed, heard_at=2.0, made_at=1.0) == Offer(model="", serving_state="ready")
    assert newer(offer, None, heard_at=1.0, made_at=2.0) is offer
    assert newer(None, None, heard_at=1.0, made_at=2.0) is None


# --- the list


@pytest.mark.parametrize(
    ("model", "placed_on", "offered", "up", "wanted"),
    [
        (entry(enabled=False), (), True, ("a",), False),
        (entry(), (), False, (), True),  # nobody shall serve it: it waits for room
        (entry(), ("a",), False, ("a",), True),  # about to
        (entry(), ("a", "b"), False, ("c",), False),  # every node it is placed on is down
        (entry(), ("a", "b"), False, ("b",), True),
        (entry(), ("a",), True, ("c",), True),  # offered elsewhere
    ],
)
def test_which_models_are_listed(model: ModelEntry, placed_on: Any, offered: bool, up: Any, wanted: bool) -> None:
    assert listed(model, placed_on=placed_on, offered=offered, up=up) is wanted


def test_a_model_that_two_nodes_offer_appears_once_with_what_both_say() -> None:
    offers = [
        Offer(model="m", context=4096, said={"meta": {"n_params": 5}, "id": "somebody else's"}),
        Offer(model="m", context=2048, said={"meta": {"n_params": 6}, "max_model_len": 2048}),
        Offer(model="m", serving_state="starting"),
    ]
    said = merged(offers)
    assert said["context_length"] == 2048
    assert said["meta"] == {"n_params": 5}
    shown = orjson.loads(model_list([(entry(), said)]))["data"]
    assert [(item["id"], item["object"], item["created"], item["owned_by"]) for item in shown] == [
        ("m", "model", 7, "llmgw")  # an engine changes nothing of what the catalogue says
    ]
    assert shown[0]["max_model_len"] == 2048


def test_a_context_that_only_the_catalogue_knows_is_told() -> None:
    assert model_object(entry(context=1024), {})["context_length"] == 1024
    assert model_object(entry(context=1024), {"context_length": 512})["context_length"] == 512
    assert "context_length" not in model_object(entry(), {})


@given(st.lists(st.builds(Offer, model=st.just("m"), context=st.none() | st.integers(0, 9)), max_size=6), st.randoms())
def test_the_order_of_offers_does_not_change_the_context(offers: list[Offer], shuffle: Any) -> None:
    first = merged(offers)
    shuffle.shuffle(offers)
    assert merged(offers) == first
