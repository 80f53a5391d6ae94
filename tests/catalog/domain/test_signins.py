"""catalog.domain.signins: how long who tried too often waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.signins import OF_ACCOUNT, OF_ADDRESS, WINDOW, Try, pause

NOW = 1_000_000.0


def tries(count: int, account: str = "ann", *, age: float = 0.0) -> list[Try]:
    return [Try(at=NOW - age - number, account=account) for number in range(count)]


def test_five_tries_of_an_account_are_allowed_and_then_it_waits_for_the_oldest_of_them() -> None:
    assert pause(tries(OF_ACCOUNT - 1), "ann", NOW) == 0.0
    assert pause(tries(OF_ACCOUNT), "ann", NOW) == WINDOW - (OF_ACCOUNT - 1)
    assert pause(tries(OF_ACCOUNT, age=WINDOW), "ann", NOW) == 0.0
    assert pause(tries(OF_ACCOUNT), "bob", NOW) == 0.0


def test_an_address_has_fifty_tries_for_all() -> None:
    many = [Try(at=NOW - number, account=f"n{number}") for number in range(OF_ADDRESS)]
    assert pause(many[1:], "ann", NOW) == 0.0
    assert pause(many, "ann", NOW) == WINDOW - (OF_ADDRESS - 1)
    assert pause(many, "ann", NOW, signed_in_at=NOW) > 0.0  # one's own success makes no room for the names of others
    assert pause(many, "ann", NOW, allowed_at=NOW) == 0.0


def test_a_success_or_an_administrator_makes_a_new_beginning() -> None:
    for words in ("signed_in_at", "allowed_at"):
        assert pause(tries(OF_ACCOUNT, age=5.0), "ann", NOW, **{words: NOW - 1.0}) == 0.0
        assert pause(tries(OF_ACCOUNT, age=0.0), "ann", NOW, **{words: NOW - WINDOW + 1.0}) > 0.0


@given(st.lists(st.tuples(st.floats(0, 2000), st.sampled_from("ab")), max_size=80))
def test_once_the_pause_is_over_there_is_one_more_try(found: list[tuple[float, str]]) -> None:
    made = [Try(at=NOW - age, account=account) for age, account in found]
    seconds = pause(made, "a", NOW)
    assert 0.0 <= seconds <= WINDOW
    assert pause(made, "a", NOW + seconds + 0.001) == 0.0
