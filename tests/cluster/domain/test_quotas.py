"""The ledger: sums over the tenancy tree, limits with their sums, what guarantees protect and take back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.amounts import WHOLE
from cluster.domain.board import Board
from cluster.domain.plan import Start, recheck
from cluster.domain.quotas import Ledger, ledger_of
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import Amount, Claim, Klass, ModelView, NodeView, ReplicaView, ScopeView, Share, World
from cluster.domain.victims import Ground, Rights, asker
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile, a_replica, applied, with_replica

L4, H100 = "cards:L4", "cards:H100"


def a_scope(scope_id: str, parent: str = "", **fields: Any) -> ScopeView:
    kind = {"o": "organisation", "t": "team", "p": "project"}[scope_id[0]]
    return ScopeView(id=scope_id, kind=kind, name=f"name-{scope_id}", parent=parent, **fields)


def tree(**amounts: dict[str, Amount]) -> tuple[ScopeView, ...]:
    """o1 holds t1 (p1, p2) and t2 (p3); o2 holds t3 (p4). `amounts`: by id, guarantee and limit."""
    parents = {"o1": "", "o2": "", "t1": "o1", "t2": "o1", "t3": "o2", "p1": "t1", "p2": "t1", "p3": "t2", "p4": "t3"}
    return tuple(a_scope(key, parent, **amounts.get(key, {})) for key, parent in parents.items())


def cards(count: int, klass: str = "L4") -> Amount:
    return Amount(cards=((klass, count),))


def owned(name: str, owner: str, **fields: Any) -> ModelView:
    """A model with one way to run it: most of one L4, 4 GiB and two cores."""
    profile = a_profile(f"{name}-gpu", cards=1, card_memory=20 * GIB, memory=4 * GIB, threads=2)
    return a_model(name, owner=owner, **{"profiles": (profile,), **fields})


def cards_node(name: str = "one", count: int = 4, **fields: Any) -> NodeView:
    found = tuple(a_card(f"GPU-{name}-{number}") for number in range(count))
    return a_node(name, memory=64 * GIB, cores=32, **{"cards": found, **fields})


def on(model: ModelView, node: NodeView, card: int, **fields: Any) -> ReplicaView:
    """A replica of an owned model on one card of a node."""
    shares = (Share(node_id=node.id, memory=4 * GIB, cores=2, cards=((node.cards[card].uuid, 20 * GIB),)),)
    return a_replica(model, node, **{"shares": shares, "slot": card, **fields})


def share_on(node: NodeView, card: int) -> tuple[Share, ...]:
    return (Share(node_id=node.id, memory=4 * GIB, cores=2, cards=((node.cards[card].uuid, 20 * GIB),)),)


def test_what_a_scope_holds_is_the_sum_of_its_models_and_of_the_scopes_beneath() -> None:
    node = cards_node()
    first, second, third = owned("first", "p1"), owned("second", "t1"), owned("third", "p3")
    world = World(
        models=(first, second, third, owned("free", "")),
        nodes=(node,),
        replicas=(on(first, node, 0), on(second, node, 1), on(third, node, 2), on(owned("free", ""), node, 3)),
        scopes=tree(p1={"guarantee": cards(1)}),
    )
    ledger = Ledger(Board(world))
    one = {L4: WHOLE, "cores": 2, "memory": 4 * GIB}
    assert ledger.held("p1") == one
    assert ledger.held("p2") == {}
    assert ledger.held("t1") == {key: 2 * value for key, value in one.items()}
    assert ledger.held("o1") == {key: 3 * value for key, value in one.items()}
    assert ledger.held("o2") == {}
    assert ledger.held(first.id) == one


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, True),
        ({"state": ReplicaState.PENDING}, True),
        ({"state": ReplicaState.BACKOFF}, True),
        ({"run": False, "state": ReplicaState.DRAINING}, True),
        ({"run": False, "state": ReplicaState.STOPPED}, False),
        ({"state": ReplicaState.FAILED}, False),
    ],
)
def test_what_counts_is_what_holds_room_and_can_come_to_serve(fields: dict[str, Any], counts: bool) -> None:
    node, model = cards_node(), owned("chat", "p1")
    world = World(
        models=(model,), nodes=(node,), replicas=(on(model, node, 0, **fields),), scopes=tree(p1={"limit": cards(1)})
    )
    assert bool(Ledger(Board(world)).held("p1")) is counts


def test_a_replica_on_a_node_that_is_offline_counts_for_nothing() -> None:
    node, model = cards_node(state=NodeState.OFFLINE), owned("chat", "p1")
    world = World(models=(model,), nodes=(node,), replicas=(on(model, node, 0),), scopes=tree(p1={"limit": cards(1)}))
    assert Ledger(Board(world)).held("p1") == {}


# --- limits


def test_a_limit_stops_a_model_before_it_starts_and_says_the_sums() -> None:
    node = cards_node()
    chat, coder = owned("chat", "p1", base=2), owned("coder", "p2")
    world = World(
        models=(chat, coder),
        nodes=(node,),
        replicas=(on(chat, node, 0), on(coder, node, 1)),
        scopes=tree(t1={"limit": cards(2)}),
    )
    plan = reconcile(world, 0.0)
    assert plan.ops == ()
    (wait,) = plan.waits
    assert (wait.model_id, wait.code) == (chat.id, "over_limit")
    assert wait.message == (
        "the team name-t1 may have at most 2 cards of class L4, it holds 2 (chat 1, coder 1), and one more replica of chat "
        "takes 1: raise the limit with `llmgw quota set team:name-t1`, or let another of its models rest"
    )


def test_up_to_its_limit_a_model_starts() -> None:
    node, chat = cards_node(), owned("chat", "p1", base=4)
    world = World(models=(chat,), nodes=(node,), scopes=tree(o1={"limit": cards(3)}))
    plan = reconcile(world, 0.0)
    assert [type(op) for op in plan.ops] == [Start, Start, Start]
    assert [wait.code for wait in plan.waits] == ["over_limit"]
    assert reconcile(applied(world, plan), 1.0).ops == ()


@pytest.mark.parametrize(
    ("limit", "starts"),
    [
        (Amount(cores=1), 0),
        (Amount(cores=2), 1),
        (Amount(cores=5), 2),
        (Amount(memory=4 * GIB - 1), 0),
        (Amount(memory=9 * GIB), 2),
        (Amount(cores=0), 0),
        (cards(0), 0),
        (cards(1), 1),
        (cards(0, "H100"), 3),  # another class: nothing is said of L4
        (Amount(cores=6, memory=8 * GIB, cards=(("L4", 3),)), 2),
    ],
)
def test_each_part_of_a_limit_is_one(limit: Amount, starts: int) -> None:
    world = World(models=(owned("chat", "p1", base=3),), nodes=(cards_node(),), scopes=tree(p1={"limit": limit}))
    assert len(reconcile(world, 0.0).ops) == starts


def test_room_that_is_kept_for_a_model_counts_to_the_limit_of_its_scope_for_others() -> None:
    node, chat, coder = cards_node(), owned("chat", "p1"), owned("coder", "p2")
    claim = Claim(model_id=chat.id, shares=share_on(node, 0), until=100.0)
    world = World(models=(chat, coder), nodes=(node,), claims=(claim,), scopes=tree(t1={"limit": cards(1)}))
    board = Board(world)
    ledger = Ledger(board)
    assert "kept for those that wait 1" in ledger.over_limit(coder, share_on(node, 1))
    board.claim(chat.id, None)
    assert ledger.over_limit(coder, share_on(node, 1)) == ""


def test_a_replica_that_starts_anew_as_no_more_than_it_was_is_never_over_a_limit() -> None:
    node, chat = cards_node(), owned("chat", "p1")
    mine = [on(chat, node, 0), on(chat, node, 1)]
    world = World(models=(chat,), nodes=(node,), replicas=tuple(mine), scopes=tree(p1={"limit": cards(1)}))
    ledger = Ledger(Board(world))
    assert ledger.over_limit(chat, share_on(node, 2), instead=mine[0]) == ""
    two = (replace(share_on(node, 2)[0], cards=tuple((card.uuid, 20 * GIB) for card in node.cards[:2])),)
    assert "takes 1" in ledger.over_limit(chat, two, instead=mine[0])


def test_models_of_nobody_have_no_limit() -> None:
    world = World(models=(owned("chat", "", base=4),), nodes=(cards_node(),), scopes=tree(o1={"limit": cards(0)}))
    assert len(reconcile(world, 0.0).ops) == 4


# --- guarantees


def picture(amounts: dict[str, dict[str, Amount]], *owners: str) -> tuple[Ledger, list[ReplicaView], NodeView, Board]:
    """One replica for each owner, on its own card."""
    node = cards_node(count=len(owners) + 1)
    models = [owned(f"m{number}", owner) for number, owner in enumerate(owners)]
    replicas = [on(model, node, number) for number, model in enumerate(models)]
    board = Board(World(models=tuple(models), nodes=(node,), replicas=tuple(replicas), scopes=tree(**amounts)))
    return Ledger(board), replicas, node, board


def ground(ledger: Ledger, victim: ReplicaView, taker: ModelView) -> Ground | None:
    rights = Rights(ledger.board, ledger, asker(ledger.board, taker, 0.0), taker.profiles[0])
    return rights.ground(victim)


def may_take(ledger: Ledger, victim: ReplicaView, owner: str) -> bool:
    """Whether a critical model of this owner may have its room."""
    return ground(ledger, victim, owned("taker", owner, klass=Klass.CRITICAL)) is Ground.CLASS


@pytest.mark.parametrize(
    ("amounts", "owners", "victim", "taker", "may"),
    [
        ({"p1": {"limit": cards(9)}}, ["p1"], 0, "p4", True),  # no guarantee: all of it is borrowed
        ({"p1": {"guarantee": cards(1)}}, ["p1"], 0, "p4", False),  # within it
        ({"p1": {"guarantee": cards(1)}}, ["p1", "p1"], 0, "p4", True),  # one of two is beyond it
        ({"p1": {"guarantee": cards(2)}}, ["p1", "p1"], 0, "p4", False),
        ({"p1": {"guarantee": cards(1)}}, ["p1"], 0, "p1", True),  # the same owner
        ({"t1": {"guarantee": cards(1)}}, ["p1"], 0, "p4", False),  # the scope above is guaranteed it
        ({"t1": {"guarantee": cards(1)}}, ["p1"], 0, "p2", True),  # of the same team: the team loses nothing
        ({"t1": {"guarantee": cards(1)}}, ["p1", "p2"], 0, "p4", True),
        ({"o1": {"guarantee": cards(1)}, "p1": {"guarantee": cards(1)}}, ["p1", "p2"], 0, "p4", False),
        ({"p1": {"guarantee": cards(1)}}, ["p1"], 0, "", False),  # nobody's model is another scope's
        ({"p1": {"guarantee": cards(1)}}, [""], 0, "p4", True),  # nobody is guaranteed anything
        ({"p1": {"guarantee": cards(1, "H100")}}, ["p1"], 0, "p4", True),  # of another class
        ({"p1": {"guarantee": Amount(cores=32)}}, ["p1"], 0, "p4", True),  # of cores, and it has a card
        ({"p1": {"guarantee": Amount(cards=(("L4", 1),), cores=1)}}, ["p1", "p1"], 0, "p4", True),
        ({"p1": {"guarantee": Amount(cards=(("L4", 1),), cores=4)}}, ["p1", "p1"], 0, "p4", True),  # a card is borrowed
    ],
)
def test_a_replica_within_a_guarantee_is_not_taken_for_another_scope(
    amounts: dict[str, dict[str, Amount]], owners: list[str], victim: int, taker: str, may: bool
) -> None:
    ledger, replicas, _, _ = picture(amounts, *owners)
    assert may_take(ledger, replicas[victim], taker) is may


def test_of_several_beyond_a_guarantee_no_more_are_taken_than_are_beyond_it() -> None:
    ledger, replicas, _, board = picture({"p1": {"guarantee": cards(1)}}, "p1", "p1", "p1")
    mark, taken = board.mark(), 0
    for replica in replicas:
        if may_take(ledger, replica, "p4"):
            board.lift(replica.id)
            taken += 1
    assert taken == 2
    board.back(mark)
    assert all(may_take(ledger, replica, "p4") for replica in replicas)


def test_one_that_is_told_to_stop_is_not_what_a_guarantee_lives_on() -> None:
    """Of two, one drains already for somebody else: the other one is what is left of the guarantee."""
    ledger, replicas, _, board = picture({"p1": {"guarantee": cards(1)}}, "p1", "p1")
    board.put(replace(replicas[0], run=False, state=ReplicaState.DRAINING))
    assert not may_take(ledger, replicas[1], "p4")
    board.put(replace(replicas[1], state=ReplicaState.FAILED))
    assert may_take(ledger, board.replica(replicas[1].id) or replicas[1], "p4")


@pytest.mark.parametrize(
    ("amounts", "owners", "taker", "may"),
    [
        ({"p4": {"guarantee": cards(1)}}, ["p1"], "p4", True),
        ({"t3": {"guarantee": cards(1)}}, ["p1"], "p4", True),  # the scope above it is guaranteed it
        ({"p4": {"guarantee": cards(1)}}, ["p1"], "p3", False),  # the taker has no guarantee
        ({"p4": {"guarantee": cards(1)}}, ["p1", "p4"], "p4", False),  # it holds its guarantee already
        ({"p4": {"guarantee": cards(2)}}, ["p1", "p4"], "p4", True),
        ({"p4": {"guarantee": cards(1)}, "p1": {"guarantee": cards(1)}}, ["p1"], "p4", False),  # both within theirs
        ({"p4": {"guarantee": cards(1)}, "p1": {"guarantee": cards(1)}}, ["p1", "p1"], "p4", True),
        ({"p4": {"guarantee": cards(1)}}, [""], "p4", True),  # of nobody
        ({"t1": {"guarantee": cards(1)}}, ["p2"], "p1", False),  # within a team its guarantee takes nothing back
        ({"p1": {"guarantee": cards(1)}}, ["p2"], "p1", True),
        ({"p4": {"guarantee": Amount(cores=8)}}, ["p1"], "p4", False),  # cores are guaranteed, cards are not
        ({"p4": {"guarantee": Amount(cards=(("L4", 1),), cores=1)}}, ["p1"], "p4", False),  # two cores are beyond it
    ],
)
def test_what_is_borrowed_is_taken_back_for_a_scope_within_its_own(
    amounts: dict[str, dict[str, Amount]], owners: list[str], taker: str, may: bool
) -> None:
    ledger, replicas, _, _ = picture(amounts, *owners)
    assert (ground(ledger, replicas[0], owned("taker", taker)) is Ground.BORROWED) is may


@pytest.mark.parametrize(
    ("guarantee", "replicas", "borrowed"),
    [
        (None, 2, {}),
        (cards(1), 1, {}),
        (cards(1), 3, {L4: 2 * WHOLE}),
        (cards(1, "H100"), 2, {L4: 2 * WHOLE}),
        (Amount(cores=3), 2, {"cores": 1, L4: 2 * WHOLE}),
    ],
)
def test_borrowed_is_what_is_held_beyond_the_guarantee(
    guarantee: Amount | None, replicas: int, borrowed: dict[str, int]
) -> None:
    amounts = {"p1": {"guarantee": guarantee} if guarantee else {"limit": cards(9)}}
    ledger, _, _, _ = picture(amounts, *["p1"] * replicas)
    assert ledger.borrowed("p1") == borrowed


def test_without_quotas_everything_may_be_taken_and_nothing_is_summed() -> None:
    node, chat = cards_node(), owned("chat", "p1")
    board = Board(World(models=(chat,), nodes=(node,), replicas=(on(chat, node, 0),)))
    ledger = Ledger(board)
    assert board.watchers == []
    assert may_take(ledger, board.replicas[0], "p4")
    assert ledger.over_limit(chat, share_on(node, 1)) == ""
    assert ground(ledger, board.replicas[0], owned("taker", "p4")) is None


def test_a_board_has_one_ledger() -> None:
    ledger, _, _, board = picture({"p1": {"limit": cards(1)}}, "p1")
    assert ledger_of(board) is ledger


def test_an_offline_node_frees_what_was_held_and_its_return_holds_it_again() -> None:
    node, chat = cards_node(), owned("chat", "p1")
    world = World(models=(chat,), nodes=(node,), replicas=(on(chat, node, 0),), scopes=tree(p1={"limit": cards(1)}))
    gone = replace(world, nodes=(replace(node, state=NodeState.OFFLINE), cards_node("two")))
    plan = reconcile(gone, 0.0)
    assert [type(op) for op in plan.ops] == [Start]  # the limit does not count what is lost
    back = replace(applied(gone, plan), nodes=(node, cards_node("two")))
    assert Ledger(Board(back)).held("p1")[L4] == 2 * WHOLE
    lost = with_replica(world, world.replicas[0].id, state=ReplicaState.FAILED)
    assert Ledger(Board(lost)).held("p1") == {}


def test_a_start_is_refused_at_the_last_moment_where_another_has_taken_the_limit_meanwhile() -> None:
    node, chat, coder = cards_node(), owned("chat", "p1"), owned("coder", "p2")
    world = World(models=(chat, coder), nodes=(node,), scopes=tree(t1={"limit": cards(1)}))
    (start,) = reconcile(world, 0.0).ops
    assert isinstance(start, Start)
    assert recheck(start, Board(world)) == ""
    other = next(item for item in (chat, coder) if item.id != start.model_id)
    board = Board(replace(world, replicas=(on(other, node, 3),)))
    assert recheck(start, board).startswith("the team name-t1 may have at most 1 card of class L4, it holds 1")
    board.claim(start.model_id, Claim(model_id=start.model_id, shares=start.shares, until=9.0))
    board.drop(board.replicas[0].id)
    assert recheck(start, board) == ""  # what is kept for it is for this


def test_a_replica_is_not_renewed_as_something_larger_than_the_limit_lets_it_be() -> None:
    node, chat = cards_node(), owned("chat", "p1")
    replica = on(chat, node, 0)
    two = replace(chat.profiles[0], cards=2, card_memory=40 * GIB, digest="new", even=True)
    scopes = tree(p1={"limit": cards(1)})
    world = World(models=(replace(chat, profiles=(two,)),), nodes=(node,), replicas=(replica,), scopes=scopes)
    plan = reconcile(world, 0.0)
    assert plan.ops == ()
    (wait,) = plan.waits
    assert wait.code == "update_pending"
    assert (
        "may have at most 1 card of class L4, it holds 1 (chat 1), and one more replica of chat takes 1" in wait.message
    )
    larger = replace(world, scopes=tree(p1={"limit": cards(2)}))
    (renew,) = reconcile(larger, 0.0).ops
    assert recheck(renew, Board(larger)) == ""
    assert recheck(renew, Board(world)).startswith("the project name-p1 may have at most 1 card")
