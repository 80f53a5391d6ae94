"""Medians, ratios to nginx, the goals, the table, and the JSON file."""

from __future__ import annotations

import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.bench.rounds import Plan, Run

GOALS = {"request_us": 4.5, "chunk_32_us": 2.0, "chunk_200_us": 2.0}
"""Most that llmgw may cost, as a multiple of nginx (docs/decisions, "data path budget")."""
GOAL_ADDED_MS = 1.0
"""Most that llmgw may add to the median latency over what nginx adds, in milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Medians of one contender over its runs; latencies are of all samples together."""

    name: str
    request_us: float | None
    chunk_32_us: float | None
    chunk_200_us: float | None
    p50_ms: float
    p99_ms: float
    samples: int
    per_second: float
    pss_mib: float | None


def row(name: str, runs: list[Run]) -> Row:
    samples = sorted(sample for run in runs for sample in run.latencies)
    return Row(
        name=name,
        request_us=_median([run.request_us for run in runs]),
        chunk_32_us=_median([run.chunk_32_us for run in runs]),
        chunk_200_us=_median([run.chunk_200_us for run in runs]),
        p50_ms=samples[len(samples) // 2] * 1000,
        p99_ms=samples[len(samples) * 99 // 100] * 1000,
        samples=len(samples),
        per_second=statistics.median(run.per_second for run in runs),
        pss_mib=_median([run.pss_mib for run in runs]),
    )


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def goals(rows: dict[str, Row]) -> list[dict[str, Any]]:
    """Each goal with its figure and whether it is met."""
    ours, floor = rows["llmgw"], rows["nginx"]
    out: list[dict[str, Any]] = []
    for name, most in GOALS.items():
        ratio = getattr(ours, name) / getattr(floor, name)
        out.append({"goal": f"{name} / nginx", "figure": round(ratio, 2), "most": most, "met": ratio <= most})
    added = ours.p50_ms - floor.p50_ms
    out.append(
        {"goal": "p50 over nginx, ms", "figure": round(added, 3), "most": GOAL_ADDED_MS, "met": added <= GOAL_ADDED_MS}
    )
    return out


def table(rows: dict[str, Row]) -> str:
    """For people."""
    direct, floor = rows["direct"], rows["nginx"]
    heads = (
        "",
        "µs/request",
        "× nginx",
        "µs/chunk @32",
        "× nginx",
        "µs/chunk @200",
        "× nginx",
        "added p50 ms",
        "added p99 ms",
        "req/s",
        "PSS MiB",
    )
    lines = [heads]
    for item in rows.values():
        cells = [item.name]
        for name in GOALS:
            value, base = getattr(item, name), getattr(floor, name)
            cells += [f"{value:.1f}", f"{value / base:.2f}"] if value is not None else ["-", "-"]
        cells += [f"{item.p50_ms - direct.p50_ms:.3f}", f"{item.p99_ms - direct.p99_ms:.3f}"]
        cells += [f"{item.per_second:.0f}", f"{item.pss_mib:.1f}" if item.pss_mib is not None else "-"]
        lines.append(tuple(cells))
    widths = [max(len(line[n]) for line in lines) for n in range(len(heads))]
    shown = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    shown += ["", f"direct: p50 {direct.p50_ms:.3f} ms, p99 {direct.p99_ms:.3f} ms, {direct.samples} samples each", ""]
    for goal in goals(rows):
        shown.append(
            f"{'met   ' if goal['met'] else 'MISSED'}  {goal['goal']}: {goal['figure']} (at most {goal['most']})"
        )
    return "\n".join(shown)


def write(path: Path, rows: dict[str, Row], runs: dict[str, list[Run]], plan: Plan) -> None:
    """Everything, for machines; the latency samples themselves are left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    each = {
        name: [{k: v for k, v in asdict(run).items() if k != "latencies"} for run in all_]
        for name, all_ in runs.items()
    }
    report = {
        "at": time.time(),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()},
        "plan": asdict(plan),
        "medians": {name: asdict(item) for name, item in rows.items()},
        "goals": goals(rows),
        "runs": each,
    }
    path.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))
