"""llmgw_site.node_calls: agents' calls on the short way through `web`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import httpx
import orjson
import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection

from cluster.api import agent
from cluster.domain import signing
from cluster.models import ClusterIdentity, Node
from cluster.services import hearing, locks
from cluster.wire import to_dict
from llmgw_site import node_calls
from llmgw_site.node_calls import NodeCalls
from tests.cluster.rows import Machine

pytestmark = pytest.mark.django_db(transaction=True)
BEAT, HEARD = "/api/v1/agent/heartbeat", "/api/v1/agent/heard"


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """Stands for everything else in `web`."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


@pytest.fixture
def app() -> Iterator[NodeCalls]:
    made = NodeCalls(pages)
    yield made
    for threads in (made.beats, made.rest):
        # else one thread might end both calls, and the other keep its connection
        all_here = threading.Barrier(node_calls.THREADS)

        def end(all_here: threading.Barrier = all_here) -> None:
            all_here.wait(30)
            locks.discard()

        ended = [threads.submit(end) for _ in range(node_calls.THREADS)]
        threads.shutdown()
        assert not [error for error in map(Future.exception, ended) if error]
    hearing.forget()


async def ask(app: NodeCalls, method: str, path: str, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://web") as client:
        return await client.request(method, path, **more)


async def beat(app: NodeCalls, machine: Machine) -> httpx.Response:
    body = orjson.dumps(to_dict(machine.beat()))
    headers = await sync_to_async(machine.headers)("POST", BEAT, body)
    return await ask(app, "POST", BEAT, content=body, headers=headers)


async def test_a_heartbeat_is_answered_and_signed(app: NodeCalls) -> None:
    machine = await sync_to_async(Machine)()
    answer = await beat(app, machine)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert signing.verify_answer(
        machine.key, answer.headers[signing.SIGNATURE], nonce=machine.nonce, status=200, body=answer.content
    )
    assert (await sync_to_async(Node.objects.get)(id=machine.node.id)).last_seen_at is not None


async def test_everything_else_goes_to_the_pages(app: NodeCalls) -> None:
    for path in ("/admin/", "/api/v1/nodes", "/api/v1/agents"):
        answer = await ask(app, "GET", path)
        assert (answer.status_code, answer.text) == (299, path)


async def test_there_is_nothing_at_an_unknown_path_or_over_the_client_listener(app: NodeCalls) -> None:
    answer = await ask(app, "POST", "/api/v1/agent/mood", headers={"x-llmgw-listener": "node"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    answer = await ask(app, "POST", BEAT, content=b"{}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_a_body_over_the_bound_is_refused(app: NodeCalls) -> None:
    machine = await sync_to_async(Machine)()
    body = b"x" * (3 * 1024 * 1024)
    headers = await sync_to_async(machine.headers)("POST", BEAT, body)
    answer = await ask(app, "POST", BEAT, content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(RuntimeError("a defect"), 500, "internal_error"), (OperationalError("gone"), 503, "database_unavailable")],
)
async def test_a_defect_is_told_and_the_next_call_is_answered(
    app: NodeCalls, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    machine = await sync_to_async(Machine)()
    good = agent.nodes.observe

    def broken(**kwargs: Any) -> Any:
        raise error

    for _ in range(node_calls.THREADS + 1):
        monkeypatch.setattr(agent.nodes, "observe", broken)
        answer = await beat(app, machine)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        monkeypatch.setattr(agent.nodes, "observe", good)
        assert (await beat(app, machine)).status_code == 200
    assert "a defect" not in answer.text


async def test_f05_where_heartbeats_are_stuck_nobody_says_that_they_are_heard(app: NodeCalls) -> None:
    """Such as behind a lock that somebody holds in the database, while everything else is answered."""
    machine = await sync_to_async(Machine)()
    gate = threading.Event()
    stuck = [app.beats.submit(gate.wait) for _ in range(node_calls.THREADS)]
    headers = await sync_to_async(machine.headers)("GET", HEARD, b"")
    asked = asyncio.ensure_future(ask(app, "GET", HEARD, headers=headers))
    try:
        async with asyncio.timeout(20):
            while not app.beats._work_queue.qsize() and not asked.done():
                await asyncio.sleep(0.01)
        assert not asked.done()
        assert (await ClusterIdentity.objects.aget()).listening_at is None
    finally:
        gate.set()
    assert (await asked).status_code == 200
    assert all(item.result() for item in stuck)
    assert (await ClusterIdentity.objects.aget()).listening_at is not None


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL lets a session choose")
def test_only_heartbeats_do_not_wait_for_the_disk_and_what_they_publish_does() -> None:
    def told() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            return str(cursor.fetchone()[0])

    usual = told()
    locks.quick_commits()
    try:
        assert told() == "off"
        with locks.plan_lock():
            assert told() == usual
        assert told() == "off"
    finally:
        locks.discard()
    assert told() == usual
