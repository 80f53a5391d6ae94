"""The queue of a model: who runs at once, who is next, who has to go, what is told."""

from __future__ import annotations

import pytest

from cluster.domain.types import Klass
from llmgw_site.lib.errors import Kind
from routing.domain.queueing import QUANTUM, Line, Ticket, full, late, quantum, weight

LOW, USUAL, HIGH = Klass.OPPORTUNISTIC, Klass.STANDARD, Klass.CRITICAL


def ticket(scope: str, tokens: int = QUANTUM, priority: int = 0, klass: Klass = USUAL) -> Ticket:
    return Ticket(scope=scope, tokens=tokens, since=0.0, priority=priority, klass=klass)


def served(line: Line, count: int) -> str:
    """The scopes of the next so many, one after the other."""
    found = ""
    for _ in range(count):
        taken = line.take()
        assert taken is not None
        found += taken.scope
        line.over(1.0)
    return found


def busy(*tickets: Ticket, room: int = 1) -> Line:
    line = Line(room)
    for item in tickets:
        assert line.join(item, most=1000) is None
    return line


def test_a_request_runs_at_once_while_there_is_room_and_nobody_waits() -> None:
    line = Line(2)
    assert [line.enter(), line.enter(), line.enter()] == [True, True, False]
    line.join(ticket("a"), most=9)
    line.over(1.0)
    assert not line.enter()  # nobody goes before those that wait
    assert line.take() is not None
    assert line.take() is None


def test_scopes_take_turns_whatever_one_of_them_sends() -> None:
    line = busy(*[ticket("a") for _ in range(6)], ticket("b"), ticket("b"))
    assert served(line, 8) == "ababaaaa"


def test_turns_are_by_tokens_and_not_by_requests() -> None:
    line = busy(*[ticket("a", 4 * QUANTUM) for _ in range(2)], *[ticket("b", QUANTUM) for _ in range(8)])
    assert served(line, 10) == "bbbabbbbab"


@pytest.mark.parametrize(("priority", "share"), [(1, 8), (0, 5), (-1, 2)])
def test_a_priority_has_four_times_the_share_of_the_one_below(priority: int, share: int) -> None:
    line = busy(*[ticket("a") for _ in range(20)], *[ticket("b", priority=priority) for _ in range(20)])
    assert served(line, 10).count("b") == share


def test_weights_and_quanta() -> None:
    assert [weight(item) for item in (-3, -2, -1, 0, 1, 2, 9)] == [1, 1, 4, 16, 64, 256, 256]
    assert [quantum(item) for item in (-2, 0, 2)] == [64, 1024, 16384]


def test_a_full_queue_refuses_who_comes_or_the_last_of_who_has_most() -> None:
    mine = [ticket("a") for _ in range(3)]
    line = busy(*mine)
    late_one = ticket("a")
    assert line.join(late_one, most=3) is late_one
    other = ticket("b")
    assert line.join(other, most=3) is mine[2]
    again = ticket("b")
    assert line.join(again, most=3) is again  # as many as the other has: nobody gains
    assert line.waiting == 3


def test_a_higher_class_goes_first_and_within_one_turns_and_priorities_are_as_ever() -> None:
    line = busy(
        *[ticket("a", klass=LOW) for _ in range(2)],
        *[ticket("b") for _ in range(3)],
        *[ticket("c") for _ in range(3)],
        ticket("d", priority=-1),
        ticket("e", 100 * QUANTUM, priority=-2, klass=HIGH),
    )
    assert served(line, 1) == "e"
    assert served(line, 3) == "bcb"
    line.join(ticket("f", klass=HIGH), most=99)
    line.join(ticket("a", klass=HIGH), most=99)
    assert served(line, 2) == "fa"
    assert served(line, 6) == "cbcdaa"
    assert line.take() is None


@pytest.mark.parametrize(
    ("waiting", "comes", "refused"),
    [
        ("aa B", ("c", HIGH), 1),  # of the lowest class, the last of whoever has most
        ("abb", ("a", HIGH), 2),
        ("AB", ("c", USUAL), None),
        ("AA b", ("b", HIGH), 2),
        ("Aab", ("c", LOW), None),
        ("aaB", ("c", USUAL), 1),  # its own class is the lowest: whose flow has more
        ("aB", ("a", USUAL), None),
        ("AAB", ("b", HIGH), None),
        ("AAA", ("b", HIGH), 2),
    ],
)
def test_a_full_queue_lets_in_who_is_of_a_higher_class_than_one_that_waits(
    waiting: str, comes: tuple[str, Klass], refused: int | None
) -> None:
    """Who waits is drawn as its project: small standard, large critical."""
    tickets = [ticket(name.lower(), klass=HIGH if name.isupper() else USUAL) for name in waiting.replace(" ", "")]
    line = busy(*tickets)
    comer = ticket(comes[0], klass=comes[1])
    gone = line.join(comer, most=len(tickets))
    assert gone is (comer if refused is None else tickets[refused])
    assert line.waiting == len(tickets)


