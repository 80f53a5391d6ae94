"""Whose requests controllers are told of where nobody answers."""

from __future__ import annotations

from typing import Any

import pytest

from routing.domain.snapshot import External, ModelEntry, Placed
from routing.domain.waking import wakes


def placed(*states: str) -> tuple[Placed, ...]:
    return tuple(Placed(replica_id=f"rep_{n}", node_id="n", state=state) for n, state in enumerate(states))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"on_demand": True}, True),
        ({"on_demand": True, "placed": placed("ready")}, True),  # it may come to rest at any moment
        ({}, True),
        ({"placed": placed("lost", "failed", "stopped")}, True),
        ({"placed": placed("lost", "ready")}, False),
        ({"placed": placed("pending")}, False),
        ({"placed": placed("starting")}, False),
        ({"placed": placed("fetching")}, False),
        ({"placed": placed("backoff")}, False),  # its node tries again, whoever asks
        ({"placed": placed("draining")}, False),
        ({"code": "model_not_wanted"}, False),
        ({"code": "over_limit"}, True),
        ({"enabled": False}, False),
        ({"external": External(provider_id="p", model="m")}, False),
    ],
)
def test_what_may_come_up_is_told_and_nothing_else(fields: dict[str, Any], told: bool) -> None:
    assert wakes(ModelEntry(name="m", created=1, **fields)) is told
