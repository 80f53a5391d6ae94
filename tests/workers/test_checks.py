"""workers.checks: settings that contradict each other are refused at the start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from workers.checks import rhythm


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({}, []),
        ({"reconcile": 10.0, "heartbeat": 30.0}, []),
        ({"reconcile": 10.1}, ["workers.E001"]),
        ({"heartbeat": 31.0}, ["workers.E002"]),
        ({"heartbeat": 31.0, "stale_after": 93.0}, []),
        ({"heartbeat": 1.0, "reconcile": 1.0, "stale_after": 4.0}, []),
        ({"heartbeat": 1.0, "reconcile": 2.0, "stale_after": 4.0}, ["workers.E001"]),
        ({"heartbeat": 2.0, "reconcile": 1.0, "stale_after": 4.0}, ["workers.E002"]),
    ],
)
def test_a_rhythm_that_is_too_slow_to_tell_dead_from_alive_is_refused(
    settings: Any, fields: dict[str, float], ids: list[str]
) -> None:
    settings.CONFIG = replace(settings.CONFIG, **fields)
    found = rhythm(None)
    assert [item.id for item in found] == ids
    assert all(item.hint for item in found)
