"""What nodes said last that replicas can run on, for this process: what differs is worth a look of the reconciler at once."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from cluster.wire import Heartbeat

KEPT = 20_000
"""Nodes that are remembered, those heard last."""
_lock = Lock()
_said: OrderedDict[str, int] = OrderedDict()


def differs(beat: Heartbeat) -> bool:
    """Whether a node's processor, memory, cards or engines are others than at its last heartbeat that came here, or what is
    wrong with them. How much memory is free changes each time and makes no difference: a look comes every few seconds.

    The first heartbeat in this process makes none either: after a restart every node would be one.
    """
    hardware = beat.hardware
    mark = hash(
        (
            hardware.cores,
            hardware.memory_total,
            tuple((card.uuid, card.name, card.memory_total, card.problem) for card in hardware.cards),
            tuple((item.kind, item.version, item.problem) for item in beat.engines),
        )
    )
    with _lock:
        before = _said.pop(beat.node_id, mark)
        _said[beat.node_id] = mark
        if len(_said) > KEPT:
            _said.popitem(last=False)
    return before != mark
