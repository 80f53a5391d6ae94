"""A node that is taken out of its cluster: what it does until nothing of it is left there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmgw_site.lib.config import load
from workers.agent import __main__ as agent_main
from workers.agent import removed


async def test_files_that_cannot_be_put_aside_on_a_full_disk_are_when_it_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load({"LLMGW_DATA": str(tmp_path)})
    tries: list[str] = []

    def put_aside(config: Any, *, node_id: str) -> Path:
        tries.append(node_id)
        if len(tries) < 3:
            raise OSError(28, "No space left on device")
        return tmp_path

    monkeypatch.setattr(removed, "put_aside", put_aside)
    monkeypatch.setattr(agent_main, "ASIDE_EVERY", 0.0)
    machine = SimpleNamespace(replicas={})
    agent: Any = SimpleNamespace(machine=machine, handle=lambda event: None)
    reporter: Any = SimpleNamespace(removed=asyncio.Event())
    assigned: list[tuple[str, ...]] = []
    modules: Any = SimpleNamespace(assign=assigned.append)
    identity: Any = SimpleNamespace(node_id="node_7")
    reporter.removed.set()
    async with asyncio.timeout(60):
        await agent_main._leave_when_removed(config, identity, agent, reporter, modules, [])
    assert (tries, assigned) == (["node_7"] * 3, [()])
