"""kill -9 in the middle of a fetch from another node: it goes on by itself, and little comes twice.

The other node is a real gateway's node listener that counts what it sends; it sends slowly, so that what was sent was received.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.domain.manifests import Manifest, ManifestFile
from catalog.domain.repository import Format
from catalog.domain.spans import SEGMENT
from catalog.mirror.fetch import CONNECTIONS
from catalog.mirror.parts import Part
from catalog.mirror.store import Store
from cluster.wire import FetchOrder, FetchSource, to_dict
from llmgw_site.lib.units import MIB
from tests.processes import free_port
from tests.routing.gateway.nodes import Cluster, Node
from tests.routing.gateway.stored import VERSION, put
from tests.workers.agent import holders
from workers.agent import fetch_plan
from workers.agent.fetching import Fetching
from workers.agent.identity import Identity
from workers.agent.node_map import NodeMap
from workers.agent.sources import NodeCalls
from workers.agent.tls import Tls

TOP = Path(__file__).resolve().parents[3]
PROGRAM = """
import asyncio, json, sys, time
from pathlib import Path
from cluster.wire import FetchOrder, from_dict
from llmgw_site.lib.config import load
from catalog.mirror.store import Store
from workers.agent import fetch_plan
from workers.agent.fetching import Fetching
from workers.agent.identity import Identity
from workers.agent.node_map import NodeMap
from workers.agent.sources import NodeCalls
from workers.agent.tls import Tls

fetch_plan.FIRST_PAUSE = 0.1
data, order, manifest = sys.argv[1:]

class Controllers:
    async def manifest(self, version):
        return json.loads(Path(manifest).read_text())

async def main():
    config = load({"LLMGW_DATA": data})
    node_map = NodeMap(config.map_file, time.time)
    calls = NodeCalls(Identity.read(config.node_file), node_map=node_map, tls=Tls(config.tls_folder), now=time.time)
    work = Fetching(config, Store(config.store), Controllers(), calls, used=set, data=lambda: False)
    work.order([from_dict(FetchOrder, json.loads(order))])
    running = asyncio.ensure_future(work.run())
    while work.reports():
        await asyncio.sleep(0.02)
    running.cancel()

asyncio.run(main())
"""


def written(path: Path, size: int) -> str:
    """Fill a file with bytes that repeat nowhere; their SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for at in range(0, size, MIB):
            piece = hashlib.shake_128(str(at).encode()).digest(min(MIB, size - at))
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


async def killed(folder: Path, size: int, kills: int, *, between: int, seed: int) -> int:
    """Fetch so many bytes in a process that is killed `kills` times, each after a random part of `between` bytes. Gives the
    bytes that came twice."""
    dice = random.Random(seed)
    async with holders.town(folder) as town:
        holder = await town.hold("a", {"m.gguf": b""})
        target = holder.store / VERSION
        sha256 = await asyncio.to_thread(written, target / "files" / "m.gguf", size)
        files = (ManifestFile(path="m.gguf", size=size, sha256=sha256),)
        manifest = Manifest(id=VERSION, format=Format.GGUF, first="m.gguf", files=files)
        (target / "manifest.json").write_text(json.dumps(manifest.as_dict()))
        holder.pause = 0.002
        order = json.dumps(to_dict(FetchOrder(version=VERSION, sources=(holder.source,))))
        data, environ = town.asker.config.data, {**os.environ, "PYTHONPATH": str(TOP)}
        args = (sys.executable, "-c", PROGRAM, str(data), order, str(target / "manifest.json"))
        for _ in range(kills):
            enough = holder.sent + dice.random() * between
            process = await asyncio.create_subprocess_exec(*args, cwd=TOP, env=environ)
            until = time.monotonic() + 120
            while holder.sent <= enough and process.returncode is None and time.monotonic() < until:
                await asyncio.sleep(0.001)
            assert process.returncode is None, "it was done before it could be killed: take a larger file"
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await holder.idle()
        process = await asyncio.create_subprocess_exec(*args, cwd=TOP, env=environ)
        try:
            assert await asyncio.wait_for(process.wait(), 300) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        store = Store(town.asker.config.store)
        path = store.path(VERSION)
        assert path is not None
        assert await asyncio.to_thread(lambda: hashlib.sha256(path.read_bytes()).hexdigest()) == sha256
        assert sorted(item.name for item in (data / "weights" / VERSION / "files").iterdir()) == ["m.gguf"]
        return holder.sent - size


