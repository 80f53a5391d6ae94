"""A model on another node: one row of what may be chosen, from the module map, the snapshot, and what the node says itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cluster.domain.modules import MapNode, Module
from cluster.domain.states import NodeState
from routing.domain.nodes import Works
from routing.domain.offers import READY, Offer, newer, works
from routing.domain.snapshot import ModelEntry, Placed

LOST = "lost"
"""Serving state of a model whose node is offline, or does not run the module."""


ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`serving_state`, `code`, `message`: as the newer of node and snapshot says; `unknown` where neither does.

    `absent`: the node was asked since the snapshot was made, and does not offer the model.
    """

    node: MapNode
    state: Works
    serving_state: str
    code: str = ""
    message: str = ""
    slots: int = 1
    own: bool = False  # it is the node's own word


def module_for(model: ModelEntry) -> Module:
    """The module that answers for this model."""
    return Module.CLOUD if model.external is not None else Module.INFERENCE


def placed_by_node(placed: Iterable[Placed]) -> dict[str, Placed]:
    """Of each node the replica that is ready, else the first."""
    found: dict[str, Placed] = {}
    for item in placed:
        if item.node_id not in found or (item.state == READY and found[item.node_id].state != READY):
            found[item.node_id] = item
    return found


def row_of(
    node: MapNode, module: Module, *, offer: Offer | None, placed: Placed | None, heard_at: float, made_at: float
) -> Row:
    """`heard_at`: when the node last said what it serves; 0: nothing is known of that.

    1. offline, or without the module: it cannot, and why
    2. a model of ours that the node offered before the snapshot was made, which does not place it there any more
    3. asked since the snapshot was made, it does not offer the model: no provider of it there; or an engine that the
       snapshot still takes for ready
    4. else what is known of the model there
    """
    if node.state == NodeState.OFFLINE or not node.runs(module):  # 1
        return Row(node=node, state=Works.CANNOT, serving_state=LOST, message=_away(node, module))
    if offer is not None and placed is None and module is Module.INFERENCE and made_at > heard_at:  # 2
        return Row(node=node, state=Works.CANNOT, serving_state="stopped", message="it is not placed there any more")
    if offer is None and heard_at > made_at:  # 3
        if module is Module.CLOUD:
            return Row(node=node, state=Works.CANNOT, serving_state=ABSENT)
        if placed is not None and placed.state == READY:
            return Row(node=node, state=Works.UNKNOWN, serving_state=ABSENT, slots=placed.slots)
    known = newer(offer, placed, heard_at=heard_at, made_at=made_at)  # 4
    if known is None:
        return Row(node=node, state=Works.UNKNOWN, serving_state="unknown")
    return Row(
        node=node,
        state=works(known.serving_state),
        serving_state=known.serving_state,
        code=known.code,
        message=known.message,
        slots=known.slots,
        own=known is offer,
    )


def _away(node: MapNode, module: Module) -> str:
    what = "its node is offline" if node.state == NodeState.OFFLINE else f"its node does not run {module}"
    return f"{what}, {node.maintenance}: {node.maintenance_why}" if node.maintenance else what
