"""So many simulated nodes: each signs a heartbeat every period, over a connection of its own, and checks the answer.

What they say is what an agent says of a node with three busy replicas: two of the three have new load figures each time.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

import orjson

from cluster.domain import signing
from cluster.wire import EngineBuild, Hardware, Heartbeat, ReplicaReport, to_dict
from llmgw_site.lib.units import GIB
from tests.bench.heartbeats.controller import MODULES, Enrolled
from tests.bench.heartbeats.timing import HEADER

PATH = "/api/v1/agent/heartbeat"
BUSY = 2
"""Replicas of a node whose load figures change between two heartbeats."""


@dataclass
class Tally:
    """What came of the heartbeats since the last `clear`."""

    latencies: list[float] = field(default_factory=list)  # seconds
    database: list[float] = field(default_factory=list)  # seconds of each call's queries
    queries: list[int] = field(default_factory=list)
    maps: int = 0
    bytes: int = 0
    failed: list[str] = field(default_factory=list)

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]


class Node:
    """One node: knows its map's version, its snapshot's, and its counter."""

    def __init__(self, me: Enrolled, port: int, tally: Tally) -> None:
        self._me, self._port, self._tally = me, port, tally
        self._counter = 0
        self._map = self._snapshot = ""
        self._started = time.time()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, period: float, until: asyncio.Event) -> None:
        """Heartbeats from a random moment of the period on, until told to stop."""
        due = time.monotonic() + random.random() * period
        while not until.is_set():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if until.is_set():
                break
            try:
                await self._beat()
            except (OSError, asyncio.IncompleteReadError, ValueError, LookupError) as error:
                self._tally.failed.append(repr(error))
                self._streams = None
            due += period
        if self._streams is not None:
            self._streams[1].close()

    async def _beat(self) -> None:
        body = orjson.dumps(to_dict(self._message()))
        self._counter += 1
        signed = signing.sign(
            self._me.key, method="POST", path=PATH, node=self._me.node_id, now=time.time(), boot="bench",
            counter=self._counter, body=body,
        )  # fmt: skip
        head = f"POST {PATH} HTTP/1.1\r\nhost: c\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        began = time.perf_counter()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        writer.write(head.encode() + b"\r\n" + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        answer = await reader.readexactly(int(headers["content-length"]))
        self._tally.latencies.append(time.perf_counter() - began)
        self._read(int(lines[0].split()[1]), headers, answer, signed[signing.SIGNATURE])

    def _read(self, status: int, headers: dict[str, str], answer: bytes, nonce: str) -> None:
        proof = headers.get(signing.SIGNATURE, "")
        if status != 200 or not signing.verify_answer(self._me.key, proof, nonce=nonce, status=status, body=answer):
            self._tally.failed.append(f"{status} {answer[:200]!r}")
            return
        wanted = orjson.loads(answer)
        if len(wanted["replicas"]) != len(self._me.replicas):
            self._tally.failed.append(f"{len(wanted['replicas'])} replicas are wanted")
        self._map, self._snapshot = wanted["map_version"], wanted["snapshot_version"]
        spent, queries = headers[HEADER].split()
        self._tally.database.append(float(spent))
        self._tally.queries.append(int(queries))
        self._tally.maps += wanted["map"] is not None
        self._tally.bytes += len(answer)

    def _message(self) -> Heartbeat:
        now = time.time()
        return Heartbeat(
            node_id=self._me.node_id,
            boot_id="bench",
            sent_at=now,
            version="0.1.0",
            hardware=Hardware(cores=64, memory_total=512 * GIB, memory_available=300 * GIB, disk_free=900 * GIB, load_1m=random.random()),
            engines=(EngineBuild(kind="llama.cpp", version="b9999"),),
            replicas=tuple(self._replica(number, replica_id, now) for number, replica_id in enumerate(self._me.replicas)),
            snapshot_version=self._snapshot,
            spool_records=0,
            modules=MODULES,
            roles=("inference", "router", "edge", "data"),
            map_version=self._map,
        )  # fmt: skip

    def _replica(self, number: int, replica_id: str, now: float) -> ReplicaReport:
        busy = number < BUSY
        return ReplicaReport(
            replica_id=replica_id,
            generation=1,
            state="ready",
            pid=1000 + number,
            port=40000 + number,
            started_at=self._started,
            ready_at=self._started + 1,
            context=8192,
            slots=4,
            memory=GIB,
            in_flight=random.randrange(1000) if busy else 0,
            last_used_at=now if busy else self._started,
        )
