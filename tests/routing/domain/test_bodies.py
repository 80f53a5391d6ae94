"""What each endpoint wants of a body: whatever stands in it, a refusal names the field."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_site.lib.errors import Refused
from routing.domain.endpoints import ENDPOINTS
from routing.domain.openai import Ask, parse

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
NAMES = (
    "messages",
    "prompt",
    "input",
    "query",
    "documents",
    "content",
    "tokens",
    "tools",
    "stream",
    "system",
    "max_tokens",
)


@pytest.mark.parametrize("endpoint", [item.name for item in ENDPOINTS.values() if not item.form])
@given(body=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6))
def test_any_object_is_read_or_refused_by_a_field(endpoint: str, body: dict[str, Any]) -> None:
    assert _outcome(endpoint, body) in ("read", *NAMES)


def _outcome(endpoint: str, body: dict[str, Any]) -> str:
    """`read`, or the field that a refusal names."""
    try:
        assert isinstance(parse(endpoint, orjson.dumps({"model": "m", **body}), max_depth=64), Ask)
    except Refused as refused:
        known = refused.code in ("missing_field", "invalid_type", "invalid_value")
        return (refused.param or "").partition("[")[0].partition(".")[0] if known else refused.code
    return "read"
