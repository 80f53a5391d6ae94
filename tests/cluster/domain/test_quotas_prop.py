"""Properties of the ledger: sums that are kept equal sums made anew, limits hold, guarantees are not taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.domain.amounts import of_amount
from cluster.domain.board import Board
from cluster.domain.guarantees import check, worse
from cluster.domain.plan import Stop, do
from cluster.domain.quotas import Ledger
from cluster.domain.reconcile import reconcile
from cluster.domain.states import ReplicaState
from cluster.domain.types import Amount, Claim, Klass, ModelView, ReplicaView, ScopeView, World
from tests.cluster.builders import applied
from tests.cluster.domain.test_quotas import cards_node, on, owned, share_on, tree

pytestmark = pytest.mark.property

SCOPES = ["o1", "o2", "t1", "t2", "t3", "p1", "p2", "p3", "p4"]
NODES = tuple(cards_node(name, count=4) for name in ("one", "two"))
STATES = [ReplicaState.READY, ReplicaState.PENDING, ReplicaState.FAILED, ReplicaState.DRAINING, ReplicaState.STOPPED]

amounts = st.builds(
    Amount,
    cards=st.one_of(st.just(()), st.integers(0, 6).map(lambda count: (("L4", count),))),
    cores=st.one_of(st.none(), st.integers(0, 16)),
    memory=st.one_of(st.none(), st.integers(0, 8).map(lambda count: count << 32)),
)
quotas = st.dictionaries(
    st.sampled_from(SCOPES), st.fixed_dictionaries({}, optional={"guarantee": amounts, "limit": amounts}), max_size=5
)


guarantees = st.dictionaries(
    st.sampled_from(SCOPES),
    st.integers(1, 5).map(lambda count: {"guarantee": Amount(cards=(("L4", count),))}),
    min_size=1,
    max_size=4,
)


@st.composite
def worlds(draw: Any, *, crowded: bool = False) -> World:
    """Up to four models on two nodes of four cards each, at most one replica on a card. `crowded`: one on each, ready, and
    guarantees of cards."""
    owners = draw(st.lists(st.sampled_from(["", *SCOPES]), min_size=1, max_size=4))
    models = [
        owned(
            f"m{n}",
            owner,
            base=draw(st.integers(1, 8) if crowded else st.integers(0, 4)),
            klass=draw(st.sampled_from(list(Klass))),
        )
        for n, owner in enumerate(owners)
    ]
    seats = [(node, card) for node in NODES for card in range(4)]
    replicas: list[ReplicaView] = []
    for place, (node, card) in enumerate(seats):
        model = draw(st.sampled_from(models if crowded else [None, *models]))
        if model is not None:
            state = ReplicaState.READY if crowded else draw(st.sampled_from([ReplicaState.READY, *STATES]))
            run = state not in (ReplicaState.DRAINING, ReplicaState.STOPPED)
            busy = draw(st.integers(0, 1))
            replicas.append(on(model, node, card, id=f"rep_{place}", slot=place, state=state, run=run, in_flight=busy))
    return World(
        models=tuple(models),
        nodes=NODES,
        replicas=tuple(replicas),
        scopes=tree(**draw(guarantees if crowded else quotas)),
    )


def sums(ledger: Ledger) -> dict[str, dict[str, int]]:
    """All that it keeps, without zeros."""
    return {
        f"{name} {key}": {item: value for item, value in total.items() if value}
        for name, totals in (("held", ledger._held), ("serving", ledger._serving), ("kept", ledger._kept))
        for key, total in totals.items()
        if any(total.values())
    }


@given(world=worlds(), data=st.data())
def test_sums_that_are_kept_equal_sums_made_anew(world: World, data: st.DataObject) -> None:
    board = Board(world)
    ledger = Ledger(board)
    marks = [board.mark()]
    for _ in range(data.draw(st.integers(0, 12))):
        todo = data.draw(st.sampled_from(["put", "lift", "drop", "claim", "release", "mark", "back"]))
        there = list(board.replicas)
        model = data.draw(st.sampled_from(world.models))
        if todo == "claim":
            board.claim(model.id, Claim(model_id=model.id, shares=share_on(NODES[0], 0), until=1.0))
        elif todo == "release":
            board.claim(model.id, None)
        elif todo == "mark":
            marks.append(board.mark())
        elif todo == "back":
            board.back(marks.pop() if len(marks) > 1 else marks[0])
        elif there:
            replica = data.draw(st.sampled_from(there))
            if todo == "put":
                state = data.draw(st.sampled_from(STATES))
                board.put(replace(replica, state=state, run=data.draw(st.booleans()), model_id=replica.model_id))
            elif todo == "lift":
                board.lift(replica.id)
            else:
                board.drop(replica.id)
    assert sums(ledger) == sums(Ledger(Board(board.as_world())))


@given(world=worlds())
def test_no_plan_passes_a_limit_that_was_not_passed_already(world: World) -> None:
    before, after = Ledger(Board(world)), Ledger(Board(applied(world, reconcile(world, 100.0))))
    for scope in world.scopes:
        for key, limit in of_amount(scope.limit).items():
            held = after.held(scope.id).get(key, 0)
            assert held <= max(limit, before.held(scope.id).get(key, 0)), (scope, key)


@given(world=worlds(crowded=True))
@settings(max_examples=300)
def test_nothing_within_a_guarantee_is_taken_for_another_scope(world: World) -> None:
    """Of each scope that a plan takes from for others: what goes on serving then is still what is guaranteed."""
    board, chain = Board(world), _chains(world)
    for op in reconcile(world, 100.0).ops:
        do(op, board)
        if not isinstance(op, Stop) or not op.for_model:
            continue
        after = Ledger(Board(board.as_world()))
        victim, taker = world.replica(op.replica_id), world.model(op.for_model)
        assert victim is not None
        assert taker is not None
        for scope in chain(_owner(world, victim)):
            guarantee = of_amount(scope.guarantee)
            if scope not in chain(taker.owner):
                serving = after._serving.get(scope.id, {})
                assert all(serving.get(key, 0) >= value for key, value in guarantee.items()), scope


@given(first=quotas, second=quotas)
def test_a_change_is_refused_exactly_for_sums_that_it_makes_larger(first: Any, second: Any) -> None:
    fleet = {"cores": 64, "memory": 128 << 30, "cards:L4": 8_000_000}
    before, after = check(tree(**first), fleet), check(tree(**second), fleet)
    was = {(item.code, item.scope_id, item.key): item.over for item in before}
    larger = [item for item in after if item.over > was.get((item.code, item.scope_id, item.key), 0)]
    assert worse(before, after) == (larger[0] if larger else None)
    assert worse(after, after) is None
    assert all(item.over > 0 for item in after)


def _owner(world: World, replica: ReplicaView) -> str:
    model: ModelView | None = world.model(replica.model_id)
    return model.owner if model else ""


def _chains(world: World) -> Any:
    scopes = {item.id: item for item in world.scopes}

    def chain(owner: str) -> list[ScopeView]:
        found = []
        while owner in scopes:
            found.append(scopes[owner])
            owner = scopes[owner].parent
        return found

    return chain