async def test_f11_a_node_that_is_killed_while_it_fetches_goes_on_by_itself(tmp_path: Path) -> None:
    kills, seed = 2, random.randrange(1 << 30)
    twice = await killed(tmp_path, 50 * 10**6, kills, between=20 * 10**6, seed=seed)
    assert 0 <= twice <= kills * CONNECTIONS * SEGMENT, f"seed {seed}"


@pytest.mark.prove
async def test_f11_twenty_kills_of_a_large_fetch(tmp_path: Path) -> None:
    kills, seed = 20, random.randrange(1 << 30)
    twice = await killed(tmp_path, 500 * 10**6, kills, between=60 * 10**6, seed=seed)
    assert 0 <= twice <= kills * CONNECTIONS * SEGMENT, f"seed {seed}"


class Gateway:
    """The gateway of a node as a process of its own, which may be killed and started again at the same address."""

    def __init__(self, node: Node) -> None:
        config = node.config
        self._environ = {
            **os.environ, "PYTHONPATH": str(TOP), "LLMGW_DATA": str(config.data), "LLMGW_PORT": str(config.port),
            "LLMGW_NODE_PORT": str(config.node_port), "LLMGW_METRICS_PORT": str(config.metrics_port),
        }  # fmt: skip
        self._address = node.address

    async def start(self) -> None:
        program = "from llmgw_site.lib.config import load; from routing.gateway.serve import main; main(load())"
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            env=self._environ,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as client:
                while True:
                    try:
                        await client.get(f"{self._address}/healthz")
                        return
                    except httpx.HTTPError:
                        await asyncio.sleep(0.02)
        except TimeoutError:
            await self.kill()
            raise

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


async def test_a_node_that_gives_weights_is_killed_and_nothing_comes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, dice, lock = 50 * 10**6, random.Random(), threading.Lock()
    came = 0
    original = Part.write

    def slowly(self: Part, data: bytes | memoryview, at: int) -> None:
        nonlocal came
        time.sleep(0.004)  # a slow disk is what is tested: else all would be there before anybody is killed
        original(self, data, at)
        with lock:
            came += len(data)

    monkeypatch.setattr(Part, "write", slowly)
    monkeypatch.setattr(fetch_plan, "FIRST_PAUSE", 0.1)
    town = Cluster(tmp_path)
    asker = town.add("asker", "inference")
    port = free_port()
    giver = town.add(
        "giver", "data", node_port=port, port=free_port(), metrics_port=free_port(), address=f"http://127.0.0.1:{port}"
    )
    manifest = put(giver.config.store, {"m.gguf": await asyncio.to_thread(dice.randbytes, size)})
    town.publish()
    node_map = NodeMap(asker.config.map_file, time.time)
    calls = NodeCalls(
        Identity.read(asker.config.node_file), node_map=node_map, tls=Tls(asker.config.tls_folder), now=time.time
    )

    class Controllers:
        async def manifest(self, version: str) -> Any:
            return manifest.as_dict()

    store = Store(asker.config.store)
    work = Fetching(asker.config, store, Controllers(), calls, used=set, data=lambda: False)
    source = FetchSource(node_id=giver.node_id, address=giver.address)
    work.order([FetchOrder(version=VERSION, sources=(source,))])
    gateway = Gateway(giver)
    await gateway.start()
    task = asyncio.ensure_future(work.run())
    try:
        for _ in range(2):
            enough = min(came + dice.uniform(0.1, 0.4) * size, size)  # a busy machine may look late
            async with asyncio.timeout(60):
                while came < enough:
                    await asyncio.sleep(0.005)
            await gateway.kill()
            await gateway.start()
        async with asyncio.timeout(60):
            while work.reports():
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await gateway.kill()
    assert store.path(VERSION) is not None
    assert came == size
