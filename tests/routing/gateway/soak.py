"""One gateway process under many streams, before a stub engine that is another: what it says, and what it keeps in memory.

First streams that come and go, a third of them left in their middle, with a look at the memory each so many; then many at
once. In this order: what the many leave free in the process would hide what the others leak.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.contenders import gateway, stub
from tests.bench.health import Health, watched
from tests.bench.load import Aim, Client, Tally, connect
from tests.bench.measure import rss

PAUSE_MS = 200
"""Between two tokens of a stream among many at once."""
LEFT_AFTER = 2
"""Events, of a stream that would go on for seconds."""
AT_ONCE = 50


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`streams` at once for `seconds`; before them `turnover` one after another, measured each `each`, after `warm`."""

    streams: int
    seconds: float
    turnover: int
    each: int
    warm: int

    @property
    def begin(self) -> float:
        """Seconds over which those at once begin: a thousand at one moment would be another question."""
        return self.seconds / 10

    @property
    def chunks(self) -> int:
        """Tokens of each of those at once: the first goes on while the last begins."""
        return int((self.seconds + self.begin) * 1000 / PAUSE_MS)


@dataclass
class Soak:
    """What was found. Memory in bytes."""

    plan: Plan
    tally: Tally = field(default_factory=Tally)  # of the streams at once
    passing: Tally = field(default_factory=Tally)  # of those that came and went
    left: int = 0  # of these, by the client
    health: Health = field(default_factory=Health)
    rests: list[int] = field(default_factory=list)  # memory after each so many streams that came and went
    before: int = 0  # the memory before the streams at once
    most: int = 0  # and the most of it while they ran
    records: Counter[str] = field(default_factory=Counter)  # outcomes
    ids: Counter[str] = field(default_factory=Counter)  # records of each record id
    log: list[str] = field(default_factory=list)  # warnings and errors

    @property
    def per_stream(self) -> float:
        """Bytes that a stream costs while it runs."""
        return (self.most - self.before) / self.plan.streams

    @property
    def per_thousand(self) -> float:
        """Bytes that a thousand streams leave behind: the slope of a line through all looks (least squares)."""
        count = len(self.rests)
        middle, mean = (count - 1) / 2, sum(self.rests) / count
        over = sum((at - middle) * (value - mean) for at, value in enumerate(self.rests))
        return over / sum((at - middle) ** 2 for at in range(count)) * 1000 / self.plan.each


class _Leaver(Client):
    """A client that goes after so many events of a stream; 0: stays until its end."""

    leave_after = 0

    def data_received(self, data: bytes) -> None:
        seen = self._tally.events
        super().data_received(data)
        if self.leave_after and self._waiting:
            self.leave_after -= min(self._tally.events - seen, self.leave_after)
            if not self.leave_after:
                self._end()
                self.close()


def soak(folder: Path, plan: Plan) -> Soak:
    """Run it; takes about `plan.seconds`, and a second for each 1,000 of the turnover or some more."""
    found = Soak(plan)
    allow_files(2 * plan.streams + 512)
    with stub(os.sched_getaffinity(0)) as port, gateway(folder, port, os.sched_getaffinity(0)) as contender:
        assert contender.pid is not None
        asyncio.run(_run(found, contender.aim, contender.pid))
    for path in folder.glob("usage/*.jsonl"):
        for line in map(json.loads, path.open()):
            if line["op"] == "close":
                found.records[line["record"]["outcome"]] += 1
                found.ids[line["record"]["record_id"]] += 1
    lines = map(json.loads, (folder / "gateway.log").open())
    found.log = [str(line) for line in lines if line["level"] not in ("debug", "info")]
    return found


def allow_files(count: int) -> None:
    """Raise this process's limit on open files, which its children inherit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        assert hard == resource.RLIM_INFINITY or hard >= count, (
            f"this machine allows {hard} open files: raise ulimit -Hn to {count}"
        )
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


async def _run(found: Soak, aim: Aim, pid: int) -> None:
    plan = found.plan
    await _passing(found, aim, plan.warm)
    found.rests.append(rss(pid))
    for _ in range(plan.turnover // plan.each):
        await _passing(found, aim, plan.each)
        found.rests.append(rss(pid))
    found.before = rss(pid)
    with watched(aim.port) as health:
        await _at_once(found, aim, lambda: rss(pid))
    found.health = health


async def _passing(found: Soak, aim: Aim, count: int) -> None:
    """`count` streams, each over a connection of its own; each third is left in its middle."""
    loop = asyncio.get_running_loop()
    short, long = aim.request(chunks=6, pause_ms=1), aim.request(chunks=200, pause_ms=20)
    turns = iter(range(count))

    async def worker() -> None:
        for number in turns:
            over = loop.create_future()
            _, client = await loop.create_connection(lambda: _Leaver(found.passing), aim.host, aim.port)
            client.leave_after = LEFT_AFTER if number % 3 == 0 else 0
            found.left += bool(client.leave_after)
            request = long if client.leave_after else short
            client.ask(request, lambda _, over=over: over.set_result(None))  # type: ignore[arg-type]
            await over
            client.close()

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def _at_once(found: Soak, aim: Aim, memory: Callable[[], int]) -> None:
    """All of them; the memory is looked at while they run."""
    plan, loop = found.plan, asyncio.get_running_loop()
    clients = await connect(aim, plan.streams, found.tally)
    request = aim.request(chunks=plan.chunks, pause_ms=PAUSE_MS)
    over = loop.create_future()
    left = plan.streams

    def done(client: Client) -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set_result(None)

    for client in clients:
        client.ask(request, done)  # type: ignore[arg-type]
        await asyncio.sleep(plan.begin / plan.streams)
    while not over.done():
        found.most = max(found.most, memory())
        await asyncio.wait([over], timeout=0.25)
    for client in clients:
        client.close()
