"""Load reports to the agent's socket: each second, at once when it matters, whoever comes and goes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.wire import Load, from_dict
from routing.gateway import load
from tests.routing.gateway.hops import closed_port
from tests.routing.gateway.rig import TINY, Rig, local_engine, rig, until


class Agent:
    """Listens as the agent does and keeps what it hears."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heard: list[Load] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while line := await reader.readline():
            self.heard.append(from_dict(Load, json.loads(line)))

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._hear, str(self.path))
        try:
            yield
        finally:
            server.close()
            for writer in self._writers:
                writer.close()
            self.path.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "PERIOD", 0.05)


async def nothing_for_its_time(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the agent hears only what is told at once."""
    monkeypatch.setattr(load, "PERIOD", 3600.0)
    count = len(agent.heard)
    await until(lambda: len(agent.heard) > count)


async def test_the_agent_hears_what_is_in_flight(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        agent = Agent(gw.config.agent_socket)
        async with agent.listening():
            asked = asyncio.ensure_future(gw.chat({"held": True}))
            await until(lambda: agent.heard and agent.heard[-1].replicas["rep_1"].in_flight == 1)
            assert set(agent.heard[-1].replicas) == {"rep_1", "rep_2", "rep_3"}
            gw.engine.release.set()
            await asked
            await until(lambda: agent.heard[-1].replicas["rep_1"].in_flight == 0)
            assert agent.heard[-1].replicas["rep_1"].last_used_at
            assert agent.heard[-1].replicas["rep_2"].last_used_at is None


async def test_a_drained_replica_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as gw:
        agent = Agent(gw.config.agent_socket)
        async with agent.listening():
            await until(lambda: agent.heard)
            asked = asyncio.ensure_future(gw.chat({"held": True}))
            await until(lambda: gw.gateway.flights.counts)
            await nothing_for_its_time(agent, monkeypatch)
            gw.publish((local_engine("rep_1", TINY, gw.engine.port, state="draining"),))
            await until(lambda: set(agent.heard[-1].replicas) == {"rep_1"})  # how much there is left
            assert agent.heard[-1].replicas["rep_1"].in_flight == 1
            gw.engine.release.set()
            await asked
            assert (await gw.record()).outcome == "ok"
            await until(lambda: agent.heard[-1].replicas["rep_1"].in_flight == 0)


async def test_a_suspect_is_told_at_once_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.0)
    async with rig(tmp_path) as gw:
        gw.publish((local_engine("rep_1", TINY, closed_port()), local_engine("rep_1b", TINY, gw.engine.port)))
        gw.gateway.table.look()
        agent = Agent(gw.config.agent_socket)
        async with agent.listening():
            await until(lambda: agent.heard)
            await nothing_for_its_time(agent, monkeypatch)
            assert (await gw.chat()).status_code == 200
            await until(lambda: agent.heard[-1].suspects == ("rep_1",))
            monkeypatch.setattr(load, "PERIOD", 0.05)
            gw.gateway.flights.urgent.set()
            count = len(agent.heard)
            await until(lambda: len(agent.heard) > count + 1)
            assert {told.suspects for told in agent.heard[count:]} == {()}


async def _hears(gw: Rig, agent: Agent) -> None:
    async with agent.listening():
        await until(lambda: agent.heard)


async def test_an_agent_that_comes_back_is_found_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        for _ in range(2):
            agent = Agent(gw.config.agent_socket)
            await _hears(gw, agent)
            assert agent.heard
