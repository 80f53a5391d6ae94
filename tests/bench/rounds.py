"""The measurements of one run over all contenders, interleaved so that the machine's moods meet all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bench import load
from tests.bench.contenders import BenchError, Contender
from tests.bench.load import Aim, Tally
from tests.bench.measure import cpu_seconds, pss_mib, tree


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured. Latency samples of all runs together are `runs * latency_seconds * latency_rate`."""

    runs: int = 3
    rate: float = 500.0
    rate_seconds: float = 5.0
    latency_rate: float = 50.0
    latency_seconds: float = 20.0
    saturate_seconds: float = 4.0
    chunks: int = 200
    rounds_32: int = 4


QUICK = Plan(runs=1, rate_seconds=1.0, latency_seconds=2.0, saturate_seconds=1.0, chunks=40, rounds_32=1)


@dataclass
class Run:
    """Results of one contender in one run; None where there is nothing between load and stub."""

    request_us: float | None = None
    chunk_32_us: float | None = None
    chunk_200_us: float | None = None
    per_second: float = 0.0
    pss_mib: float | None = None
    latencies: list[float] = field(default_factory=list)


async def measure(contender: Contender, plan: Plan, say: Callable[[str], None]) -> Run:
    """One run of one contender. Raises BenchError where an answer was wrong."""
    run = Run()
    aim = contender.aim
    _check(await load.paced(aim, rate=200, seconds=0.5, connections=64), contender)  # warm
    pids = tree(contender.pid) if contender.pid is not None else []
    gc.disable()  # the load generator's own pauses are no part of anybody's latency

    before = cpu_seconds(pids)
    tally = _check(await load.paced(aim, rate=plan.rate, seconds=plan.rate_seconds, connections=64), contender)
    run.request_us = _each(cpu_seconds(pids) - before, tally.answers, pids)

    run.chunk_32_us = await _streams(
        aim, contender, pids, count=32, pause_ms=5, rounds=plan.rounds_32, chunks=plan.chunks
    )
    run.chunk_200_us = await _streams(aim, contender, pids, count=200, pause_ms=20, rounds=1, chunks=plan.chunks)

    tally = await load.paced(aim, rate=plan.latency_rate, seconds=plan.latency_seconds, connections=8)
    run.latencies = _check(tally, contender).latencies

    tally, took = await load.saturate(aim, seconds=plan.saturate_seconds, connections=64)
    run.per_second = _check(tally, contender).answers / took
    run.pss_mib = pss_mib(pids) if pids else None
    gc.enable()
    gc.collect()
    say(f"  {contender.name:7} " + _line(run))
    return run


async def _streams(
    aim: Aim, contender: Contender, pids: list[int], *, count: int, pause_ms: int, rounds: int, chunks: int
) -> float | None:
    before = cpu_seconds(pids)
    events = 0
    for _ in range(rounds):
        tally = _check(await load.streams(aim, count=count, chunks=chunks, pause_ms=pause_ms), contender)
        if tally.events < count * chunks:
            raise BenchError(f"{contender.name} lost events: {tally.events} of {count * chunks} came")
        events += count * chunks
    return _each(cpu_seconds(pids) - before, events, pids)


def _each(seconds: float, count: int, pids: list[int]) -> float | None:
    return seconds / count * 1e6 if pids else None


def _check(tally: Tally, contender: Contender) -> Tally:
    if tally.errors:
        raise BenchError(f"{contender.name}: {len(tally.errors)} errors, the first: {tally.errors[0]}")
    return tally


def _line(run: Run) -> str:
    shown = [f"{run.per_second:8.0f} req/s"]
    for value, unit in (
        (run.request_us, "µs/request"),
        (run.chunk_32_us, "µs/chunk@32"),
        (run.chunk_200_us, "µs/chunk@200"),
    ):
        if value is not None:
            shown.append(f"{value:6.1f} {unit}")
    return "  ".join(shown)