def test_of_three_classes_the_lowest_goes_whatever_its_priority() -> None:
    low = [ticket("a", priority=2, klass=LOW), ticket("b", priority=2, klass=LOW)]
    line = busy(*low, *[ticket("c", priority=-2) for _ in range(2)])
    assert line.join(ticket("c", priority=-2), most=4) is low[0]
    assert line.join(ticket("d", klass=HIGH), most=4) is low[1]
    first = ticket("e", klass=LOW)
    assert line.join(first, most=4) is first


def test_who_had_to_go_or_waited_in_vain_is_told_of_higher_classes() -> None:
    mine = ticket("a", klass=LOW)
    line = busy(mine, ticket("b"), ticket("b", klass=HIGH), ticket("c", klass=HIGH))
    assert line.ahead(mine) == 3
    before = line.taken_above(LOW)
    served(line, 2)
    assert (line.taken_above(LOW) - before, line.taken_above(USUAL), line.taken_above(HIGH)) == (2, 2, 0)
    refused = late("tiny", line, mine, waited=30.0, overtaken=2)
    assert refused.extra["overtaken_by"] == 2
    assert "meanwhile 2 of a higher class than opportunistic, which it is, had their turn: try again" in refused.message
    assert "overtaken_by" not in late("tiny", line, mine, waited=30.0).extra
    refused = full("tiny", line, most=2, own=LOW, came=HIGH)
    assert refused.extra["displaced_by"] == "critical"
    assert "one of the class critical took the place of this one, which is opportunistic: try again" in refused.message
    assert "displaced_by" not in full("tiny", line, most=2, own=LOW, came=LOW).extra


def test_nobody_waits_where_there_is_no_queue() -> None:
    first = ticket("a")
    assert Line(1).join(first, most=0) is first


def test_what_was_saved_for_one_that_left_is_not_for_those_behind_it() -> None:
    large = ticket("a", 100 * QUANTUM)
    line = busy(large, *[ticket("b", 20 * QUANTUM) for _ in range(3)])
    assert served(line, 2) == "bb"
    line.leave(large)
    for _ in range(9):
        line.join(ticket("a"), most=99)
    assert served(line, 2).count("a") <= 2
    assert line.waiting == 8


def test_leaving_in_any_place_keeps_the_count() -> None:
    tickets = [ticket("a"), ticket("b"), ticket("a")]
    line = busy(*tickets)
    for item in tickets:
        line.leave(item)
    assert line.waiting == 0
    assert line.take() is None


def test_a_refusal_says_how_many_wait_and_when_there_is_room() -> None:
    line = busy(ticket("a"), ticket("a"), ticket("b"), room=2)
    assert line.take() is not None
    assert line.take() is not None
    line.running = 2
    refused = full("tiny", line, most=1)
    assert (refused.kind, refused.code, refused.retry_after) == (Kind.LIMITED, "queue_full", 5.0)
    assert "expected_wait_s" not in refused.extra
    line.held = 20.0
    refused = full("tiny", line, most=1)
    assert "2 requests run, of 2 that it serves at a time, and 1 wait, of 1 that may" in refused.message
    assert refused.extra["expected_wait_s"] == 20.0
    assert refused.retry_after == 20.0


def test_who_waited_in_vain_is_told_its_place() -> None:
    waiting = [ticket("a") for _ in range(3)]
    line = busy(*waiting, ticket("b"), ticket("b"))
    assert [line.ahead(item) for item in waiting] == [1, 3, 4]
    line.held = 100.0
    refused = late("tiny", line, waiting[2], waited=30.0)
    assert (refused.kind, refused.code, refused.retry_after) == (Kind.UNAVAILABLE, "queue_timeout", 60.0)
    assert refused.extra == {"position": 5, "waiting": 5, "room": 1, "expected_wait_s": 500.0}
    assert "waited for 30 s and was about number 5" in refused.message


def test_the_mean_of_how_long_requests_run_follows_them() -> None:
    line = Line(4)
    for _ in range(2):
        line.enter()
    line.over(10.0)
    assert line.held == 10.0
    line.over(20.0)
    assert line.held == 11.0
    assert line.expected(3) == 11.0
