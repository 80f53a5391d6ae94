"""Requests that wait for room at an engine: their turn, those who leave, a full queue, a turn that does not come."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import generate_latest

from cluster.wire import StartingReplica, to_dict
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.files import write_json
from routing.domain.snapshot import KeyEntry, ModelEntry, ScopeEntry
from routing.gateway import dispatch
from routing.gateway.queues import Queues
from tests.routing.gateway.hops import chain, many
from tests.routing.gateway.rig import KEY, NARROW, TINY, Rig, ask, key_entry, local_engine, rig, snapshot
from tests.routing.gateway.scripted import until

SLOW: dict[str, Any] = {"silent": 0.3}
HELD: dict[str, Any] = {"held": True}
NEVER: dict[str, Any] = {"never": True}


@asynccontextmanager
async def busy(folder: Path, count: int = 2, script: Any = None, **settings: Any) -> AsyncIterator[Rig]:
    """A gateway with one engine of two slots, and so many requests that its engine never answers."""
    async with rig(folder, **settings) as gw:
        held = [asyncio.ensure_future(gw.chat(NEVER if script is None else script)) for _ in range(count)]
        await until(lambda: len(gw.engine.requests) == count)
        yield gw
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await gw.idle()
        await until(lambda: empty(gw.gateway.queues))


def empty(queues: Queues) -> bool:
    return (
        not queues._waits
        and not queues._running
        and not any(line.running or line.waiting for line in queues.lines.values())
    )


def shown(gw: Rig) -> str:
    return generate_latest(gw.gateway.metrics.registry).decode()


def waiting(gw: Rig) -> int:
    return gw.gateway.queues.lines[TINY].waiting


async def test_no_more_run_than_there_is_room_for_and_the_others_have_their_turn(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        asking = [asyncio.ensure_future(gw.chat(HELD)) for _ in range(6)]
        await until(lambda: waiting(gw) == 4 and len(gw.engine.requests) == 2)
        text = shown(gw)
        for line in ('waiting{model="tiny"} 4.0', 'running{model="tiny"} 2.0', 'room{model="tiny"} 2.0'):
            assert f"llmgw_queue_{line}" in text
        told = gw.gateway.flights.report(asyncio.get_running_loop().time()).replicas["rep_1"]
        assert (told.in_flight, told.waiting) == (2, 4)
        await asyncio.sleep(0.1)
        assert (waiting(gw), len(gw.engine.requests)) == (4, 2)
        gw.engine.release.set()
        assert {answer.status_code for answer in await asyncio.gather(*asking)} == {200}
        await gw.idle()
        await until(lambda: len(gw.records()) == 6)
        waits = sorted(record.queue_s or 0.0 for record in gw.records())
        assert waits[2] > 0.09
        assert 'llmgw_queue_wait_seconds_count{model="tiny"} 4.0' in shown(gw)
        assert empty(gw.gateway.queues)


async def test_replicas_run_what_they_were_measured_to_serve_well(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        site = await town.start("one", "edge", "router", "inference", serves=(TINY,))
        placed = town.models[0].placed[0]
        town.change(TINY, placed=(type(placed)(**{**_fields(placed), "concurrency": 1.9}),))
        await town.settle()
        assert site.gateway.queues.lines[TINY].room == 1


def _fields(placed: Any) -> dict[str, Any]:
    return {name: getattr(placed, name) for name in placed.__dataclass_fields__}


async def test_a_full_queue_is_429_and_says_how_many_wait(tmp_path: Path) -> None:
    async with busy(tmp_path, queue_length=1) as gw:
        first = asyncio.ensure_future(gw.chat())
        await until(lambda: waiting(gw) == 1)
        answer = await gw.chat()
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (429, "queue_full")
        assert "2 requests run, of 2 that it serves at a time, and 1 wait, of 1 that may" in error["message"]
        assert int(answer.headers["retry-after"]) >= 1
        assert 'llmgw_queue_refused_total{code="queue_full",model="tiny"} 1.0' in shown(gw)
        first.cancel()
        await until(lambda: waiting(gw) == 0)
        assert len(gw.engine.requests) == 2


async def test_a_turn_that_does_not_come_in_time_is_503_with_the_place(tmp_path: Path) -> None:
    async with busy(tmp_path, queue_wait=0.2) as gw:
        answer = await gw.chat()
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (503, "queue_timeout")
        assert "number 1 of those that wait" in error["message"]
        await until(lambda: len(gw.records()) == 1)
        assert (gw.records()[0].outcome, gw.records()[0].queue_s) == ("refused", None)


async def test_who_streams_is_sent_comments_while_it_waits_and_a_refusal_is_an_event_then(tmp_path: Path) -> None:
    async with busy(tmp_path, keepalive_comment=0.1) as gw:
        text = ""
        async with gw.client.stream("POST", "/v1/chat/completions", json=ask("hi", stream=True)) as answer:
            assert answer.status_code == 200  # so a comment was sent
            gw.publish((local_engine("rep_1", TINY, gw.engine.port, state="draining"),))
            with contextlib.suppress(httpx.RemoteProtocolError):
                async for piece in answer.aiter_text():
                    text += piece
        assert text.startswith(":")
        assert json.loads(text.rpartition("data: ")[2])["error"]["code"] == "model_not_ready"
        assert "[DONE]" not in text


PRODUCT: dict[str, str] = {"authorization": f"Bearer {NARROW.text}"}
KEYS: tuple[KeyEntry, ...] = (
    dataclasses.replace(key_entry(KEY, "batch"), project_id="proj_batch"),
    dataclasses.replace(key_entry(NARROW, "product"), project_id="proj_product"),
)
SCOPES = (
    ScopeEntry(scope_id="proj_batch", kind="project", name="batch", priority_class="opportunistic"),
    ScopeEntry(scope_id="proj_product", kind="project", name="product", parent="team_1"),
    ScopeEntry(scope_id="team_1", kind="team", name="shop", priority_class="critical"),
)
"""KEY is a batch's, NARROW a product's."""


def classed(gw: Rig) -> None:
    """From now on there are these keys and scopes."""
    models = (ModelEntry(name=TINY, created=1, replicas=("rep_1",)),)
    write_json(gw.config.snapshot_file, to_dict(snapshot("e1:2", keys=KEYS, scopes=SCOPES, models=models)))
    assert gw.gateway.table.look()


def told(request: Any) -> str:
    return str(json.loads(request.body)["messages"][0]["content"])


async def test_what_waits_of_a_critical_project_overtakes_what_waits_of_a_batch(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        classed(gw)
        first, second = (asyncio.ensure_future(gw.chat(NEVER)) for _ in range(2))
        await until(lambda: len(gw.engine.requests) == 2)
        held = [asyncio.ensure_future(gw.chat(f"batch {number}")) for number in range(3)]
        await until(lambda: waiting(gw) == 3)
        held.append(asyncio.ensure_future(gw.client.post("/v1/chat/completions", json=ask("product"), headers=PRODUCT)))
        await until(lambda: waiting(gw) == 4)
        first.cancel()
        assert {answer.status_code for answer in await asyncio.gather(*held)} == {200}
        assert told(gw.engine.requests[2]) == "product"
        second.cancel()
        await gw.idle()


async def test_a_critical_project_overtakes_over_two_hops_and_a_clients_own_header_never_counts(tmp_path: Path) -> None:
    async with chain(tmp_path) as (town, edge, _, worker):
        town.keys, town.scopes = KEYS, SCOPES
        await town.settle()
        line = worker.gateway.queues.lines[TINY]
        first, second = (asyncio.ensure_future(edge.chat(NEVER)) for _ in range(2))
        await until(lambda: worker.asked == 2)
        held: list[asyncio.Task[httpx.Response]] = []
        claims = {"x-llmgw-project": "proj_product", "x-llmgw-key": "key_product", "x-llmgw-class": "critical"}
        path = "/v1/chat/completions"
        for number, headers in enumerate(({}, claims, PRODUCT)):
            held.append(asyncio.ensure_future(edge.client.post(path, json=ask(f"number {number}"), headers=headers)))
            await until(lambda number=number: line.waiting == number + 1)  # type: ignore[misc]
        first.cancel()
        assert {answer.status_code for answer in await asyncio.gather(*held)} == {200}
        assert [told(request) for request in worker.engine.requests[2:]] == ["number 2", "number 0", "number 1"]
        second.cancel()
        await town.idle()


async def test_in_a_full_queue_a_critical_request_takes_the_place_of_the_last_of_a_batch(tmp_path: Path) -> None:
    async with rig(tmp_path, queue_length=2, queue_wait=60.0) as gw:
        classed(gw)
        held = [asyncio.ensure_future(gw.chat(NEVER)) for _ in range(2)]
        await until(lambda: len(gw.engine.requests) == 2)
        for count in (1, 2):
            held.append(asyncio.ensure_future(gw.chat()))
            await until(lambda count=count: waiting(gw) == count)  # type: ignore[misc]
        product = asyncio.ensure_future(gw.client.post("/v1/chat/completions", json=ask("hi"), headers=PRODUCT))
        refused = await held[3]
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["displaced_by"]) == (429, "queue_full", "critical")
        assert "one of the class critical took the place of this one, which is opportunistic" in error["message"]
        assert waiting(gw) == 2
        for task in (product, *held):
            task.cancel()
        await asyncio.gather(product, *held, return_exceptions=True)
        await gw.idle()
        await until(lambda: empty(gw.gateway.queues))


async def test_who_waited_in_vain_hears_how_many_of_a_higher_class_were_served_meanwhile(tmp_path: Path) -> None:
    async with rig(tmp_path, queue_wait=3.0) as gw:
        classed(gw)
        held = [asyncio.ensure_future(gw.chat(NEVER)) for _ in range(2)]
        await until(lambda: len(gw.engine.requests) == 2)
        mine = asyncio.ensure_future(gw.chat())
        await until(lambda: waiting(gw) == 1)
        held.append(asyncio.ensure_future(gw.client.post("/v1/chat/completions", json=ask(NEVER), headers=PRODUCT)))
        await until(lambda: waiting(gw) == 2)
        held.pop(0).cancel()
        error = (await mine).json()["error"]
        assert (error["code"], error["overtaken_by"], error["position"]) == ("queue_timeout", 1, 1)
        assert "meanwhile 1 of a higher class than opportunistic, which it is, had their turn" in error["message"]
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await gw.idle()
        await until(lambda: empty(gw.gateway.queues))


async def test_f27_a_client_that_leaves_the_queue_is_dropped_at_once_and_never_sent(tmp_path: Path) -> None:
    async with busy(tmp_path) as gw:
        for stream in (False, True):
            task = asyncio.ensure_future(gw.chat(stream=stream))
            await until(lambda: waiting(gw) == 1)
            task.cancel()
            await until(lambda: waiting(gw) == 0)  # what runs never ends, and its patience is two minutes
        await until(lambda: len(gw.records()) == 2)
        assert {(record.outcome, record.client_gone) for record in gw.records()} == {("client_gone", True)}
        assert len(gw.engine.requests) == 2


async def test_f51_counts_are_zero_after_aborts_failures_and_turns_that_did_not_come(tmp_path: Path) -> None:
    scripts: list[Any] = ["hello", {"reset": True}, {"status": 500}, {"tokens": 3, "gap": 0.02, "die_after": 1}, SLOW]

    async def one(gw: Rig, number: int) -> None:
        task = asyncio.ensure_future(gw.chat(scripts[number % 5], stream=number % 2 == 0))
        if number % 3 == 0:
            await asyncio.sleep(0.01 * (number % 7))
            task.cancel()
        with contextlib.suppress(httpx.HTTPError, asyncio.CancelledError):
            await task

    async with rig(tmp_path, queue_wait=0.4, queue_length=12, max_connections=200) as gw:
        await asyncio.gather(*(one(gw, number) for number in range(60)))
        await gw.idle()
        await until(lambda: empty(gw.gateway.queues))
        assert (await gw.chat()).status_code == 200


async def test_where_the_engine_goes_those_that_wait_look_for_another_place(tmp_path: Path) -> None:
    async with busy(tmp_path) as gw:
        task = asyncio.ensure_future(gw.chat())
        await until(lambda: waiting(gw) == 1)
        gw.publish((local_engine("rep_1", TINY, gw.engine.port, state="draining"),))
        answer = await task
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        assert TINY not in gw.gateway.queues.lines


async def test_the_time_that_one_may_wait_does_not_begin_anew_where_its_engine_goes_and_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "GRACE", 30.0)
    async with busy(tmp_path, queue_wait=0.8) as gw:
        engine, lines = local_engine("rep_1", TINY, gw.engine.port), gw.gateway.queues.lines
        task = asyncio.ensure_future(gw.chat())
        while not task.done():
            await until(lambda: task.done() or (TINY in lines and lines[TINY].waiting))
            await asyncio.sleep(0.1)  # of the 0.8 that it may wait; then the engine dies
            gw.publish(
                (), (StartingReplica(replica_id="rep_1", model=TINY, state="starting", code="engine_died", message=""),)
            )
            await until(lambda: TINY not in lines)
            gw.publish((engine,))
            await until(lambda: TINY in lines)
        assert task.result().json()["error"]["code"] == "queue_timeout"


async def test_the_time_that_one_may_wait_does_not_begin_anew_at_another_node(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        front = await town.start("front", "edge", "router", "inference")
        worker = await town.start("worker", "inference", serves=(TINY,), queue_wait=0.2)
        await town.settle()
        held = [asyncio.ensure_future(front.chat(NEVER)) for _ in range(2)]
        await until(lambda: worker.asked == 2)
        town.serve(front, TINY)
        await town.settle()
        await until(lambda: TINY in front.gateway.queues.lines)
        held += [asyncio.ensure_future(front.chat(NEVER)) for _ in range(2)]
        await until(lambda: front.asked == 2)
        last = asyncio.ensure_future(front.chat())
        await until(lambda: front.gateway.queues.lines[TINY].waiting == 1)
        await asyncio.sleep(2)  # more than it may wait at the worker, to which it goes then
        town.serve(front)
        error = (await last).json()["error"]
        assert error["code"] == "queue_timeout"
        assert [int(seconds) >= 2 for seconds in re.findall(r"waited for ([0-9]+) s", error["message"])] == [True]
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await town.idle()
        assert [empty(site.gateway.queues) for site in (front, worker)] == [True, True]


async def test_another_replica_is_room_for_those_that_wait(tmp_path: Path) -> None:
    async with busy(tmp_path) as gw:
        task = asyncio.ensure_future(gw.chat())
        await until(lambda: waiting(gw) == 1)
        gw.publish(tuple(local_engine(name, TINY, gw.engine.port) for name in ("rep_1", "rep_1b")))
        answer = await task
        assert answer.status_code == 200
        assert (await gw.record()).replica_id == "rep_1b"


async def test_who_has_to_go_at_the_moment_that_its_time_is_over_goes(tmp_path: Path) -> None:
    async with busy(tmp_path, queue_wait=0.5) as gw:
        queues, loop = gw.gateway.queues, asyncio.get_running_loop()
        tasks: list[asyncio.Future[httpx.Response]] = []
        while not queues._waits:  # anew where the machine is so busy that its time was over before this was looked at
            tasks.append(asyncio.ensure_future(gw.chat()))
            await until(lambda: queues._waits or tasks[-1].done())
        (ticket,) = queues._waits
        over = ticket.since + 0.5

        def displace() -> None:
            queues.lines[TINY].leave(ticket)
            queues._decide(ticket, Refused(Kind.LIMITED, "queue_full", "Another took its place."))

        loop.call_at(over - 0.04, time.sleep, 0.1)  # so that the loop comes to both of these at once
        loop.call_at(over - 0.02, displace)
        assert (await tasks[-1]).json()["error"]["code"] == "queue_full"


@pytest.mark.parametrize("state", [{"state": "draining"}, {"leaving": True}, None], ids=["drains", "leaves", "gone"])
async def test_what_runs_at_a_replica_that_goes_takes_no_room_of_the_next(
    tmp_path: Path, state: dict[str, Any] | None
) -> None:
    async with busy(tmp_path) as gw:
        line = gw.gateway.queues.lines[TINY]
        old = [] if state is None else [local_engine("rep_1", TINY, gw.engine.port, **state)]
        gw.publish((*old, local_engine("rep_2", TINY, gw.engine.port)))
        await until(lambda: "rep_2" in gw.gateway.table.view.replicas)
        held = [asyncio.ensure_future(gw.chat(NEVER)) for _ in range(3)]
        await until(lambda: (line.running, line.waiting) == (2, 1))
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await until(lambda: (line.running, line.waiting) == (0, 0))
        assert not gw.gateway.queues._waits


async def test_what_runs_at_a_replica_that_comes_back_takes_its_room(tmp_path: Path) -> None:
    async with busy(tmp_path) as gw:
        gw.publish(())
        await until(lambda: TINY not in gw.gateway.queues.lines)
        gw.publish((local_engine("rep_1", TINY, gw.engine.port),))
        await until(lambda: TINY in gw.gateway.queues.lines)
        task = asyncio.ensure_future(gw.chat(NEVER))
        await until(lambda: waiting(gw) == 1)
        assert (gw.gateway.queues.lines[TINY].running, len(gw.engine.requests)) == (2, 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_counting_tokens_takes_no_room(tmp_path: Path) -> None:
    async with busy(tmp_path) as gw:
        answer = await gw.client.post("/tokenize", json={"model": TINY, "content": "one two"})
        assert answer.status_code == 200, answer.text


async def test_the_wait_at_another_node_is_in_the_record_of_the_edge(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        front = await town.start("front", "edge", "router")
        worker = await town.start("worker", "inference", serves=(TINY,))
        await town.settle()
        asking = [asyncio.ensure_future(front.chat(HELD)) for _ in range(3)]
        await until(lambda: worker.gateway.queues.lines[TINY].waiting == 1)
        await asyncio.sleep(0.1)
        worker.engine.release.set()
        assert {answer.status_code for answer in await asyncio.gather(*asking)} == {200}
        await until(lambda: len(front.records()) == 3)
        assert max(record.queue_s or 0.0 for record in front.records()) > 0.09
        await town.idle()
        assert empty(worker.gateway.queues)
