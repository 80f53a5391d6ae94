"""Hard checks of one profile on one node, a small function each. Every refusal says why, in words with figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from cluster.domain.modules import Module
from cluster.domain.states import REPLICA_LIVE, NodeState, ReplicaState
from cluster.domain.types import NodeView, ProfileView, ReplicaView, World
from llmgw_site.lib.units import MIB, format_bytes

MARGIN, MARGIN_SHARE = 512 * MIB, 0.10
"""Memory of a node that is never given to engines: the smaller of the two (share of its total)."""
PINNED = "pinned_elsewhere"
"""Code of a profile that may not run on this node."""
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
    """Whether a replica's memory is its own: while it shall run, for one that has failed or stopped is started anew when
    its agent or its module is; and then until nothing of it is left."""
    return replica.run or replica.state in REPLICA_LIVE


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


def pinned(world: World, node: NodeView, profile: ProfileView, without: frozenset[str]) -> Verdict:
    if profile.may_run_on(node):
        return OK
    return Verdict(Answer.NEVER, PINNED, f"the profile may run only on {', '.join(profile.nodes)}")


def online(world: World, node: NodeView, profile: ProfileView, without: frozenset[str]) -> Verdict:
    """A node in maintenance that is off says both."""
    if node.state is NodeState.ONLINE:
        return OK
    text = f"it is {node.state.value}" + (f" and {node.maintenance_words}" if node.maintenance else "")
    return Verdict(Answer.NOT_NOW, "node_" + node.state.value, text)


def module(world: World, node: NodeView, profile: ProfileView, without: frozenset[str]) -> Verdict:
    if node.runs(Module.INFERENCE):
        return OK
    return Verdict(Answer.NEVER, "no_inference_module", "it does not run the module inference")


def maintenance(world: World, node: NodeView, profile: ProfileView, without: frozenset[str]) -> Verdict:
    """1. the node is in maintenance. 2. All of its cards are: without one an engine would quietly use the processor."""
    if node.maintenance:  # 1
        code = "node_drained" if node.drained else "node_cordoned"
        return Verdict(Answer.NOT_NOW, code, f"it is {node.maintenance_words}")
    if node.cards_out and not node.usable_cards:  # 2
        return Verdict(Answer.NOT_NOW, "cards_in_maintenance", "all of its cards are in maintenance")
    return OK


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
CHECKS: tuple[Check, ...] = (pinned, online, module, maintenance, engine, cores, memory)


def feasible(world: World, node: NodeView, profile: ProfileView, without: Iterable[str] = ()) -> Verdict:
    """The first check that says no, or OK. `without`: replicas to count as gone (they would be replaced)."""
    gone = frozenset(without)
    for check in CHECKS:
        verdict = check(world, node, profile, gone)
        if verdict.answer is not Answer.OK:
            return verdict
    return OK
