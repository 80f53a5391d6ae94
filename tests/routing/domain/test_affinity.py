"""Session affinity: minimal movement, bounded loads, and what names a conversation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.domain.affinity import home, overloaded, place, session_of


@dataclass(frozen=True)
class Spot:
    name: str
    in_flight: int = 0
    slots: int = 1


names = st.sets(st.text(min_size=1, max_size=6), min_size=1, max_size=10)


@given(names, st.text(max_size=8), st.text(min_size=1, max_size=6))
def test_only_the_sessions_of_a_place_that_goes_are_moved(found: set[str], session: str, gone: str) -> None:
    before = home(session, [Spot(name) for name in found | {gone}])
    if before.name != gone and found - {gone}:
        assert home(session, [Spot(name) for name in found - {gone}]) == before


def test_a_place_that_comes_takes_its_share_and_no_more() -> None:
    old = [Spot(f"n{n}") for n in range(4)]
    sessions = [f"s{n}" for n in range(2000)]
    before = {session: home(session, old).name for session in sessions}
    after = {session: home(session, [*old, Spot("new")]).name for session in sessions}
    moved = [session for session in sessions if before[session] != after[session]]
    assert all(after[session] == "new" for session in moved)
    assert 300 < len(moved) < 500  # a fifth is 400
    assert all(400 < count < 600 for count in Counter(before.values()).values())


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=8),
    st.lists(st.text(max_size=3), min_size=1, max_size=60),
)
def test_no_place_gets_more_than_its_bound_whatever_the_sessions_are(
    spec: list[tuple[int, int]], sessions: list[str]
) -> None:
    """By the paper: at most ceil(c * all / places) each, here by slots, and never less than a place's own slots."""
    busy = {f"n{n}": count for n, (count, _) in enumerate(spec)}
    slots = {f"n{n}": many for n, (_, many) in enumerate(spec)}
    for session in sessions:
        spots = [Spot(name, busy[name], slots[name]) for name in busy]
        chosen = place(session, spots)
        busy[chosen.name] += 1
        total, share = sum(busy.values()), slots[chosen.name] / sum(slots.values())
        assert busy[chosen.name] <= max(slots[chosen.name], 1.25 * total * share + 1)


def test_a_place_with_a_free_slot_is_never_overloaded() -> None:
    spots = [Spot("a", 3, 4), Spot("b", 0, 4)]
    assert not overloaded(spots[0], spots)
    assert overloaded(Spot("a", 4, 4), [Spot("a", 4, 4), Spot("b", 0, 4)])


def test_an_overloaded_home_spills_always_to_the_same_next_place_and_comes_back() -> None:
    free = [Spot(f"n{n}") for n in range(5)]
    for number in range(50):
        session = f"s{number}"
        first = place(session, free)
        busy = [Spot(spot.name, 4 if spot.name == first.name else 0) for spot in free]
        second = place(session, busy)
        assert second.name != first.name
        assert second.name == home(session, [spot for spot in free if spot.name != first.name]).name
        assert place(session, free) == first


# --- what names a conversation


def body(**fields: Any) -> bytes:
    return orjson.dumps({"model": "m", **fields})


SYSTEM, FIRST = {"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}


def test_a_chat_keeps_its_name_over_its_turns() -> None:
    turns = [SYSTEM, FIRST, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "and now?"}]
    told = {session_of("k", None, body(messages=turns[:n])) for n in (2, 3, 4)}
    assert len(told) == 1
    assert told != {session_of("k", None, body(messages=[FIRST]))}
    assert told != {session_of("other", None, body(messages=turns))}  # never over keys


def test_the_clients_own_name_comes_first() -> None:
    one = session_of("k", b"mine", body(messages=[FIRST]))
    assert one == session_of("k", b"mine", body(messages=[SYSTEM]))
    assert one != session_of("k2", b"mine", body(messages=[FIRST]))
    assert one not in ("", session_of("k", None, body(messages=[FIRST])))


def test_a_text_completion_is_named_by_the_beginning_of_its_prompt() -> None:
    start = "x" * 256
    assert session_of("k", None, body(prompt=start + "a")) == session_of("k", None, body(prompt=start + "b"))
    assert session_of("k", None, body(prompt="a")) != session_of("k", None, body(prompt="b"))


DEEP = b'{"messages":[{"role":"user","content":' + b"[" * 300 + b"]" * 300 + b"}]}"


@pytest.mark.parametrize(
    "given_body", [body(input="text"), body(prompt=["a", "b"]), body(messages=[]), b"no json", DEEP]
)
def test_what_is_no_conversation_has_no_name(given_body: bytes) -> None:
    assert session_of("k", None, given_body) == ""
