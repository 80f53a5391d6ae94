"""Case 4 of the reconciler: old replicas are replaced by new ones, one at a time."""

from __future__ import annotations

from cluster.domain.draft import Draft
from cluster.domain.eviction import NAMED
from cluster.domain.feasible import Answer
from cluster.domain.nowhere import FAILED_THERE
from cluster.domain.place import NoPlace, failed_there
from cluster.domain.plan import SURGE, Remember, Renew, Wait, old, outdated, running
from cluster.domain.refusals import Verdict, feasible
from cluster.domain.restart import given_up
from cluster.domain.room import holds_room
from cluster.domain.shares import share_of
from cluster.domain.starting import start
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.surplus import usefulness
from cluster.domain.types import ModelView, NodeView, ProfileView, ReplicaView, Share
from cluster.domain.victims import stuck
from cluster.domain.waits import ASKING_NODES, ROOM_COMES, TO_MOVE, parked_words
from cluster.domain.within import place_within

_READY = ReplicaState.READY


def replace(draft: Draft, model: ModelView) -> None:
    """Case 4."""
    active = running(draft.board, model.id)
    found = sorted((item for item in active if old(draft.board, model, item)), key=usefulness)
    if len(active) > model.target:
        return  # one is being replaced at this moment
    coming = any(item.state is not _READY or not model.trusts(item) for item in active if item not in found)
    broken = _broken(draft, model)
    halted = all(item.digest in broken for item in model.profiles)
    for chosen in found:
        if model.standing.parked_at is not None:
            _stays(draft, model, chosen, NoPlace(code="model_parked", message=parked_words(model)))
            continue
        serving, move = chosen.state is _READY, draft.board.to_move(chosen)
        if coming and (serving or move):
            continue  # one after the other
        nowhere: NoPlace | None = None
        why = move or (f"{chosen.id} runs with an older profile" if outdated(model, chosen) else "")
        if (serving or move) and (why or not model.standing.in_place) and (move or not halted):
            why = why or f"{chosen.id} is to restart"
            nowhere = start(draft, model, f"{why}; ")
            if nowhere is None:  # a
                return
            comes = _comes(draft, model, nowhere)
            if serving and comes:
                text = f"{why}; another starts beside it as soon as there is room: {comes}"
                draft.waits.append(Wait(model_id=model.id, code=ROOM_COMES, message=text, replica_id=chosen.id))
            if comes and (serving or draft.board.claim_of(model.id) is not None):
                return
        if _renew(draft, model, chosen, nowhere):  # b
            return
        _stays(draft, model, chosen, nowhere)  # c
    for replica in draft.board.of_model(model.id):
        if not replica.run or draft.board.state(replica) is not ReplicaState.FAILED:
            continue
        asked = model.restarts(replica)
        beside = SURGE if asked and not outdated(model, replica) and found else 0  # it was to follow an old one
        missing = len(running(draft.board, model.id)) < model.target + beside
        if missing and (asked or outdated(model, replica)):
            _renew(draft, model, replica, None)


def _comes(draft: Draft, model: ModelView, nowhere: NoPlace) -> str:
    """What a second replica need only wait for, in words; empty: nothing of that kind, so that one that serves may have to stop.

    1. room is kept for it, until those that hold it have gone
    2. nodes are about to say whether they have the weights
    3. replicas of the model itself leave, and there is a place once they have: room, or what a limit allows. Not those of a
       node that is not heard, nor those that should have ended long ago
    """
    claim = draft.board.claim_of(model.id)
    if claim is not None:  # 1
        names = (node.name for share in claim.shares if (node := draft.board.node(share.node_id)) is not None)
        return f"it is kept on node {', '.join(names)} until those that hold it have ended"
    if nowhere.code == ASKING_NODES:  # 2
        return nowhere.message
    leaving = [item for item in draft.board.of_model(model.id) if _leaves(draft, item)]  # 3
    if not leaving:
        return ""
    failed, mark = failed_there(draft.board, model), draft.board.mark()
    for item in leaving:
        draft.board.lift(item.id)
    found = place_within(draft.placer, draft.ledger, model, failed=failed)
    draft.board.back(mark)
    names = (item.id for item in leaving[:NAMED])
    return "" if isinstance(found, NoPlace) else f"{', '.join(names)} still finish{'es' if len(leaving) == 1 else ''}"


def _leaves(draft: Draft, replica: ReplicaView) -> bool:
    """Whether what a replica holds can be waited for."""
    if replica.run or not holds_room(replica) or stuck(draft.board, replica, draft.now):
        return False
    nodes = [draft.board.node(node_id) for node_id in replica.node_ids]
    return all(node is not None and node.state is NodeState.ONLINE for node in nodes)


