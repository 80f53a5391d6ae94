"""Where a new replica goes: profiles in the model's order, nodes filtered by `feasible`, the best of the rest."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from cluster.domain.feasible import PINNED, Answer, Verdict, feasible, room
from cluster.domain.types import ModelView, NodeView, ProfileView, World
from llmgw_site.lib.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where and as what, and why there."""

    node: NodeView
    profile: ProfileView
    reason: str


@dataclass(frozen=True, kw_only=True)
class NoPlace:
    """Why it is nowhere: a stable code, and a sentence that names each node and its reason."""

    code: str
    message: str


NAMED = 12
"""Nodes whose reasons are told one by one."""
_FAILED = Verdict(Answer.NEVER, "failed_there", "it has failed there and is not tried again without a change")


def place(
    world: World, model: ModelView, without: Iterable[str] = (), *, failed: Container[tuple[str, str]] = ()
) -> Placement | NoPlace:
    """The first profile that fits somewhere, on the best node it fits on. `without`: replicas to count as gone.
    `failed`: pairs of node id and digest where the same has failed for good and is not tried again.

    1. the model has no enabled profile: `no_profile`
    2. the cluster has no node: `no_node`
    3. nodes that pass all checks are ranked: fewest replicas of this model there (a broken machine then costs the
       fewest), then most room left, then the name, so that equal worlds give equal plans
    4. no profile fits anywhere: the words of the first profile, node by node; of one that may run on a few nodes only,
       these few. The code is that of the verdict if all nodes agree; else `no_room_now` if waiting may help somewhere,
       `no_suitable_node` if it cannot
    """
    gone = frozenset(without)
    if not model.profiles:  # 1
        return NoPlace(code="no_profile", message=f"{model.name} has no enabled profile: add one or enable one")
    if not world.nodes:  # 2
        return NoPlace(code="no_node", message="the cluster has no node: start an agent")
    refusals: list[tuple[NodeView, Verdict]] = []
    for profile in model.profiles:
        fits = []
        for node in sorted(world.nodes, key=lambda item: (item.name, item.id)):
            verdict = _FAILED if (node.id, profile.digest) in failed else feasible(world, node, profile, gone)
            if verdict.answer is Answer.OK:
                fits.append(node)
            elif profile is model.profiles[0]:
                refusals.append((node, verdict))
        if fits:  # 3
            node = min(fits, key=lambda item: _rank(world, model, item, gone))
            others = len(fits) - 1
            beside = f", chosen from {others + 1} nodes with room" if others else ""
            left = format_bytes(room(world, node, gone))
            return Placement(
                node=node,
                profile=profile,
                reason=f"profile {profile.name} needs {format_bytes(profile.memory)}, "
                f"node {node.name} has {left} of room{beside}",
            )
    refusals = [item for item in refusals if item[1].code != PINNED] or refusals
    words = "; ".join(f"{node.name}: {verdict.message}" for node, verdict in refusals[:NAMED])  # 4
    if len(refusals) > NAMED:
        words += f"; and {len(refusals) - NAMED} more nodes"
    codes = {verdict.code for _, verdict in refusals}
    waiting = any(verdict.answer is Answer.NOT_NOW for _, verdict in refusals)
    code = codes.pop() if len(codes) == 1 else "no_room_now" if waiting else "no_suitable_node"
    return NoPlace(code=code, message=f"no suitable node for {model.name}, because {words}")


def _rank(world: World, model: ModelView, node: NodeView, gone: frozenset[str]) -> tuple[int, int, str, str]:
    same = sum(item.model_id == model.id and item.id not in gone for item in world.on_node(node.id))
    return (same, -room(world, node, gone), node.name, node.id)
