"""`python -m tests.bench.usage [--days N] [--database sqlite|postgresql ...] [--strict]`: see the package. Runs for some minutes."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import orjson

from tests import postgres

DATABASES = ("sqlite", "postgresql")
MOST_MS = 2_000.0
"""That any report or page may take at the end of a year."""


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.usage", description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--database", choices=DATABASES, nargs="+", default=list(DATABASES))
    parser.add_argument("--strict", action="store_true", help="exit with 1 where the goal is missed")
    parser.add_argument("--out", type=Path, default=Path("var/bench/usage.json"))
    given = parser.parse_args(args)
    rows = [measured(name, days=given.days) for name in given.database]
    found = {
        "python": platform.python_version(),
        "at": time.time(),
        "days": given.days,
        "most_ms": MOST_MS,
        "databases": rows,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    sys.stdout.write(f"{table(rows)}\nwritten to {given.out}\n")
    slow = [f"{row['database']}: {name}" for row in rows for name, took in row["reports_ms"].items() if took > MOST_MS]
    if slow:
        sys.stdout.write(f"over {MOST_MS:g} ms: {', '.join(slow)}\n")
    return 1 if given.strict and slow else 0


def measured(database: str, **size: int) -> dict[str, Any]:
    """In a process with a database of its own; PostgreSQL waits for the disk as a server of production does."""
    sys.stderr.write(f"{database} ...\n")
    with postgres.server(durable=True) if database == "postgresql" else nullcontext() as url:
        told = {**os.environ, "DATABASE_URL": url or ""}
        argv = [sys.executable, "-m", "tests.bench.usage.one", orjson.dumps(size).decode()]
        done = subprocess.run(argv, env=told, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = orjson.loads(done.stdout)
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown, a database a column."""
    lines = [["", *(row["database"] for row in rows)], ["---"] * (len(rows) + 1)]
    for name in rows[0]["rows"]:
        lines.append([f"rows of {name}", *(f"{row['rows'][name]:,}" for row in rows)])
    for name in rows[0]["reports_ms"]:
        lines.append([name, *(f"{row['reports_ms'][name]:,.0f} ms" for row in rows)])
    lines.append(["a look at all budgets", *(f"{row['budgets_ms']:,.0f} ms" for row in rows)])
    lines.append(["records stored", *(f"{row['records_per_s']:,.0f} a second" for row in rows)])
    lines.append(["the sums of 10,000 records", *(f"{row['sums_ms_per_10000']:,.0f} ms" for row in rows)])
    lines.append(["records deleted", *(f"{row['deleted_per_s']:,.0f} a second" for row in rows)])
    lines.append(["longest batch of these", *(f"{row['delete_batch_ms']['most']:,.0f} ms" for row in rows)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
