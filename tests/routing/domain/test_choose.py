"""Which engine answers, or why none does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_site.lib.errors import Kind, Refused
from routing.domain.choose import Route, Seat, Waiting, choose, vet
from routing.domain.snapshot import ModelEntry
from routing.domain.tenancy import Holder

KEY = Holder(key_id="k", prefix="sk-", project_id="p")
NARROW = Holder(key_id="k", prefix="sk-", project_id="p", models=frozenset({"other"}))


def seat(name: str, slots: int = 1) -> Seat:
    return Seat(replica_id=name, host="h", port=1, key="", slots=slots)


def pick(route: Route | None, key: Holder = KEY, **other: object) -> Seat | Refused:
    found = vet(route, key, name="m", embeddings=False)
    if isinstance(found, Refused):
        return found
    return choose(found, **{"in_flight": {}, "dice": 0.0, **other})  # type: ignore[arg-type]


def route(*seats: Seat, waiting: tuple[Waiting, ...] = (), **model: object) -> Route:
    return Route(model=ModelEntry(name="m", created=0, **model), seats=seats, waiting=waiting)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given_route", "key", "code", "kind"),
    [
        (None, KEY, "model_not_found", Kind.NOT_FOUND),
        (route(seat("a")), NARROW, "model_not_found", Kind.NOT_FOUND),
        (route(seat("a"), enabled=False), NARROW, "model_not_found", Kind.NOT_FOUND),
        (route(seat("a"), enabled=False), KEY, "model_disabled", Kind.UNAVAILABLE),
        (route(seat("a"), embeddings=True), KEY, "wrong_endpoint", Kind.INVALID),
        (route(), KEY, "model_not_ready", Kind.UNAVAILABLE),
    ],
)
def test_refusals_in_their_order(given_route: Route | None, key: Holder, code: str, kind: Kind) -> None:
    refused = pick(given_route, key)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.kind) == (code, kind)


def test_a_disabled_model_tells_a_reason_of_its_own_and_nothing_twice() -> None:
    plain = pick(route(enabled=False, code="model_disabled", reason="the model m is disabled: ask somebody"))
    told = pick(route(enabled=False, code="maintenance", reason="maintenance until Monday."))
    assert isinstance(plain, Refused)
    assert isinstance(told, Refused)
    assert plain.message.count("is disabled") == 1
    assert "is disabled: maintenance until Monday. Ask" in told.message


def test_what_is_not_allowed_reads_like_what_does_not_exist() -> None:
    one, two = pick(None), pick(route(seat("a")), NARROW)
    assert isinstance(one, Refused)
    assert isinstance(two, Refused)
    assert (one.message, one.param, one.extra) == (two.message, two.param, two.extra)


def test_the_nearest_to_ready_says_why() -> None:
    waiting = tuple(Waiting(state=state, message=f"m-{state}") for state in ("failed", "starting", "backoff"))
    refused = pick(route(waiting=waiting))
    assert isinstance(refused, Refused)
    assert "m-starting" in refused.message
    assert refused.retry_after == 3


def test_a_model_whose_weights_are_on_their_way_says_how_far_they_are() -> None:
    waiting = tuple(Waiting(state=state, message=f"m-{state}") for state in ("pending", "fetching", "failed"))
    refused = pick(route(waiting=waiting))
    assert isinstance(refused, Refused)
    assert "its weights are being fetched (m-fetching)" in refused.message
    assert (refused.retry_after, refused.extra) == (10.0, {"state": "fetching"})


def test_without_any_replica_the_controllers_reason_is_told() -> None:
    refused = pick(route(code="no_room", reason="no node has 40 GiB free"))
    assert isinstance(refused, Refused)
    assert "no node has 40 GiB free" in refused.message
    assert refused.extra == {"state": "absent", "reason": "no_room"}


def test_a_state_of_a_newer_agent_is_told_as_it_is() -> None:
    refused = pick(route(waiting=(Waiting(state="hibernating"),)))
    assert isinstance(refused, Refused)
    assert "hibernating" in refused.message


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 20)), min_size=1, max_size=6),
    st.floats(0, 1, exclude_max=True),
)
def test_the_least_loaded_per_slot_is_chosen(spec: list[tuple[int, int]], dice: float) -> None:
    seats = [seat(f"r{n}", slots) for n, (slots, _) in enumerate(spec)]
    in_flight = {f"r{n}": count for n, (_, count) in enumerate(spec)}
    chosen = pick(route(*seats), in_flight=in_flight, dice=dice)
    assert isinstance(chosen, Seat)
    least = min(in_flight[s.replica_id] / s.slots for s in seats)
    assert in_flight[chosen.replica_id] / chosen.slots == least


def test_dice_decide_among_equals_and_only_there() -> None:
    both = route(seat("a"), seat("b"))
    assert [pick(both, dice=d).replica_id for d in (0.0, 0.49, 0.5, 0.99)] == ["a", "a", "b", "b"]  # type: ignore[union-attr]
    assert pick(both, dice=0.99, in_flight={"b": 1}) == seat("a")


def test_a_seat_that_was_tried_is_left_out() -> None:
    assert pick(route(seat("a"), seat("b")), without=("a",)) == seat("b")
    assert isinstance(pick(route(seat("a")), without=("a",)), Refused)


def test_f53_a_session_keeps_its_replica_and_is_pinned_anew_when_that_disappears() -> None:
    seats = [seat(name, 2) for name in "abcd"]
    home = pick(route(*seats), session="s")
    assert isinstance(home, Seat)
    assert {pick(route(*seats), session="s", dice=d / 10) for d in range(10)} == {home}
    rest = [item for item in seats if item != home]
    anew = pick(route(*rest), session="s")
    assert anew in rest
    assert pick(route(*seats), session="s", without=(home.replica_id,)) == anew
    for session in (f"s{number}" for number in range(40)):  # and nobody else moves
        before = pick(route(*seats), session=session)
        assert before == home or pick(route(*rest), session=session) == before


def test_a_session_goes_elsewhere_only_while_its_replica_is_overloaded() -> None:
    seats = [seat(name, 2) for name in "abcd"]
    home = pick(route(*seats), session="s")
    assert isinstance(home, Seat)
    assert pick(route(*seats), session="s", in_flight={home.replica_id: 1}) == home  # a slot is free
    assert pick(route(*seats), session="s", in_flight={home.replica_id: 2}) != home
    assert pick(route(*seats), session="s", in_flight=dict.fromkeys("abcd", 2)) == home  # all are as busy


def test_an_engine_in_which_requests_wait_has_no_more_room_than_runs_in_it() -> None:
    both = route(seat("a", 64), seat("b", 64))
    flying = {"a": 12, "b": 20}
    assert chosen(both, flying) == "a"
    assert chosen(both, flying, {"a": 8}) == "b"  # 4 wait in it
    assert chosen(both, flying, {"a": 8, "b": 8}) == "a"
    assert chosen(both, flying, {"a": 200}) == "a"  # more than its slots are none
    assert chosen(both, {"a": 1, "b": 1}, {"a": 0}) == "b"  # and none at all is one
    homes = {name: chosen(both, flying, session=name) for name in "hijklmnop"}
    at_a = next(name for name, home in homes.items() if home == "a")
    assert chosen(both, flying, {"a": 8}, session=at_a) == "b"


def chosen(given: Route, flying: dict[str, int], full: dict[str, int] | None = None, session: str = "") -> str:
    found = choose(given, in_flight=flying, dice=0.0, full=full or {}, session=session)
    assert isinstance(found, Seat)
    return found.replica_id
