"""cluster.domain.telling: a reason to wait is logged when it is new and every ten minutes, not every tick."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.plan import Wait
from cluster.domain.telling import TELL_AGAIN, Told, worth_telling

T = 1_000_000.0
BUSY = Wait(model_id="mod_a", code="no_room_now", message="1.0 GiB free")


def test_a_reason_is_told_once_whatever_its_figures_and_again_after_ten_minutes() -> None:
    told: Told = {}
    lines = []
    for tick in range(601):
        wait = Wait(model_id="mod_a", code="no_room_now", message=f"{tick} bytes free")
        news, told = worth_telling(told, [wait], T + 2 * tick)
        lines += [(2 * tick, item.message) for item in news]
    assert lines == [(0, "0 bytes free"), (600, "300 bytes free"), (1200, "600 bytes free")]


def test_another_reason_is_told_at_once() -> None:
    _, told = worth_telling({}, [BUSY], T)
    other = Wait(model_id="mod_a", code="model_parked", message="broken")
    assert worth_telling(told, [other], T + 2)[0] == [other]


def test_a_reason_that_comes_back_is_told_anew() -> None:
    _, told = worth_telling({}, [BUSY], T)
    _, told = worth_telling(told, [], T + 2)
    assert worth_telling(told, [BUSY], T + 4)[0] == [BUSY]


def test_each_model_and_each_replica_has_its_own() -> None:
    waits = [BUSY, Wait(model_id="mod_b", code="no_room_now", message=""),
             Wait(model_id="mod_a", replica_id="rep_1", code="no_room_now", message="")]  # fmt: skip
    assert worth_telling({}, waits, T)[0] == waits


def test_a_model_that_waits_for_two_things_at_once_says_neither_every_tick() -> None:
    gave_way = Wait(model_id="mod_a", code="gave_way", message="for another")
    told: Told = {}
    lines = []
    for tick in range(4):
        news, told = worth_telling(told, [gave_way, BUSY], T + 2 * tick)
        lines.append([item.code for item in news])
    assert lines == [["gave_way", "no_room_now"], [], [], []]


looks = st.lists(st.tuples(st.floats(0.0, 400.0), st.frozensets(st.sampled_from("abc"))), max_size=30)


@given(looks)
def test_what_is_new_is_told_at_once_and_what_stands_once_in_ten_minutes(
    found: list[tuple[float, frozenset[str]]],
) -> None:
    told: Told = {}
    last: dict[str, float] = {}  # of those that stand: when they were told
    now, before = T, frozenset[str]()
    for pause, codes in found:
        now += pause
        news, told = worth_telling(told, [Wait(model_id="m", code=code, message=code) for code in sorted(codes)], now)
        said = {item.code for item in news}
        assert said == {code for code in codes if code not in before or now - last[code] >= TELL_AGAIN}
        last.update(dict.fromkeys(said, now))
        assert len(told) == len(codes)  # nothing is remembered of what is over
        before = codes
