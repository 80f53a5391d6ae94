"""cluster.domain.signing: a call is its node's, whole, fresh and met once; an answer fits its call only."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain import signing
from cluster.domain.signing import HEADERS, UNSIGNED_BODY, WINDOW, Seen, pairwise_key, public_hex

NODE, CONTROLLERS, OTHER = ("11" * 32, "22" * 32, "33" * 32)
KEY = pairwise_key(NODE, public_hex(CONTROLLERS))
T = 1_000_000.0
CALL: dict[str, Any] = {"method": "POST", "path": "/api/v1/agent/heartbeat?x=1", "body": b"{}"}


def signed(key: bytes = KEY, **fields: Any) -> dict[str, str]:
    return signing.sign(key, **{**CALL, "node": "node_1", "now": T, "boot": "b", "counter": 7, **fields})


def verdict(headers: dict[str, str], *, now: float = T, **fields: Any) -> str | None:
    call = signing.read(headers)
    assert call is not None
    return signing.verify(KEY, call, now=now, **{**CALL, **fields})


def test_both_ends_derive_the_same_key_and_nobody_else_does() -> None:
    assert pairwise_key(CONTROLLERS, public_hex(NODE)) == KEY
    assert pairwise_key(OTHER, public_hex(CONTROLLERS)) != KEY


def test_public_keys_are_those_of_rfc_7748() -> None:
    """Section 5.2: one iteration from the scalar 9 on the base point 9."""
    once = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    assert public_hex("09" + "00" * 31) == once


@pytest.mark.parametrize(
    ("fields", "now", "code"),
    [
        ({}, T, None),
        ({}, T + WINDOW, None),
        ({}, T - WINDOW, None),
        ({}, T + WINDOW + 1, "clock_skew"),
        ({}, T - WINDOW - 1, "clock_skew"),
        ({"method": "GET"}, T, "bad_signature"),
        ({"path": "/api/v1/agent/heartbeat?x=2"}, T, "bad_signature"),
        ({"body": b"[]"}, T, "body_changed"),
        ({"body": None}, T, "body_changed"),
    ],
)
def test_a_call_holds_for_its_own_method_path_body_and_time(fields: Any, now: float, code: str | None) -> None:
    assert verdict(signed(), now=now, **fields) == code


@pytest.mark.parametrize("header", HEADERS)
def test_no_header_can_be_changed(header: str) -> None:
    changed = {**signed(), header: {"x-llmgw-time": "1000001.000", "x-llmgw-counter": "8"}.get(header, "other")}
    assert verdict(changed) == "bad_signature"


@pytest.mark.parametrize("header", HEADERS)
def test_no_header_may_be_missing(header: str) -> None:
    headers = signed()
    del headers[header]
    assert signing.read(headers) is None


@pytest.mark.parametrize(
    ("header", "text"),
    [("x-llmgw-time", "nan"), ("x-llmgw-time", "1e300"), ("x-llmgw-counter", "x"), ("x-llmgw-node", "n" * 129)],
)
def test_headers_without_sense_are_no_claim(header: str, text: str) -> None:
    assert signing.read({**signed(), header: text}) is None


def test_a_streamed_body_is_taken_unsigned_only_where_that_is_allowed() -> None:
    headers = signed(body=None)
    assert headers["x-llmgw-body"] == UNSIGNED_BODY
    assert verdict(headers, body=None) == "body_unsigned"
    assert verdict(headers, body=None, allow_unsigned=True) is None


def test_another_nodes_key_does_not_open() -> None:
    assert verdict(signed(pairwise_key(OTHER, public_hex(CONTROLLERS)))) == "bad_signature"


def test_an_answer_fits_its_call_status_and_body_only() -> None:
    answer = signing.sign_answer(KEY, nonce="n", status=200, body=b"{}")
    good = {"nonce": "n", "status": 200, "body": b"{}"}
    assert signing.verify_answer(KEY, answer, **good)  # type: ignore[arg-type]
    for wrong in ({"nonce": "m"}, {"status": 201}, {"body": b"[]"}):
        assert not signing.verify_answer(KEY, answer, **{**good, **wrong})  # type: ignore[arg-type]
    assert not signing.verify_answer(KEY, "é", **good)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 400)), max_size=60))
def test_no_call_within_the_window_is_met_for_the_first_time_twice(calls: list[tuple[int, float]]) -> None:
    seen, met, now = Seen(), set(), T
    for counter, step in calls:
        now += step / 20
        call = signing.read(signed(counter=counter, now=T))
        assert call is not None
        if abs(call.time - now) <= WINDOW:
            assert seen.first(call, now=now) == (counter not in met)
            met.add(counter)


def test_what_is_remembered_is_forgotten_in_time() -> None:
    seen = Seen()
    for second in range(0, 2000, 10):
        call = signing.read(signed(counter=7, boot=f"b{second}", now=T + second))
        assert call is not None
        assert seen.first(call, now=T + second)
    assert len(seen._until) == len(seen._met) == len(seen._highest) <= 4 * WINDOW / 10


def test_calls_that_overtake_each_other_are_each_met_once_and_ones_far_behind_are_taken_for_copies() -> None:
    def first(counter: int) -> bool:
        call = signing.read(signed(counter=counter))
        assert call is not None
        return seen.first(call, now=T)

    seen = Seen()
    for counter in (5, 100_000, 99_999, 100_000 - Seen.WIDTH + 1, 100_002, 100_001):
        assert first(counter)
        assert not first(counter)
    assert not first(100_002 - Seen.WIDTH)
    assert not first(5)
    assert first(10**12)
    assert not first(100_001)
    assert sum(met.bit_length() for met in seen._met.values()) <= Seen.WIDTH  # however many calls came
