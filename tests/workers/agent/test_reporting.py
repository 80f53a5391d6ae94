"""Heartbeats that go on whatever happens, certificates that are renewed, an address that is followed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cluster.domain import signing
from cluster.wire import Heartbeat, Load, Wanted, from_dict, to_dict
from llmgw_site.lib.config import load
from tests.routing.gateway.scripted import until
from tests.workers.agent.test_join import Authority
from workers.agent import address, reporting
from workers.agent.clients import Clients
from workers.agent.identity import Identity
from workers.agent.link import Link
from workers.agent.loop import Agent
from workers.agent.modules import Modules
from workers.agent.node_map import NodeMap
from workers.agent.renewal import Renewal
from workers.agent.reporting import Reporter
from workers.agent.sources import NodeCalls
from workers.agent.tls import Tls

IDENTITY = Identity(node_id="node_1", private_key="11" * 32, controller_public_key=signing.public_hex("22" * 32))
OTHER_KEY = Ed25519PrivateKey.generate().private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
KEY = signing.pairwise_key("22" * 32, signing.public_hex("11" * 32))


class Bench:
    """A reporter whose controller is a function."""

    def __init__(self, data: Path, **environ: str) -> None:
        self.beats: list[Heartbeat] = []
        self.raising = 0
        self.heartbeat = 0.05
        self.config = load({"LLMGW_DATA": str(data), **environ})
        self.agent = Agent(self.config)
        transport = httpx.MockTransport(self.answer)
        clients = Clients(httpx.AsyncClient(transport=transport))
        self.link = Link(("http://c",), IDENTITY, boot_id="b", clock=time.time, clients=clients)
        node_map = NodeMap(self.config.map_file, time.time)
        self.reporter = Reporter(
            self.config, self.agent, self.link, node_id="node_1", boot_id="b", node_map=node_map,
            modules=Modules(self.config, joined=False, assigned=None, before=None),
            calls=NodeCalls(IDENTITY, node_map=node_map, tls=Tls(self.config.tls_folder), now=time.time),
        )  # fmt: skip

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.raising:
            self.raising -= 1
            raise ZeroDivisionError("a defect in one beat")
        self.beats.append(from_dict(Heartbeat, orjson.loads(request.content)))
        body = orjson.dumps(to_dict(Wanted(server_time=time.time(), heartbeat=self.heartbeat)))
        signature = signing.sign_answer(KEY, nonce=request.headers[signing.SIGNATURE], status=200, body=body)
        return httpx.Response(200, content=body, headers={signing.SIGNATURE: signature})

    async def until_beats(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.beats) < count:
                await asyncio.sleep(0.01)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(reporting, "LONGEST_PAUSE", 0.2)
    monkeypatch.setattr(reporting, "ADDRESS_EVERY", 0.1)
    monkeypatch.setattr(reporting, "ADDRESS_PATIENCE", 60.0)
    bench = Bench(tmp_path / "data")
    yield bench
    await bench.agent.stop()


async def test_f06_a_heartbeat_that_raises_is_followed_by_the_next(bench: Bench) -> None:
    bench.raising = 3
    bench.agent.background(bench.reporter.run_heartbeats)
    await bench.until_beats(3)
    assert bench.raising == 0


async def test_f24_what_the_gateway_says_of_itself_is_told_at_once_and_gone_with_its_cause(bench: Bench) -> None:
    bench.heartbeat = 300.0  # nothing but news brings the next
    await bench.agent.start()
    bench.agent.background(bench.reporter.run_heartbeats)
    await bench.until_beats(1)

    def told() -> bool:
        return "the spool is full" in bench.beats[-1].problems

    async def says(*problems: str) -> asyncio.StreamWriter:
        _, writer = await asyncio.open_unix_connection(bench.config.agent_socket)
        writer.write(orjson.dumps(to_dict(Load(problems=problems))) + b"\n")
        return writer

    first = await says("the spool is full")
    await until(told, seconds=60)
    first.close()
    await until(lambda: not bench.agent.gateway_problems, seconds=60)  # who has ended says nothing any more
    second = await says("the spool is full")
    await until(told, seconds=60)
    third = await says()
    await until(lambda: not told(), seconds=60)
    assert bench.agent.gateway_problems == ()
    second.close()
    third.close()


async def test_a_heartbeat_that_fails_again_and_again_is_not_hurried_by_news(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "LONGEST_PAUSE", 60.0)
    bench.raising = 100
    bench.agent.background(bench.reporter.run_heartbeats)
    async with asyncio.timeout(60):
        while bench.raising == 100:
            await asyncio.sleep(0.01)
        for _ in range(20):
            bench.agent.report_now.set()
            await asyncio.sleep(0.01)
    assert bench.raising == 99
    bench.raising = 0
    bench.reporter.connected()  # a controller is there again: that does count
    await bench.until_beats(1)


async def test_a_full_disk_is_said_once_and_what_is_wanted_is_done(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.agent.wanted, "write", full)
    bench.agent.background(bench.reporter.run_heartbeats)
    await bench.until_beats(6)
    assert bench.agent.machine.wanted_known
    assert [record.getMessage() for record in caplog.records].count("wanted_not_kept") == 1


async def test_f67_another_address_of_this_machine_is_told_with_the_next_heartbeat(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = ["http://10.0.0.7:8880"]
    found: Any = lambda **asked: now[0]  # noqa: E731
    monkeypatch.setattr(address, "advertised", found)
    bench.agent.background(bench.reporter.run_heartbeats, bench.reporter.run_watch)
    await bench.until_beats(1)
    assert bench.beats[0].address == "http://10.0.0.7:8880"
    now[0] = "http://10.0.0.8:8880"
    async with asyncio.timeout(60):
        while bench.beats[-1].address != "http://10.0.0.8:8880":
            await asyncio.sleep(0.01)


async def test_f06_an_address_that_cannot_be_looked_for_stops_no_heartbeat(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**asked: Any) -> str:
        raise ValueError("a defect")

    monkeypatch.setattr(address, "advertised", broken)
    bench.agent.background(bench.reporter.run_heartbeats)
    await bench.until_beats(2)
    assert bench.beats[-1].address == ""
    assert any("LLMGW_NODE_ADDRESS" in problem for problem in bench.beats[-1].problems)


async def test_what_a_node_is_stands_in_its_first_heartbeat(bench: Bench) -> None:
    bench.agent.background(bench.reporter.run_heartbeats)
    await bench.until_beats(1)
    beat = bench.beats[0]
    assert (beat.node_id, beat.address) == ("node_1", "http://127.0.0.1:8880")
    assert {item.name: item.state for item in beat.modules}["inference"] == "running"
    assert "controller" in beat.roles


async def renewed(folder: Path) -> list[str]:
    """What an agent says to its controllers until it has a certificate."""
    authority, said = Authority(), []

    def answer(request: httpx.Request) -> httpx.Response:
        said.append(request.content.decode())
        csr = orjson.loads(request.content)["csr"]
        body = orjson.dumps({"certificate": authority.certificate(csr), "ca_certificate": authority.pem})
        signature = signing.sign_answer(KEY, nonce=request.headers[signing.SIGNATURE], status=200, body=body)
        return httpx.Response(200, content=body, headers={signing.SIGNATURE: signature})

    tls = Tls(folder)
    clients = Clients(httpx.AsyncClient(transport=httpx.MockTransport(answer)))
    link = Link(("http://c",), IDENTITY, boot_id="b", clock=time.time, clients=clients)
    renewal = asyncio.ensure_future(Renewal(link, tls, removed=lambda: None).run())
    async with asyncio.timeout(60):
        while tls.due(datetime.now(UTC).timestamp()):
            await asyncio.sleep(0.01)
    renewal.cancel()
    return said


async def test_a_missing_certificate_is_asked_for_with_a_key_that_stays_here(tmp_path: Path) -> None:
    said = await renewed(tmp_path)
    assert "PRIVATE" not in "".join(said)
    assert (tmp_path / "node.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["node.key", "node.pem", "ca.pem"])
@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 241, b"-----BEGIN PRIVATE KEY-----\nMIG", OTHER_KEY],
    ids=["empty", "zeros", "torn", "another"],
)
async def test_a_damaged_file_is_set_aside_and_another_asked_for(
    tmp_path: Path, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await renewed(tmp_path)
    whole = {item: (tmp_path / item).read_bytes() for item in ("node.key", "node.pem", "ca.pem")}
    (tmp_path / name).write_bytes(content)
    assert len(await renewed(tmp_path)) == 1
    assert (tmp_path / f"{name}.damaged").read_bytes() == content
    (line,) = [item for item in caplog.records if item.message == "tls_file_set_aside"]
    assert line.f["path"] == str(tmp_path / name)  # type: ignore[attr-defined]
    assert (tmp_path / name).read_bytes() != content
    assert ((tmp_path / "node.key").read_bytes() == whole["node.key"]) is (name != "node.key")
    Tls(tmp_path).context(named=True)  # what is there now is of one piece
