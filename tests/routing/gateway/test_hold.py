"""A request that comes while a dead engine is being started again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cluster.wire import StartingReplica
from routing.gateway import dispatch
from tests.routing.gateway.rig import TINY, local_engine, rig, until

DEAD = StartingReplica(replica_id="rep_1", model=TINY, state="starting", code="engine_died", message="signal 9")


async def test_f45_a_request_waits_for_an_engine_that_has_just_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "GRACE", 60.0)
    async with rig(tmp_path) as bench:
        bench.publish((), (DEAD,))
        await until(lambda: not bench.gateway.table.view.replicas)
        asked = asyncio.create_task(bench.chat())
        await until(lambda: bench.gateway.app.active)
        assert not asked.done()
        bench.publish((local_engine("rep_1", TINY, bench.engine.port),))
        assert (await asked).status_code == 200
        await bench.idle()


async def test_an_engine_that_does_not_come_back_is_waited_for_no_longer_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "GRACE", 0.2)
    async with rig(tmp_path) as bench:
        bench.publish((), (DEAD,))
        await until(lambda: not bench.gateway.table.view.replicas)
        answer = await bench.chat()
        assert (answer.status_code, answer.json()["error"]["reason"]) == (503, "engine_died")
