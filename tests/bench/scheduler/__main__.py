"""`python -m tests.bench.scheduler [--nodes N ...] [--strict]`: decisions measured on fleets of growing size.

Decision time alone, on one core, in CPU and wall seconds: the best of three runs, for another program can only add to a
run. The time to read the rows of such a fleet from a database is printed beside it.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import platform
import pstats
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from cluster.domain.board import Board
from cluster.domain.eviction import Eviction
from cluster.domain.place import Placement, Placer
from cluster.domain.plan import Start
from cluster.domain.preempt import make_room
from cluster.domain.quotas import Ledger
from cluster.domain.reconcile import reconcile
from cluster.domain.types import ModelView, World
from tests.bench.scheduler.fleet import NOW, crowded, done, fleet, full

SIZES = (100, 1_000, 10_000)
GOALS = {"place": 5.0, "tick": 1.0, "preempt": 0.2}
"""Seconds of CPU on 10,000 nodes."""
RUNS = 3


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scheduler", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--top", type=int, default=12, help="functions to name that cost most")
    parser.add_argument("--no-rows", action="store_true", help="do not measure reading the rows")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a goal is missed")
    parser.add_argument("--out", type=Path, default=Path("var/bench/scheduler.json"))
    given = parser.parse_args(args)
    sizes = sorted(set(given.nodes))
    rows = [_measure(count, given.top if count == sizes[-1] else 0, rows=not given.no_rows) for count in sizes]
    found = {"python": platform.python_version(), "at": time.time(), "goals": GOALS, "fleets": rows}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    sys.stdout.write(f"{table(rows)}\nwritten to {given.out}\n")
    missed = [name for name, most in GOALS.items() if rows[-1][name]["cpu"] > most]
    if missed:
        sys.stdout.write(f"goals missed on {rows[-1]['nodes']} nodes: {', '.join(missed)}\n")
    return 1 if given.strict and missed else 0


def _measure(count: int, top: int, *, rows: bool) -> dict[str, Any]:
    """One fleet. `top`: how many functions to name; none are looked for where it is 0."""
    sys.stderr.write(f"{count} nodes ...\n")
    empty = fleet(count)
    plan, place = timed(lambda: reconcile(_fresh(empty), NOW))
    settled = done(empty, plan)
    again, tick = timed(lambda: reconcile(_fresh(settled), NOW + 60))
    assert not again.ops, f"there is nothing to do, and the plan says {again.ops[:3]}"
    packed = full(empty)
    cases = crowded(packed)
    asking = cases["nobody's"]
    _, quiet = timed(lambda: reconcile(_fresh(packed), NOW))
    swap, preempt = timed_on(asking, make_way)
    others = {name: timed_on(world, make_way)[1] for name, world in cases.items() if world is not asking}
    found = {
        "nodes": count,
        "cards": sum(len(node.cards) for node in empty.nodes),
        "foreign": sum(card.foreign > 0 for node in empty.nodes for card in node.cards),
        "started": sum(isinstance(op, Start) for op in plan.ops),
        "wanted": sum(model.target for model in empty.models),
        "place": place,
        "tick": tick,
        "full_replicas": len(packed.replicas),
        "full_tick": quiet,
        "preempt": max((preempt, *others.values()), key=lambda item: item["cpu"]),
        "preempt_cases": {"nobody's": preempt, **others},
        "victims": len(swap.victims) if swap else 0,
    }
    if top:
        found["top"] = hottest(lambda: reconcile(_fresh(empty), NOW), top)
        found["top_tick"] = hottest(lambda: reconcile(_fresh(settled), NOW + 60), top)
        found["top_preempt"] = hottest_on(asking, make_way, top)
    if rows:
        from tests.bench.scheduler.rows import read_rows

        found["rows"] = read_rows(settled)
    return found


def _fresh(world: World) -> World:
    """Another world of the same views: what it has worked out and kept must not count for the next run."""
    return replace(world)


def make_way(board: Board, ledger: Ledger, model: ModelView) -> Eviction | None:
    """What the reconciler does for a model that finds no room: one placement with preemption."""
    placer = Placer(board)
    nowhere = placer.place(model)
    assert not isinstance(nowhere, Placement), "the fleet is not full"
    return make_room(board, placer, ledger, model, NOW)


def timed_on(world: World, work: Callable[[Board, Ledger, ModelView], Any]) -> tuple[Any, dict[str, float]]:
    """One decision on a board that stands already, for the last model."""
    board = Board(_fresh(world))
    ledger, model = Ledger(board), world.models[-1]
    return timed(lambda: work(board, ledger, model))


def hottest_on(world: World, work: Callable[[Board, Ledger, ModelView], Any], count: int) -> list[dict[str, Any]]:
    board = Board(_fresh(world))
    ledger, model = Ledger(board), world.models[-1]
    return hottest(lambda: work(board, ledger, model), count)


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What it returns, and the CPU and wall seconds of the fastest of some runs."""
    best = {"cpu": float("inf"), "wall": float("inf")}
    made = None
    for _ in range(RUNS):
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        made = work()
        best = {
            "cpu": min(best["cpu"], time.process_time() - cpu),
            "wall": min(best["wall"], time.perf_counter() - wall),
        }
    return made, best


def hottest(work: Callable[[], Any], count: int) -> list[dict[str, Any]]:
    """The functions that cost most by themselves; a profiler makes all of them slower, small ones most."""
    profile = cProfile.Profile()
    profile.runcall(work)
    stats = pstats.Stats(profile)
    whole = sum(item[2] for item in stats.stats.values())  # type: ignore[attr-defined]
    ordered = sorted(stats.stats.items(), key=lambda item: -item[1][2])  # type: ignore[attr-defined]
    return [
        {"function": _where(key), "calls": calls, "share": own / whole if whole else 0.0}
        for key, (_, calls, own, _, _) in ordered[:count]
    ]


def _where(key: tuple[str, int, str]) -> str:
    path, line, name = key
    return name if path == "~" else f"{Path(path).parent.name}/{Path(path).name}:{line} {name}"


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"{'nodes':>7} {'cards':>7} {'foreign':>8} {'replicas':>9} {'place':>8} {'tick':>8} {'full tick':>10} {'preempt':>9} {'rows':>8}"
    ]
    for row in rows:
        reading = f"{row['rows']['wall']:.3f}" if "rows" in row else "-"
        lines.append(
            f"{row['nodes']:>7} {row['cards']:>7} {row['foreign']:>8} {row['started']:>9} {row['place']['cpu']:>8.3f} "
            f"{row['tick']['cpu']:>8.3f} {row['full_tick']['cpu']:>10.3f} {row['preempt']['cpu']:>9.3f} {reading:>8}"
        )
    lines.append("CPU seconds of the decision alone; rows: wall seconds to read such a fleet from the database")
    told = ", ".join(f"{name} {item['cpu']:.3f}" for name, item in rows[-1]["preempt_cases"].items())
    lines.append(f"preempt: the dearest of replicas that are {told}")
    for key, what in (("top", "placing"), ("top_tick", "a tick with nothing to do"), ("top_preempt", "preemption")):
        if key in rows[-1]:
            lines.append(f"\nwhat {what} costs on {rows[-1]['nodes']} nodes, by the functions' own time")
            lines += [f"  {item['share']:>6.1%} {item['calls']:>9} {item['function']}" for item in rows[-1][key]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
