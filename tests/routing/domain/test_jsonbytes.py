"""Depth, duplicates and splices over raw JSON."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.domain import jsonbytes

NAMES = st.sampled_from(["model", "a", "b", 'q"uote', "sl\\ash", "ü", "", "x:y,{[", "stream_options"])
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=12) | NAMES
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)
INDENT = st.sampled_from([0, orjson.OPT_INDENT_2])


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max((depth(item) for item in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((depth(item) for item in value), default=0)
    return 0


@given(VALUES, INDENT)
def test_too_deep_agrees_with_the_parsed_depth(value: Any, option: int) -> None:
    bones = jsonbytes.skeleton(orjson.dumps(value, option=option))
    assert bones is not None
    for limit in range(1, 8):
        assert jsonbytes.too_deep(bones, limit) == (depth(value) > limit)


@given(OBJECTS, INDENT)
def test_an_object_without_duplicates_has_none(value: Any, option: int) -> None:
    bones = jsonbytes.skeleton(orjson.dumps(value, option=option))
    assert bones is not None
    assert not jsonbytes.has_duplicates(bones, value)


@pytest.mark.parametrize(
    "body", [b'{"a":1,"a":2}', b'{"a":1,"\\u0061":1}', b'{"x":[{"k":1 , "k" :2}]}', b'{"":1,"":1}']
)
def test_a_field_named_twice_is_seen_at_any_depth(body: bytes) -> None:
    bones = jsonbytes.skeleton(body)
    assert bones is not None
    assert jsonbytes.has_duplicates(bones, orjson.loads(body))


@given(OBJECTS, NAMES, VALUES, INDENT)
def test_replace_changes_one_member_and_no_other_byte(value: dict[str, Any], name: str, new: Any, option: int) -> None:
    body = orjson.dumps(value, option=option)
    out = jsonbytes.replace(body, name, orjson.dumps(new))
    assert orjson.loads(out) == {**value, name: new}
    place = jsonbytes.find(body, name)
    if name in value:
        assert place is not None
        assert orjson.loads(body[place[0] : place[1]]) == value[name]
        assert out.startswith(body[: place[0]])
        assert out.endswith(body[place[1] :])
    else:
        assert place is None
        assert out.endswith(body[body.index(b"{") + 1 :])


@given(VALUES.filter(lambda value: isinstance(value, (dict, list))), st.binary(max_size=4))
def test_value_end_is_where_the_document_ends(value: Any, after: bytes) -> None:
    body = orjson.dumps(value)
    assert jsonbytes.value_end(body + after, 0) == len(body)
    assert jsonbytes.value_end(body[:-1], 0) == -1


@pytest.mark.parametrize(
    "body",
    [b"[" * 4_000_000, b'{"a":"' + b'\\"' * 2_000_000, b'"' * 4_000_000, b"[]" * 2_000_000, b"[" + b'"",' * 10**6],
)
def test_hostile_bodies_take_time_in_proportion_to_their_length(body: bytes) -> None:
    began = time.process_time()
    bones = jsonbytes.skeleton(body)
    assert bones is None or jsonbytes.too_deep(bones, 64) in (True, False)
    assert time.process_time() - began < 2.0


SPACED = st.sampled_from(["", "", "", " ", "\n", "\t"])
KEYS = st.sampled_from(["a", "a", "b", 'a":', "x\\", ":"])
WRITTEN = st.recursive(
    st.sampled_from(["1", "null"]) | NAMES.map(lambda text: orjson.dumps(text).decode()),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
        | st.lists(st.tuples(KEYS, SPACED, SPACED, inner), max_size=4).map(
            lambda members: (
                "{"
                + ",".join(f"{orjson.dumps(k).decode()}{before}:{after}{v}" for k, before, after, v in members)
                + "}"
            )
        )
    ),
    max_leaves=8,
)


@given(WRITTEN)
def test_counting_never_proves_that_names_are_there_once_where_one_is_there_twice(text: str) -> None:
    body = text.encode()
    value, bones = orjson.loads(body), jsonbytes.skeleton(body)
    assert bones is not None
    if jsonbytes.has_duplicates(bones, value):
        assert not jsonbytes.names_once(body, value)


@given(WRITTEN, st.integers(1, 6))
def test_what_is_flat_is_not_too_deep(text: str, limit: int) -> None:
    bones = jsonbytes.skeleton(text.encode())
    assert bones is not None
    assert not (jsonbytes.is_flat(text.encode(), limit) and jsonbytes.too_deep(bones, limit))


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","messages":[{"role":"user","content":"what: this, http://a"}],"tools":[{"x":{"y":1}}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": "Note: \\"quoted\\" too"}]}',
    ],
)
def test_counting_settles_it_for_what_clients_send(body: bytes) -> None:
    assert jsonbytes.names_once(body, orjson.loads(body))
