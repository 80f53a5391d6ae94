"""Hard checks of one profile on one node, a small function each. Every refusal says why, in words with figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from cluster.domain.states import REPLICA_LIVE, NodeState, ReplicaState
from cluster.domain.types import NodeView, ProfileView, ReplicaView, World
from llmgw_site.lib.units import MIB, format_bytes

MARGIN, MARGIN_SHARE = 512 * MIB, 0.10
"""Memory of a node that is never given to engines: the smaller of the two (share of its total)."""
_LOADING = frozenset({ReplicaState.PENDING, ReplicaState.STARTING, ReplicaState.BACKOFF})


class Answer(StrEnum):
    OK = "ok"
    NOT_NOW = "not_now"  # may become possible by itself
    NEVER = "never"  # not without a change of node or profile


@dataclass(frozen=True)
class Verdict:
    answer: Answer
    code: str = ""
    message: str = ""


OK = Verdict(Answer.OK)


def margin(node: NodeView) -> int:
    return min(MARGIN, int(node.memory_total * MARGIN_SHARE))


def holds_room(replica: ReplicaView) -> bool:
    """Whether a replica's memory is still its own: a failed one has no process left."""
    return replica.state in REPLICA_LIVE


def room(world: World, node: NodeView, without: frozenset[str] = frozenset()) -> int:
    """Bytes of memory that one more replica may take on this node, never below 0.

    The smaller of what is not promised to others (total less margin less reservations) and what the machine has free
    now, less what is promised to engines that are still loading. The second sees other programs.
    """
    there = [item for item in world.on_node(node.id) if holds_room(item) and item.id not in without]
    promised = node.memory_total - margin(node) - sum(item.reserved for item in there)
    loading = sum(item.reserved for item in there if item.state in _LOADING)
    freed = sum(item.reserved for item in world.on_node(node.id) if item.id in without and item.state not in _LOADING)
    free = node.memory_available + freed - margin(node) - loading
    return max(0, min(promised, free))


def online(world: World, node: NodeView, profile: ProfileView, without: frozenset[str]) -> Verdict:
    if node.state is NodeState.ONLINE:
        return OK
    return Verdict(Answer.NOT_NOW, "node_" + node.state.value, f"it is {node.state.value}")


def engine(world: World, node: NodeView, profile: ProfileView, without: frozenset[str]) -> Verdict:
    if profile.engine not in node.engines:
        return Verdict(Answer.NEVER, "engine_missing", f"it has no {profile.engine}")
    problem = node.engines[profile.engine]
    return Verdict(Answer.NEVER, "engine_broken", f"its {profile.engine} cannot run: {problem}") if problem else OK


def cores(world: World, node: NodeView, profile: ProfileView, without: frozenset[str]) -> Verdict:
    if profile.threads <= node.cores:
        return OK
    text = f"the profile wants {profile.threads} threads and it has {node.cores} cores"
    return Verdict(Answer.NEVER, "too_few_cores", text)


def memory(world: World, node: NodeView, profile: ProfileView, without: frozenset[str]) -> Verdict:
    """1. more than the machine could ever give; 2. more than it can give now."""
    most = node.memory_total - margin(node)
    need = format_bytes(profile.memory)
    if profile.memory > most:  # 1
        text = f"it needs {need} of memory and the whole node can give {format_bytes(max(0, most))}"
        return Verdict(Answer.NEVER, "too_little_memory", text)
    left = room(world, node, without)
    if profile.memory > left:  # 2
        text = f"it needs {need} of memory and {format_bytes(left)} are free for it now"
        return Verdict(Answer.NOT_NOW, "no_memory_now", text)
    return OK


Check = Callable[[World, NodeView, ProfileView, frozenset[str]], Verdict]
CHECKS: tuple[Check, ...] = (online, engine, cores, memory)


def feasible(world: World, node: NodeView, profile: ProfileView, without: Iterable[str] = ()) -> Verdict:
    """The first check that says no, or OK. `without`: replicas to count as gone (they would be replaced)."""
    gone = frozenset(without)
    for check in CHECKS:
        verdict = check(world, node, profile, gone)
        if verdict.answer is not Answer.OK:
            return verdict
    return OK
