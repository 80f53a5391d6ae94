"""What every endpoint shares, apart from any endpoint."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ValidationError

from llmgw_site.api import as_refused, depth
from llmgw_site.lib.errors import HTTP_STATUS, Kind, Refused, envelope


@pytest.mark.parametrize(
    ("raw", "levels"),
    [
        (b"", 0),
        (b"1", 0),
        (b"{}", 1),
        (b'{"a": [[1]]}', 3),
        (b'{"a]}[[[[": "\\"[[["}', 1),
        (b'"\\\\" [', 1),
        (b"[[[", 3),
        (b"]]][", 0),
    ],
)
def test_depth_counts_brackets_outside_of_strings(raw: bytes, levels: int) -> None:
    assert depth(raw) == levels


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def nesting(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(nesting, value), default=0) if isinstance(value, list) else 0


@given(JSON)
def test_depth_is_the_depth_of_the_value(value: Any) -> None:
    assert depth(orjson.dumps(value)) == nesting(value)


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_refusal_has_a_status_and_a_whole_envelope(kind: Kind) -> None:
    error = envelope(Refused(kind, "some_code", "No.", param="x"))["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert error["type"] == "server_error" or HTTP_STATUS[kind] < 500 or kind == Kind.UNAVAILABLE


def test_the_first_problem_of_a_tree_is_named_by_its_path() -> None:
    found = as_refused(ValidationError({"a": {"b": ["wrong"]}}), None)
    assert (found.param, found.code, found.message) == ("a.b", "invalid_value", "a.b: wrong")
    assert as_refused(ValidationError({"non_field_errors": ["wrong"]}), None).param is None
    assert as_refused(ValidationError([]), None).code == "invalid_value"
