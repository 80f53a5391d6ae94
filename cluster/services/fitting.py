"""Refuses a change after which a profile fits no node there is: a slip of a unit or of a name would stop its model at the next start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.dispatch import receiver

from catalog import selectors as catalog
from catalog.models import Profile
from catalog.signals import profile_adding, profile_changing
from cluster import selectors
from cluster.domain.board import Board
from cluster.domain.feasible import NOT_NOW, lasting
from cluster.domain.nowhere import refused
from cluster.selectors.ways import profile_view, serve_of
from llmgw_site.lib.errors import Kind, Refused

TOO_SMALL: Mapping[str, tuple[str, ...]] = {
    "too_few_cores": ("threads",),
    "too_little_memory": ("memory", "context", "slots"),
    "too_few_cards": ("gpus_per_node", "tp"),
    "too_little_card_memory": ("card_memory", "context", "slots"),
}
"""Codes of a node that has the kind of hardware and too little of it, and the fields that ask for more."""


@receiver(profile_changing)
def vet_room(*, profile: Profile, asked: Profile, **kwargs: Any) -> None:
    """Raises Refused `profile_fits_nowhere`, with what the nodes have, where a change raises a figure beyond every node.

    1. only what is raised: a change that mends is never refused, and neither is one of something else
    2. a profile that is switched off is for hardware to come, and so is one where no node has the kind of hardware at all
    3. a node that it fits is enough, whoever uses it now, and whether or not it is there at the moment
    """
    raised = _raised(profile, asked)  # 1
    if not raised or not asked.enabled:  # 2
        return
    view = next((item for item in catalog.model_views() if item.model_id == profile.model_id), None)
    world = selectors.world(waits=False)
    model = world.model(profile.model_id)
    if view is None or model is None:
        return
    wanted = catalog.profile_view(asked)
    way = profile_view(view, wanted, serve_of(view, wanted))
    board = Board(world)
    known = [room.node for room in board.by_index if room.node.memory_total]
    found = {node.id: lasting(node, way) for node in known}
    if any(not code or code in NOT_NOW for code in found.values()):  # 3
        return
    blamed = {
        name
        for node in known
        for name in TOO_SMALL.get(found[node.id], ())
        if name in raised and (found[node.id] != "too_few_cards" or node.cards)  # 2
    }
    if not blamed:
        return
    field = min(blamed, key=list(raised).index)
    why = refused(board, model, way, [lasting(room.node, way) for room in board.by_index]).message
    text = f"{field}: {why}. Ask for less, add such a node first, or switch the profile off until there is one"
    raise Refused(Kind.CONFLICT, "profile_fits_nowhere", text, param=field)


NAMED = 10
"""Nodes that a refusal names."""


@receiver([profile_adding, profile_changing])
def vet_nodes(*, asked: Profile, profile: Profile | None = None, **kwargs: Any) -> None:
    """Raises Refused `unknown_node` where a new profile or a change names a node that is not in the cluster, with those that are.

    1. only names that are new: one that has left the cluster stays in the list until somebody takes it out
    2. a profile that is switched off is for nodes to come, and so is one in a cluster without any; all that it names is new
       when it is switched on
    """
    kept = profile.nodes if profile is not None and profile.enabled else []
    named = [name for name in asked.nodes if name not in kept]  # 1
    if not named or not asked.enabled:  # 2
        return
    there = sorted(selectors.nodes().values_list("name", flat=True))
    wrong = next((name for name in named if name not in there), None)
    if not there or wrong is None:  # 2
        return
    known = ", ".join(there[:NAMED]) + (f" and {len(there) - NAMED} more" if len(there) > NAMED else "")
    text = f"nodes: there is no node {wrong!r} in the cluster, which has {known}: correct the name, have the node join first, or "
    text += "leave the profile switched off until it has"
    raise Refused(Kind.INVALID, "unknown_node", text, param="nodes")


def _raised(profile: Profile, asked: Profile) -> dict[str, int]:
    """The fields of which more is asked for; what no column takes is refused with the row."""
    fields = dict.fromkeys(name for names in TOO_SMALL.values() for name in names)
    figures = {name: (getattr(profile, name), getattr(asked, name)) for name in fields}
    return {name: more for name, (had, more) in figures.items() if isinstance(more, int) and more > had}
