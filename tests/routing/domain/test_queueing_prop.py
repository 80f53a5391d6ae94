"""The queue under any order of events: bounds are held, room is used, nobody starves, scopes differ by a bounded amount."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.types import Klass
from routing.domain.queueing import HIGHEST, LOWEST, Line, Ticket, quantum, unfairness
from tests.examples import few

TOKENS = st.integers(0, 20_000)
PRIORITIES = st.integers(LOWEST, HIGHEST)
CLASSES = st.sampled_from(Klass)
TICKETS = st.builds(
    Ticket,
    scope=st.sampled_from("abcd"),
    tokens=TOKENS,
    since=st.just(0.0),
    priority=st.sampled_from([-1, 0, 1]),
    klass=CLASSES,
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), TICKETS),
        st.tuples(st.just("over"), st.none()),
        st.tuples(st.just("leave"), st.integers(0, 30)),
        st.tuples(st.just("room"), st.integers(0, 4)),
    ),
    max_size=120,
)


@given(events=EVENTS, most=st.integers(0, 8))
def test_bounds_are_held_and_room_is_used_whatever_happens(events: list[tuple[str, object]], most: int) -> None:
    line, waiting, came, went = Line(2), list[Ticket](), 0, 0
    for what, given_ in events:
        before = line.running
        if isinstance(given_, Ticket):
            came += 1
            if not line.enter():
                refused = line.join(given_, most=most)
                waiting.append(given_)
                if refused is not None:
                    assert refused.klass == min(item.klass for item in waiting)
                    waiting.remove(refused)
                    went += 1
            else:
                went += 1
        elif what == "over" and line.running:
            line.over(1.0)
        elif what == "leave" and waiting and isinstance(given_, int):
            line.leave(waiting.pop(given_ % len(waiting)))
            went += 1
        elif what == "room" and isinstance(given_, int):
            line.room = given_
        while (taken := line.take()) is not None:
            assert taken.klass == max(item.klass for item in waiting)
            waiting.remove(taken)
            went += 1
        assert line.waiting == len(waiting) <= most
        assert line.running <= max(line.room, before)
        assert not waiting or line.running >= line.room  # room is used
    assert came == went + len(waiting)


@given(
    costs=st.lists(st.lists(TOKENS, min_size=1, max_size=5), min_size=2, max_size=4),
    priorities=st.lists(PRIORITIES, min_size=4, max_size=4),
    served=st.integers(1, 150),
    klass=CLASSES,
    others=st.sets(st.integers(0, 150)),
)
def test_flows_that_always_have_requests_differ_by_a_bounded_amount(
    costs: list[list[int]], priorities: list[int], served: int, klass: Klass, others: set[int]
) -> None:
    """Of one class; `others`: turns before which one of each other class comes."""
    line, sent, got = Line(1), Counter[str](), Counter[str]()

    def send(scope: int) -> None:
        tokens = costs[scope][sent[str(scope)] % len(costs[scope])]
        sent[str(scope)] += 1
        mine = Ticket(scope=str(scope), tokens=tokens, since=0.0, priority=priorities[scope], klass=klass)
        assert not line.join(mine, most=999)

    for scope in range(len(costs)):
        send(scope)
        send(scope)
    for turn in range(served):
        for other in set(Klass) - {klass} if turn in others else ():
            line.join(Ticket(scope="0", tokens=99, since=0.0, klass=other), most=999)
        while (taken := line.take()) is not None and taken.klass > klass:
            line.over(1.0)
        assert taken is not None
        assert taken.klass == klass
        line.over(1.0)
        got[taken.scope] += max(1, taken.tokens)
        send(int(taken.scope))
    largest = max(1, *(cost for row in costs for cost in row))
    for one in range(len(costs)):
        for other in range(one):
            mine, theirs = priorities[one], priorities[other]
            turns = got[str(one)] / quantum(mine) - got[str(other)] / quantum(theirs)
            assert abs(turns) <= unfairness(largest, mine, theirs)


@few()
@given(tokens=TOKENS, priority=PRIORITIES, floods=st.lists(st.tuples(TOKENS, PRIORITIES), min_size=1, max_size=4))
def test_a_request_is_served_however_much_others_send(
    tokens: int, priority: int, floods: list[tuple[int, int]]
) -> None:
    line = Line(1)
    for number, (cost, theirs) in enumerate(floods):
        for _ in range(2):
            line.join(Ticket(scope=f"flood{number}", tokens=cost, since=0.0, priority=theirs), most=99)
    mine = Ticket(scope="mine", tokens=tokens, since=0.0, priority=priority)
    line.join(mine, most=99)
    turns = 2 + tokens / quantum(priority)
    largest = max(tokens, *(cost for cost, _ in floods))
    allowed = {f"flood{n}": turns * quantum(theirs) + largest for n, (_, theirs) in enumerate(floods)}
    spent = Counter[str]()
    while (taken := line.take()) is not mine:
        assert taken is not None
        line.over(1.0)
        spent[taken.scope] += max(1, taken.tokens)
        assert spent[taken.scope] <= allowed[taken.scope]
        line.join(Ticket(scope=taken.scope, tokens=taken.tokens, since=0.0, priority=taken.priority), most=99)