def _renew(draft: Draft, model: ModelView, replica: ReplicaView, nowhere: NoPlace | None) -> bool:
    """Case 4b. `nowhere`: why there is no place for a second one, if it was tried."""
    found = _fits(draft, model, replica)
    profile = next((item for item, verdict in found if verdict.answer is Answer.OK), None)
    if profile is None:
        return False
    why = draft.board.to_move(replica) or (
        "the profile or the weights changed" if outdated(model, replica) else "it was to restart"
    )
    if nowhere is not None:
        why += ", and there is no room for a second replica beside it"
    draft.do(
        Renew(
            replica_id=replica.id,
            profile_id=profile.id,
            digest=profile.digest,
            generation=replica.generation + 1,
            shares=_shares_there(draft, replica, profile),
            reason=why,
        )
    )
    return True


def _stays(draft: Draft, model: ModelView, replica: ReplicaView, nowhere: NoPlace | None) -> None:
    """Case 4c."""
    node = draft.board.node(replica.node_id)
    move, name = draft.board.to_move(replica), node.name if node else "?"
    if move:
        text = f"{move}; {replica.id} stays there until it has another place: {nowhere.message if nowhere else ''}"
        wait = Wait(model_id=model.id, code=TO_MOVE, message=text, replica_id=replica.id)
    elif not outdated(model, replica):
        _give_up(draft, model, replica, nowhere)
        return
    else:
        found = _fits(draft, model, replica)
        words = found[0][1].message if found else ""
        words = f"for the new one {words}" if words else nowhere.message if nowhere else ""
        text = f"{replica.id} on node {name} runs with an older profile: {words}"
        wait = Wait(model_id=model.id, code="update_pending", message=text, replica_id=replica.id)
    draft.waits.append(wait)


def _give_up(draft: Draft, model: ModelView, replica: ReplicaView, nowhere: NoPlace | None) -> None:
    """Case 4c of a restart: nothing would fit, so it is left running, and nobody tries again."""
    now = draft.board.model(model.id) or model
    found = _fits(draft, model, replica)
    words = found[0][1].message if found else ""
    text = f"the restart of {replica.id} is given up, it runs on: "
    text += (
        f"a new one fits nowhere beside it ({nowhere.message}), nor in its place" if nowhere else "it cannot start anew"
    )
    text += f": {words}" if words else ""
    left = given_up(now.standing, replica)
    draft.do(Remember(model_id=model.id, before=now.standing, standing=left, reason=text))


def _shares_there(draft: Draft, replica: ReplicaView, profile: ProfileView) -> tuple[Share, ...]:
    """What a replica takes of the nodes where it is, as another profile."""
    mark = draft.board.mark()
    draft.board.lift(replica.id)
    pack = draft.board.world.pack
    shares = tuple(share_of(draft.board.rooms[item.node_id], profile, pack=pack) for item in replica.shares)
    draft.board.back(mark)
    return shares


def _fits(draft: Draft, model: ModelView, replica: ReplicaView) -> list[tuple[ProfileView, Verdict]]:
    """The model's profiles on the replica's own nodes in its place, its own profile first."""
    nodes = [node for share in replica.shares if (node := draft.board.node(share.node_id)) is not None]
    if len(nodes) < len(replica.shares):
        return []
    profiles = sorted(model.profiles, key=lambda item: item.id != replica.profile_id)
    broken = _broken(draft, model) if replica.state is _READY else {}
    if replica.refused_by_system and not outdated(model, replica) and not model.restarts(replica):
        # anew, or as another profile and back, it would have all its tries once more, for ever
        text = f"the system of node {nodes[0].name} does not start it: {replica.message}"
        broken = {item.digest: Verdict(Answer.NOT_NOW, FAILED_THERE, text) for item in profiles}
    found = [(item, broken.get(item.digest) or _there(draft, model, replica, item, nodes)) for item in profiles]
    return [(item, _within_limits(draft, model, replica, item, verdict)) for item, verdict in found]


def _broken(draft: Draft, model: ModelView) -> dict[str, Verdict]:
    """Digests that have failed for good somewhere, and the words for it: nothing that serves gives way to such a one."""
    found = {}
    for item in draft.board.of_model(model.id):
        if item.run and draft.board.state(item) is ReplicaState.FAILED:
            node = draft.board.node(item.node_id)
            text = f"the same has failed as {item.id} on node {node.name if node else '?'}: {item.message}"
            found[item.digest] = Verdict(Answer.NOT_NOW, FAILED_THERE, text)
    return found


def _there(
    draft: Draft, model: ModelView, replica: ReplicaView, profile: ProfileView, nodes: list[NodeView]
) -> Verdict:
    if profile.span != len(nodes):
        text = f"it spans {profile.span} nodes of one fabric, and {replica.id} is on {len(nodes)}"
        return Verdict(Answer.NOT_NOW, "no_fabric_now", text)
    found = [feasible(draft.board, node, profile, [replica.id], model) for node in nodes]
    return next((verdict for verdict in found if verdict.answer is not Answer.OK), found[0])


def _within_limits(
    draft: Draft, model: ModelView, replica: ReplicaView, profile: ProfileView, verdict: Verdict
) -> Verdict:
    """What fits may be more than quotas let the model have."""
    if verdict.answer is not Answer.OK:
        return verdict
    over = draft.ledger.over_limit(model, _shares_there(draft, replica, profile), instead=replica)
    return Verdict(Answer.NOT_NOW, "over_limit", over) if over else verdict
