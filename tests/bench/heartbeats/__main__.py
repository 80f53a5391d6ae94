"""`python -m tests.bench.heartbeats [--nodes N] [--seconds S] [--strict]`: see the package. Runs for about two minutes."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
import psycopg
import uvloop

from tests.bench.heartbeats.controller import Controller, controller
from tests.bench.heartbeats.fleet import Node, Tally
from tests.bench.measure import cpu_seconds, pss_mib, tree

PERIOD, REPLICAS = 30.0, 3
MOST_CORE, MOST_DATABASE_MS = 0.30, 1.0
"""What 1,000 nodes may cost one controller: part of one core, and a heartbeat's milliseconds in the database server.

The server tells sums, so its mean is compared, which lies above the median: a few statements wait for others. The time
that `web` waits for each heartbeat's queries is written beside it; it holds whatever else this machine does meanwhile."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.heartbeats", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2 * PERIOD, help="measured after one period of warming up")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a goal is missed")
    parser.add_argument("--out", type=Path, default=Path("var/bench/heartbeats.json"))
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="llmgw-bench-") as folder,
        controller(Path(folder), nodes=given.nodes, replicas=REPLICAS) as measured,
    ):
        found = uvloop.run(_measure(measured, given.seconds))
    found |= {"nodes": given.nodes, "python": platform.python_version(), "at": time.time()}
    found["met"] = found["core"] < MOST_CORE and found["database_server_ms"]["mean"] < MOST_DATABASE_MS
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    sys.stdout.write(f"{orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()}\nwritten to {given.out}\n")
    return 1 if given.strict and not found["met"] else 0


async def _measure(measured: Controller, seconds: float) -> dict[str, Any]:
    tally, stop = Tally(), asyncio.Event()
    nodes = [Node(enrolled, measured.port, tally) for enrolled in measured.nodes]
    tasks = [asyncio.create_task(node.run(PERIOD, stop)) for node in nodes]
    await asyncio.sleep(PERIOD + 2)  # each has reported once, and holds the map
    warm_up_failed = len(tally.failed)
    tally.clear()
    pids = {name: tree(getattr(measured, name)) for name in ("gateway", "web")}
    statistics_of(measured.database, forget=True)
    before, began = {name: cpu_seconds(each) for name, each in pids.items()}, time.monotonic()
    await asyncio.sleep(seconds)
    spent = {name: cpu_seconds(each) - before[name] for name, each in pids.items()}
    wall = time.monotonic() - began
    count = len(tally.latencies)
    server = statistics_of(measured.database)
    found = {
        "heartbeats": count,
        "per_second": count / wall,
        "failed": len(tally.failed) + warm_up_failed,
        "core": sum(spent.values()) / wall,
        "cpu_ms_per_heartbeat": {name: 1000 * each / count for name, each in spent.items()},
        "database_ms": _spread(tally.database),
        "database_server_ms": {
            "mean": sum(item["ms"] for item in server) / count,
            "statements": [item | {"ms": item["ms"] / count} for item in server[:8]],
        },
        "queries": statistics.median(tally.queries),
        "latency_ms": _spread(tally.latencies),
        "maps_sent": tally.maps,
        "answer_bytes": tally.bytes / count,
        "pss_mib": {name: pss_mib(each) for name, each in pids.items()},
        "load": os.getloadavg()[0],
    }
    if tally.failed:
        found["first_failure"] = tally.failed[0]
    stop.set()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


def statistics_of(database: str, *, forget: bool = False) -> list[dict[str, Any]]:
    """What the server says of its statements since it was asked to forget: calls, and milliseconds of work in all."""
    with psycopg.connect(database, autocommit=True) as link:
        rows = link.execute(
            "SELECT left(regexp_replace(query, '\\s+', ' ', 'g'), 60), calls, total_exec_time + total_plan_time "
            "FROM pg_stat_statements ORDER BY 3 DESC"
        ).fetchall()
        if forget:
            link.execute("SELECT pg_stat_statements_reset()")
    return [{"query": query, "calls": calls, "ms": ms} for query, calls, ms in rows]


def _spread(samples: list[float]) -> dict[str, float]:
    ordered = sorted(1000 * sample for sample in samples)
    return {
        "median": statistics.median(ordered),
        "p95": ordered[len(ordered) * 95 // 100],
        "p99": ordered[len(ordered) * 99 // 100],
    }


if __name__ == "__main__":
    sys.exit(main())
