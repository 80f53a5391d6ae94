"""The agent's loop with an engine that misbehaves: slow, stuck, deaf, noisy. The real engine cannot be made to."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.domain.engine_command import Command
from cluster.wire import CardReport, EngineBuild, Serve, Wanted, WantedReplica, Weights
from llmgw_site.lib import files
from llmgw_site.lib.config import load
from tests.processes import alive
from tests.workers.agent.node import stop_engines
from workers.agent import engines_file, process
from workers.agent.engines.llama_cpp import LlamaCpp
from workers.agent.events import InferenceSwitched, WantedArrived
from workers.agent.loop import Agent
from workers.agent.state import Rules

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).resolve().parents[2] / "fakes" / "engine.py"
R = "rep_1"


class FakeEngine(LlamaCpp):
    """tests/fakes/engine.py, looked at as llama.cpp is; a profile's args go to it unvetted."""

    kind = "fake"

    def build(self) -> EngineBuild:
        return EngineBuild(kind=self.kind, version="1")

    def command(self, serve: Serve, *, port: int, threads: int, cards: Sequence[CardReport] = ()) -> Command:
        return Command(argv=(sys.executable, str(PROGRAM), "--port", str(port), *serve.args), env={})


Make = Callable[..., Any]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    agents: list[Agent] = []
    data = tmp_path / "data"

    async def start(*, rules: Rules | None = None, **env: str) -> Agent:
        config = load({"LLMGW_DATA": str(data), **env})
        agent = Agent(config, rules=rules, engines={"fake": FakeEngine()})
        agents.append(agent)
        await agent.start()
        return agent

    yield start
    for agent in agents:
        await agent.stop()
    await asyncio.to_thread(stop_engines, data, grace=0.2)


def want(agent: Agent, *args: str, run: bool = True, generation: int = 1, **more: Any) -> None:
    weights = Weights(path=str(PROGRAM))
    serve = Serve(engine="fake", model="fake", weights=weights, args=args, drain_timeout=0.2, **more)
    agent.handle(WantedArrived(replicas=(WantedReplica(replica_id=R, generation=generation, run=run, serve=serve),)))


def report(agent: Agent) -> Any:
    return next(item for item in agent.machine.reports() if item.replica_id == R)


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    async with asyncio.timeout(seconds):
        while not (found := condition()):
            await asyncio.sleep(0.02)
        return found


async def test_f46_an_engine_that_says_503_while_it_loads_is_waited_for(make: Make) -> None:
    agent = await make()
    want(agent, "--load-for", "2")
    await until(lambda: report(agent).pid)
    pid = report(agent).pid
    await until(lambda: report(agent).state == "ready")
    assert (report(agent).pid, report(agent).attempt) == (pid, 1)
    assert report(agent).ready_at - report(agent).started_at >= 1.5


async def test_f42_one_that_never_gets_ready_fails_at_its_deadline_and_is_tried_again(make: Make) -> None:
    agent = await make()
    want(agent, "--never-ready", start_timeout=1.0)
    await until(lambda: report(agent).code == "start_timeout")
    await until(lambda: report(agent).attempt >= 2 and report(agent).pid)
    want(agent, generation=2)
    await until(lambda: report(agent).state == "ready")
    assert report(agent).code == ""


async def test_one_whose_health_is_fine_but_whose_core_is_stuck_is_never_ready(make: Make) -> None:
    agent = await make()
    want(agent, "--wedged", start_timeout=1.0)
    await until(lambda: report(agent).code == "start_timeout")
    assert agent.machine.engines() == ()


async def test_f40_one_that_ignores_sigterm_is_killed(make: Make) -> None:
    agent = await make(rules=Rules(term_grace=0.3, gateway_grace=0.1))
    want(agent, "--ignore-term")
    await until(lambda: report(agent).state == "ready")
    pid = report(agent).pid
    want(agent, "--ignore-term", run=False)
    await until(lambda: report(agent).state == "stopped")
    assert not alive(pid)


async def test_one_that_dies_at_start_ends_in_backoff_with_its_last_words(make: Make) -> None:
    agent = await make()
    want(agent, "--exit", "7")
    await until(lambda: report(agent).state == "backoff")
    assert report(agent).code == "engine_start_failed"
    assert "exit code 7" in report(agent).message
    assert "ends with 7, as asked" in report(agent).log_tail


