"""Random schedules of faults: whatever happens, no truth is broken, and at rest there is what is wanted and nothing else.

A failure names its seed: `SIM_SEED=17 pytest tests/sim -k schedules` plays that one again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from tests.sim.schedule import Schedule

ORDINARY, PROVE = 36, 2_400
LAST = 60
"""Lines of the log that a failure shows."""


def play(seeds: Iterable[int]) -> None:
    for seed in seeds:
        schedule = Schedule(seed)
        try:
            schedule.play()
            schedule.rest()
        except Exception as error:
            log = "\n".join(schedule.cluster.log[-LAST:])
            pytest.fail(f"schedule SIM_SEED={seed}: {type(error).__name__}: {error}\n{log}")


def seeds(first: int, count: int) -> Iterable[int]:
    chosen = os.environ.get("SIM_SEED")
    return [int(chosen)] if chosen else range(first, first + count)


@pytest.mark.parametrize("part", range(2))
def test_schedules_of_faults_end_with_what_is_wanted_and_nothing_else(part: int) -> None:
    play(seeds(part * ORDINARY // 2, ORDINARY // 2))


@pytest.mark.prove
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("part", range(8))
def test_many_schedules_of_faults_end_with_what_is_wanted_and_nothing_else(part: int) -> None:
    play(seeds(10_000 + part * PROVE // 8, PROVE // 8))
