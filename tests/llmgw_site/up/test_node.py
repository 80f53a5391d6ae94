"""What `llmgw up` runs on a joined node, and how web and worker follow its controller module."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.domain.modules import ModuleReport, ModulesFile
from cluster.wire import to_dict
from llmgw_site.lib.config import Config, load
from llmgw_site.up import main, supervisor
from llmgw_site.up.node import NodeSupervisor, block, identity_of
from llmgw_site.up.terminal import Terminal
from workers.agent import removed

IDENTITY = {
    "node_id": "node_7",
    "joined": True,
    "name": "n2",
    "controllers": ["http://10.0.0.1:8880"],
    "host": "0.0.0.0",
}


class Quiet:
    """A service that is there and does nothing."""

    def __init__(self, name: str, command: list[str], **options: Any) -> None:
        self.name, self.needed = name, options.get("needed", True)
        self.ready = asyncio.Event()
        self.ready.set()
        self.ended = asyncio.Event()

    async def run(self) -> None:
        await self.ended.wait()

    async def stop(self, patience: float) -> None:
        self.ended.set()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    folder = tmp_path / "data"
    for name in ("node", "cluster", "logs"):
        (folder / name).mkdir(parents=True)
    (folder / "node" / "identity.json").write_text(json.dumps(IDENTITY))
    return load({"LLMGW_DATA": str(folder)})


def decide(config: Config, **states: str) -> None:
    found = ModulesFile(modules=tuple(ModuleReport(name=name, state=state) for name, state in states.items()))
    config.modules_file.write_text(json.dumps(to_dict(found)))


def test_only_a_folder_that_joined_starts_as_a_node(config: Config) -> None:
    assert identity_of(config) == IDENTITY
    (config.node_file).write_text(json.dumps({**IDENTITY, "joined": False}))
    assert identity_of(config) is None


async def test_web_and_worker_follow_the_controller_module(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "Service", Quiet)
    monkeypatch.setattr(supervisor, "MODULES_EVERY", 0.01)
    out = io.StringIO()
    node = NodeSupervisor(config, Terminal(out), keep_engines=False)
    decide(config, inference="running")
    work = asyncio.ensure_future(node._start())

    async def until(*names: str) -> None:
        async with asyncio.timeout(60):
            while set(node._services) != set(names):
                await asyncio.sleep(0.01)

    await until("gateway", "agent")
    decide(config, inference="running", controller="running")
    await until("gateway", "agent", "web", "worker")
    assert not node._services["web"].needed  # type: ignore[attr-defined]
    config.modules_file.unlink()
    await asyncio.sleep(0.1)
    await until("gateway", "agent", "web", "worker")
    decide(config, inference="running", controller="stopped")
    await until("gateway", "agent")
    await work
    for task in node._tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*node._tasks)
    assert "node_7" in out.getvalue()


async def test_a_node_that_is_taken_out_ends_and_says_how_to_come_back(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "Service", Quiet)
    monkeypatch.setattr(supervisor, "MODULES_EVERY", 0.01)
    out = io.StringIO()
    running = asyncio.ensure_future(NodeSupervisor(config, Terminal(out), keep_engines=False).run())
    async with asyncio.timeout(60):
        while "node_7" not in out.getvalue():
            await asyncio.sleep(0.01)
    removed.put_aside(config, node_id="node_7")
    async with asyncio.timeout(60):
        assert await running == 1
    assert "llmgw node join TOKEN" in out.getvalue()


async def test_a_controller_module_that_goes_during_the_start_leaves_the_rest_ready(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    first = supervisor.Supervisor(config, Terminal(out), keep_engines=False)
    services: dict[str, Any] = {name: Quiet(name, []) for name in ("web", "worker", "agent")}
    services["web"].ready.clear()
    monkeypatch.setattr(first, "_services", services)
    secrets = dict.fromkeys(("admin_user", "admin_password", "admin_token", "api_key"), "s")
    start = asyncio.ensure_future(first._announce(secrets))
    async with asyncio.timeout(60):
        while "waiting: web" not in out.getvalue():
            await asyncio.sleep(0.01)
        for name in supervisor.CONTROLLER:
            del services[name]
        await start
    assert "llmgw is ready" in out.getvalue()


def test_an_identity_that_cannot_be_read_is_said_in_a_sentence(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    config.node_file.unlink()
    config.node_file.mkdir()
    assert main.run(config) == 1
    assert str(config.node_file) in capsys.readouterr().err


def test_the_block_names_node_controllers_modules_and_what_is_missing(config: Config) -> None:
    decided = ModulesFile(
        modules=(
            ModuleReport(name="controller", state="unavailable", code="store_not_shared"),
            ModuleReport(name="edge", state="stopped"),
            ModuleReport(name="inference"),
        )
    )
    text = block(config, IDENTITY, decided)
    assert "n2 (node_7)" in text
    assert "http://10.0.0.1:8880" in text
    assert "modules      inference\n" in text
    assert "controller (store_not_shared)" in text


def test_a_removed_node_does_not_start_a_cluster_of_its_own(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    config.node_file.unlink()
    (config.data / "node" / "removed.json").write_text('{"node_id": "node_7"}')
    assert main.run(config) == 1
    assert "llmgw node join" in capsys.readouterr().err