async def test_f24_an_engine_that_dies_while_the_disk_is_full_is_missed_all_the_same(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await make()
    want(agent)
    await until(lambda: report(agent).state == "ready")
    pid = report(agent).pid

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_atomic", full)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: report(agent).pid is None)
    monkeypatch.undo()
    await until(lambda: report(agent).state == "ready")
    assert report(agent).pid != pid


async def test_f24_an_agent_starts_and_adopts_although_the_disk_is_full(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await make()
    want(first)
    await until(lambda: report(first).state == "ready")
    pid = report(first).pid
    first.wanted.write(Wanted(server_time=0.0, replicas=(first.machine.replicas[R].wanted,)))
    await first.stop()

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_atomic", full)
    second = await make()
    assert report(second).pid == pid
    monkeypatch.undo()
    await until(lambda: not second._engines_stale)


async def test_one_that_dies_with_a_token_is_started_again(make: Make) -> None:
    agent = await make()
    want(agent, "--crash-after", "2")
    await until(lambda: report(agent).state == "ready")
    engine = agent.machine.engines()[0]
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    body = b'{"max_tokens": 5}'
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {engine.key}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    assert await reader.read() == b""  # it broke off
    writer.close()
    await until(lambda: report(agent).state == "ready" and report(agent).attempt == 2)


async def test_f60_one_whose_core_gets_stuck_while_its_health_is_fine_is_replaced(make: Make) -> None:
    agent = await make(rules=Rules(deep_every=0.3, gateway_grace=0.1))
    want(agent, "--wedge-after", "1")
    await until(lambda: report(agent).state == "ready")
    pid = report(agent).pid
    agent.machine.rules = replace(agent.machine.rules, deep_patience=0.5)  # only now: its first token may take longer
    await until(lambda: report(agent).code == "engine_wedged" or report(agent).attempt == 2)
    await until(lambda: report(agent).state == "ready" and report(agent).pid != pid)
    assert not alive(pid)


async def test_f40_the_next_engine_starts_only_when_the_deaf_one_is_gone(make: Make) -> None:
    agent = await make(rules=Rules(term_grace=0.5, gateway_grace=0.1))
    want(agent, "--ignore-term")
    await until(lambda: report(agent).state == "ready")
    old = report(agent).pid
    want(agent, generation=2)
    while (report(agent).generation, report(agent).state) != (2, "ready"):
        together = [found.pid for found in process.find(agent.config.data)]
        assert len(together) <= 1 or old not in together
        await asyncio.sleep(0.02)
    assert not alive(old)


async def test_f59_a_model_that_is_deleted_while_loaded_leaves_no_process_and_no_word(make: Make) -> None:
    agent = await make(rules=Rules(gateway_grace=0.1, drain_notice=0.1))
    want(agent)
    await until(lambda: report(agent).state == "ready")
    pid = report(agent).pid
    agent.handle(WantedArrived(replicas=()))
    await until(lambda: not agent.machine.reports())
    assert not alive(pid)
    assert agent.machine.engines() == ()
    assert process.find(agent.config.data) == []


async def test_without_the_inference_module_nothing_runs_and_all_comes_back_with_it(make: Make) -> None:
    agent = await make(rules=Rules(gateway_grace=0.1, drain_notice=0.1))
    want(agent)
    await until(lambda: report(agent).state == "ready")
    agent.handle(InferenceSwitched(on=False))
    await until(lambda: report(agent).state == "stopped")
    want(agent)  # the controllers still want it
    assert report(agent).state == "stopped"
    assert process.find(agent.config.data) == []
    agent.handle(InferenceSwitched(on=True))
    await until(lambda: report(agent).state == "ready")


async def test_an_engine_sees_only_the_cards_that_were_chosen_for_it(make: Make) -> None:
    agent = await make()
    want(agent, cards=("GPU-1", "GPU-2"))
    await until(lambda: report(agent).pid)
    assert b"CUDA_VISIBLE_DEVICES=GPU-1,GPU-2" in process.environ_of(report(agent).pid)


async def test_a_noisy_engines_log_stays_bounded(make: Make) -> None:
    agent = await make(LLMGW_ENGINE_LOG_BYTES="100000")
    want(agent, "--noise", "3000000")
    await until(lambda: report(agent).state == "ready")
    path = agent.starter.log_path(R)
    assert path.stat().st_size <= 100_000
    await until(lambda: path.stat().st_size <= 75_000)  # trimmed, so that new lines have room again


async def test_a_full_disk_costs_the_file_not_the_engine(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = await make()
    write, full = engines_file.write, [True]

    def sometimes(*args: Any, **more: Any) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")
        write(*args, **more)

    monkeypatch.setattr(engines_file, "write", sometimes)
    want(agent)
    await until(lambda: report(agent).state == "ready")
    assert b"rep_1" not in agent.config.engines_file.read_bytes()
    full[0] = False
    await until(lambda: b"rep_1" in agent.config.engines_file.read_bytes())


async def test_many_replicas_come_and_go_side_by_side(make: Make) -> None:
    agent = await make(rules=Rules(gateway_grace=0.1))
    serve = Serve(engine="fake", model="fake", weights=Weights(path=str(PROGRAM)), drain_timeout=0.2)
    ids = [f"rep_{number}" for number in range(6)]
    agent.handle(
        WantedArrived(replicas=tuple(WantedReplica(replica_id=i, generation=1, run=True, serve=serve) for i in ids))
    )
    await until(lambda: len(agent.machine.engines()) == 6)
    assert len({engine.port for engine in agent.machine.engines()}) == 6
    assert len({engine.key for engine in agent.machine.engines()}) == 6
    agent.handle(WantedArrived(replicas=()))
    await until(lambda: not agent.machine.replicas)
    assert process.find(agent.config.data) == []
