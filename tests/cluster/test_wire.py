"""cluster.wire: messages survive the trip, unknown fields are ignored, wrong ones named."""

from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import wire
from cluster.wire import Heartbeat, Wanted, WireError, from_dict, to_dict

MESSAGES = [Heartbeat, Wanted, wire.UsageBatch, wire.EnginesFile, wire.Load, wire.Demand, wire.DemandAnswer]
texts = st.text(st.characters(codec="utf-8"), max_size=20)


def messages(kind: type) -> st.SearchStrategy[Any]:
    return st.from_type(kind)


st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(int, st.integers(-(2**53), 2**53))
st.register_type_strategy(str, texts)


@pytest.mark.parametrize("kind", [Heartbeat, Wanted, wire.EnginesFile, wire.Load, wire.Demand, wire.DemandAnswer])
def test_a_message_survives_the_trip(kind: type) -> None:
    @given(messages(kind))
    def trip(message: Any) -> None:
        assert from_dict(kind, orjson.loads(orjson.dumps(to_dict(message)))) == message

    trip()


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_field_of_a_newer_version_is_ignored(kind: type) -> None:
    least = {f.name: "x" if f.type == "str" else 0.0 for f in dataclasses.fields(kind) if _needed(f)}
    assert from_dict(kind, {**least, "v": 99, "mood": {"x": 1}}) == kind(**least)


def _needed(field: Any) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "an object was expected, not list"),
        ({}, "node_id"),
        ({"node_id": 1, "boot_id": "b", "sent_at": 1}, "Heartbeat.node_id: str was expected, not int"),
        ({"node_id": "n", "boot_id": "b", "sent_at": True}, "Heartbeat.sent_at: float was expected, not bool"),
        ({"node_id": "n", "boot_id": "b", "sent_at": 1, "replicas": 7}, "Heartbeat.replicas: a list was expected"),
        ({"node_id": "n", "boot_id": "b", "sent_at": 1, "replicas": [7]}, "replicas[0]: an object was expected"),
        (
            {"node_id": "n", "boot_id": "b", "sent_at": 1, "hardware": {"cores": "4"}},
            "Heartbeat.hardware.cores: int was expected, not str",
        ),
        (
            {"node_id": "n", "boot_id": "b", "sent_at": 1, "hardware": {"cores": True}},
            "Heartbeat.hardware.cores: int was expected, not bool",
        ),
    ],
)
def test_a_message_that_cannot_be_read_names_the_field(data: Any, words: str) -> None:
    with pytest.raises(WireError) as error:
        from_dict(Heartbeat, data)
    assert words in str(error.value)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda x: st.lists(x) | st.dictionaries(texts, x))
)
def test_whatever_comes_in_it_is_read_or_refused(data: Any) -> None:
    for kind in MESSAGES:
        refusal = ""
        try:
            read = from_dict(kind, data)
        except WireError as error:
            refusal = str(error)
        assert refusal.startswith(kind.__name__) or isinstance(read, kind)  # a refusal says where
