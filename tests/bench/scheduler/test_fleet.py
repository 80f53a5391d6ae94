"""What is measured is what was promised: the size and the mixture of the fleet, and that everything on it is decided."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson

from cluster.domain.plan import Start
from cluster.domain.reconcile import reconcile
from tests.bench.scheduler.fleet import NOW, done, fleet, full


def test_the_fleet_is_as_large_and_as_mixed_as_promised() -> None:
    world = fleet(10_000)
    cards = [card for node in world.nodes for card in node.cards]
    assert (len(world.nodes), len(cards), len(world.models)) == (10_000, 80_000, 50)
    assert sum(model.target for model in world.models) == 1_000
    assert len({card.klass for card in cards}) >= 6
    assert 0.29 < sum(card.foreign > 0 for card in cards) / len(cards) < 0.31
    assert all(node.labels for node in world.nodes)
    assert len({node.fabric for node in world.nodes}) > 100
    assert any(scope.guarantee.cards for scope in world.scopes)
    ways = {(profile.cards, profile.even, profile.span) for model in world.models for profile in model.profiles}
    assert ways >= {(0, False, 1), (1, False, 1), (4, False, 1), (4, True, 1), (8, True, 2)}


def test_all_of_it_is_placed_and_then_there_is_nothing_to_do() -> None:
    world = fleet(400, models=20)
    plan = reconcile(world, NOW)
    assert sum(isinstance(op, Start) for op in plan.ops) == 40
    assert reconcile(done(world, plan), NOW + 60).ops == ()


def test_the_full_fleet_is_full() -> None:
    world = full(fleet(40))
    plan = reconcile(world, NOW)
    assert (plan.ops, plan.waits) == ((), ())
    free = [card.foreign < card.memory_total * 0.9 for node in world.nodes for card in node.cards]
    assert len(world.replicas) >= sum(free)


def test_it_prints_what_it_measured_smallest_fleet_first(tmp_path: Path) -> None:
    """In a process of its own: it collects garbage before each measurement, of all that there is."""
    out = tmp_path / "found.json"
    command = [
        sys.executable,
        "-m",
        "tests.bench.scheduler",
        "--nodes",
        "16",
        "12",
        "--no-rows",
        "--top",
        "0",
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert [line.split()[0] for line in done.stdout.splitlines()[1:3]] == ["12", "16"]
    assert [row["nodes"] for row in orjson.loads(out.read_bytes())["fleets"]] == [12, 16]
