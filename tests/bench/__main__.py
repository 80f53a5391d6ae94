"""`python -m tests.bench [--quick] [--runs N] [--strict]`: see the package. Runs for about six minutes."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import uvloop

from tests.bench import report
from tests.bench.contenders import BenchError, Contender, direct, gateway, nginx, stub
from tests.bench.rounds import QUICK, Plan, Run, measure


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--runs", type=int, help="runs of each contender; medians are shown (default 3)")
    parser.add_argument("--quick", action="store_true", help="one short run: does it work, not how fast")
    parser.add_argument("--only", help="contenders, comma-separated, for work on one of them; writes no report")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a goal is missed")
    parser.add_argument("--out", type=Path, default=Path("var/bench/gateway.json"))
    given = parser.parse_args()
    plan = QUICK if given.quick else Plan()
    if given.runs:
        plan = replace(plan, runs=given.runs)
    try:
        return _bench(plan, given)
    except BenchError as error:
        say(f"bench: {error}")
        return 2


def _bench(plan: Plan, given: argparse.Namespace) -> int:
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = {cores[0]}, {cores[-1]}  # load and stub on one core, the contender alone on another
    if ours == theirs:
        say("bench: one core only: load and contender share it, so latencies and requests/s mean little")
    os.sched_setaffinity(0, ours)
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as folder, ExitStack() as stack:
        port = stack.enter_context(stub(ours))
        (Path(folder) / "nginx").mkdir()
        contenders = [
            direct(port),
            stack.enter_context(nginx(Path(folder) / "nginx", port, theirs)),
            stack.enter_context(gateway(Path(folder) / "llmgw", port, theirs)),
        ]
        if given.only:
            contenders = [one for one in contenders if one.name in given.only.split(",")]
        runs = uvloop.run(_run(contenders, plan))
        stack.close()
    if given.only:
        return 0
    rows = {name: report.row(name, each) for name, each in runs.items()}
    report.write(given.out, rows, runs, plan)
    say(f"\n{report.table(rows)}\n\nwritten to {given.out}")
    return 1 if given.strict and not all(goal["met"] for goal in report.goals(rows)) else 0


async def _run(contenders: list[Contender], plan: Plan) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {one.name: [] for one in contenders}
    for number in range(plan.runs):
        say(f"run {number + 1} of {plan.runs}")
        for one in contenders:
            runs[one.name].append(await measure(one, plan, say))
            await asyncio.sleep(0.2)
    return runs


if __name__ == "__main__":
    sys.exit(main())
