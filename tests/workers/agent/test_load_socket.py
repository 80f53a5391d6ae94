"""The gateway's lines: read, bounded, and forgotten when its connection ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.wire import Load
from workers.agent.load_socket import LoadSocket


class Heard:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.loads: list[Load] = []
        self.gone = asyncio.Event()
        self.news = asyncio.Event()
        self.socket = LoadSocket(path, heard=self.take, gone=self.gone.set)

    def take(self, load: Load) -> None:
        self.loads.append(load)
        self.news.set()


@pytest.fixture
async def heard(tmp_path: Path) -> AsyncIterator[Heard]:
    found = Heard(tmp_path / "agent.sock")
    (tmp_path / "agent.sock").touch()  # what a killed agent leaves
    await found.socket.start()
    yield found
    await found.socket.stop()
    assert not found.path.exists()


async def test_lines_are_heard_and_the_socket_is_private(heard: Heard) -> None:
    assert heard.path.stat().st_mode & 0o777 == 0o600
    _, writer = await asyncio.open_unix_connection(heard.path)
    writer.write(b'{"replicas": {"rep_1": {"in_flight": 2}}, "suspects": ["rep_2"], "v": 1}\n')
    async with asyncio.timeout(60):
        await heard.news.wait()
    assert heard.loads[0].replicas["rep_1"].in_flight == 2
    assert heard.loads[0].suspects == ("rep_2",)
    writer.close()
    async with asyncio.timeout(60):
        await heard.gone.wait()


async def test_nonsense_is_skipped_and_the_connection_lives(heard: Heard) -> None:
    _, writer = await asyncio.open_unix_connection(heard.path)
    writer.write(b'nonsense\n[]\n{"replicas": 3}\n{"replicas": {}}\n')
    async with asyncio.timeout(60):
        await heard.news.wait()
    assert heard.loads == [Load()]
    assert not heard.gone.is_set()
    writer.close()


async def test_a_line_without_an_end_costs_its_connection_only(heard: Heard) -> None:
    reader, writer = await asyncio.open_unix_connection(heard.path)
    writer.write(b"x" * (3 << 20))
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionResetError):  # how the end looks depends on what was still unread
            assert await reader.read() == b""
        await heard.gone.wait()
    writer.close()
    _, again = await asyncio.open_unix_connection(heard.path)
    again.write(b"{}\n")
    async with asyncio.timeout(60):
        await heard.news.wait()
    again.close()


async def test_one_of_two_connections_ending_is_no_gateway_gone(heard: Heard) -> None:
    _, first = await asyncio.open_unix_connection(heard.path)
    _, second = await asyncio.open_unix_connection(heard.path)
    for writer in (first, second):
        heard.news.clear()
        writer.write(b"{}\n")
        async with asyncio.timeout(60):
            await heard.news.wait()
    first.close()
    heard.news.clear()
    second.write(b"{}\n")
    async with asyncio.timeout(60):
        await heard.news.wait()
    assert not heard.gone.is_set()
    second.close()
