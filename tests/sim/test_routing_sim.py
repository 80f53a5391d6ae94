"""Random schedules of faults against routing between nodes.

Whatever happens: a request is accepted once at most, counters end at zero, models leave the list and return in time, and
an unreachable node is skipped for its time. A failure names its seed: `SIM_SEED=17 pytest tests/sim/test_routing_sim.py`
plays that one again.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.sim.routing import Schedule

ORDINARY, PROVE = 32, 2_000
LAST = 80
"""Lines of the log that a failure shows."""


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """The gateways' own log lines are not what is looked at here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def play(seeds: Iterable[int], folder: Path) -> None:
    for seed in seeds:
        schedule = Schedule(seed, folder)
        try:
            schedule.play()
        except Exception as error:
            log = "\n".join(schedule.network.log[-LAST:])
            pytest.fail(f"schedule SIM_SEED={seed}: {type(error).__name__}: {error}\n{log}")
        shutil.rmtree(schedule.folder)


def seeds(first: int, count: int) -> Iterable[int]:
    chosen = os.environ.get("SIM_SEED")
    return [int(chosen)] if chosen else range(first, first + count)


@pytest.mark.parametrize("part", range(2))
def test_schedules_of_faults_run_no_request_twice_and_end_at_zero(part: int, tmp_path: Path) -> None:
    play(seeds(part * ORDINARY // 2, ORDINARY // 2), tmp_path)


@pytest.mark.prove
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("part", range(8))
def test_many_schedules_of_faults_run_no_request_twice_and_end_at_zero(part: int, tmp_path: Path) -> None:
    play(seeds(10_000 + part * PROVE // 8, PROVE // 8), tmp_path)
