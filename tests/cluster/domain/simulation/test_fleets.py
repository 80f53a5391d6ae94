"""Fleets by chance: whatever they are and whatever happens, no rule of the scheduler is broken.

A failure names its seed: `llmgw simulate --seed 17 --log` shows that run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

from cluster.domain.simulation.random_case import random_case
from cluster.domain.simulation.run import EPOCH, Outcome, simulate

ORDINARY, PROVE, LARGE, CROWDED, FEW = 32, 560, 8, 120, 6
UNDONE = {"flapping", "dearer", "in_vain", "class_inversion", "starved"}


def seeds(first: int, count: int) -> Iterable[int]:
    chosen = os.environ.get("SIM_SEED")
    return [int(chosen)] if chosen else range(first, first + count)


def broken(outcome: Outcome) -> str:
    """The rules that a run broke, and how to see it again; empty if none."""
    told = "\n".join(f"  {item.at - EPOCH:7.0f} {item.rule}: {item.text}" for item in outcome.violations[:8])
    return f"llmgw simulate --seed {outcome.case.seed}\n{told}" if outcome.violations else ""


def test_no_rule_is_broken_on_fleets_by_chance_which_reach_what_they_are_to_prove() -> None:
    ops: set[str] = set()
    codes: set[str] = set()
    for seed in seeds(0, ORDINARY // 2):
        run = simulate(random_case(seed))
        assert broken(run) == ""
        ops |= run.figures.ops.keys()
        codes |= run.figures.waits.keys()
    if "SIM_SEED" not in os.environ:
        assert ops >= {"start", "stop", "remove", "renew", "remember", "grown", "preempted", "keep"}
        assert codes >= {"no_room_now", "node_offline", "model_parked"}


def test_no_rule_is_broken_on_further_fleets_by_chance() -> None:
    for seed in seeds(ORDINARY // 2, ORDINARY // 2):
        assert broken(simulate(random_case(seed))) == ""


@pytest.mark.prove
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("part", range(8))
def test_no_rule_is_broken_on_many_fleets_by_chance(part: int) -> None:
    for seed in seeds(1_000 + part * PROVE // 8, PROVE // 8):
        assert broken(simulate(random_case(seed))) == ""


def test_no_rule_is_broken_where_models_crowd_on_few_nodes() -> None:
    """Who gives way to whom is decided there at each look: classes, guarantees and load pull in different directions."""
    for seed in seeds(0, 4):
        assert broken(simulate(random_case(seed, nodes=5, models=20))) == ""


@pytest.mark.prove
@pytest.mark.timeout(1500)
def test_hardly_any_is_broken_on_many_crowded_fleets() -> None:
    """What is promised and guaranteed holds on all of them. Where three orders pull at the last room, a step that the next one
    undoes is left on few: docs/simulator.md says of which kinds."""
    runs = [simulate(random_case(seed, nodes=5, models=20)) for seed in seeds(7_000, CROWDED)]
    found = [broken(run) for run in runs if run.violations]
    assert {item.rule for run in runs for item in run.violations} <= UNDONE, "\n".join(found)
    assert len(found) <= FEW, "\n".join(found)


@pytest.mark.prove
@pytest.mark.timeout(1500)
def test_no_rule_is_broken_on_large_fleets() -> None:
    for seed in seeds(5_000, LARGE):
        assert broken(simulate(random_case(seed, nodes=400, models=60))) == ""


def test_a_seed_gives_the_same_run_each_time() -> None:
    first, again, other = (simulate(random_case(seed)) for seed in (3, 3, 4))
    assert first.log == again.log
    assert first.figures == again.figures
    assert first.world == again.world
    assert first.log != other.log


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    """Whatever the order of sets is there."""
    code = (
        "import hashlib; from cluster.domain.simulation.random_case import random_case;"
        "from cluster.domain.simulation.run import simulate;"
        "print(hashlib.sha256(repr([simulate(random_case(seed)).log for seed in (3, 8)]).encode()).hexdigest())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            timeout=240,
        ).stdout
        for seed in ("1", "77")
    }
    assert len(told) == 1


def test_the_fleets_by_chance_are_of_all_kinds() -> None:
    cases = [random_case(seed) for seed in range(ORDINARY)]
    nodes = [node for case in cases for node in case.nodes]
    ways = [profile for case in cases for model in case.models for profile in model.profiles]
    assert len({card.klass for node in nodes for card in node.cards}) >= 6
    assert any(not node.cards for node in nodes)
    assert any(node.fabric for node in nodes)
    assert any(case.scopes for case in cases)
    assert any(case.twice for case in cases)
    assert {case.pack for case in cases} == {True, False}
    assert {(way.cards > 1, way.even, way.span > 1) for way in ways} >= {
        (False, False, False), (True, False, False), (True, True, False), (True, True, True),
    }  # fmt: skip
    kinds = {item.kind for case in cases for item in case.happenings}
    assert kinds >= {"node_off", "node_on", "node_drain", "card_bad", "foreign", "model_add", "model_drop"}
    assert kinds >= {"model_change", "profile_change", "model_retry", "model_restart"}
