"""cluster.consumers: who may look on, what they see. On an in-memory layer, and on the real one where it is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from asgiref.sync import sync_to_async
from channels.auth import AuthMiddlewareStack
from channels.layers import get_channel_layer
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.models import Session
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from redis.exceptions import RedisError

from cluster import consumers
from cluster.consumers import AWAY, FORBIDDEN, REMOVED, websocket_urlpatterns
from cluster.services import jobs, members, nodes
from cluster.wire import LONGEST_PING, Nudge, Ping, from_dict, to_dict
from tests.cluster.rows import Machine
from tests.rows import a_user
from workers import nudges

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE = 30.0
"""Seconds for what comes at once, on a machine that has much else to do."""


@pytest.fixture
def memory_layer(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nudges, "_not_before", 0.0)
    # nothing is put off, however large the clusters of the tests before were
    monkeypatch.setattr(nudges, "_to_all", nudges._ToAll())
    monkeypatch.setattr(members, "_size", 0)
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}


def page(user: Any) -> WebsocketCommunicator:
    """A page of somebody who has signed in."""
    client = Client()
    if not user.is_anonymous:
        client.force_login(user)
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    return WebsocketCommunicator(
        AuthMiddlewareStack(URLRouter(websocket_urlpatterns)), "/ws/jobs", headers=[(b"cookie", cookies.encode())]
    )


async def changed(job_id: str) -> None:
    await get_channel_layer().group_send(consumers.GROUP, {"type": "job.changed", "job_id": job_id})


@pytest.mark.parametrize(
    ("name", "permissions", "staff"), [("", (), False), ("clerk", (), True), ("guest", ("cluster.view_job",), False)]
)
async def test_only_staff_who_may_view_jobs_look_on(
    memory_layer: None, name: str, permissions: tuple[str, ...], staff: bool
) -> None:
    user = await sync_to_async(a_user)(name, *permissions, staff=staff) if name else AnonymousUser()
    socket = await sync_to_async(page)(user)
    connected, code = await socket.connect(timeout=PATIENCE)
    assert (connected, code) == (False, FORBIDDEN)


async def test_a_page_sees_what_there_is_and_then_what_changes(memory_layer: None) -> None:
    user = await sync_to_async(a_user)("ann", "cluster.view_job")
    job = await sync_to_async(jobs.open)(kind="serve", subject="m", args={}, actor="t")
    socket = await sync_to_async(page)(user)
    assert (await socket.connect(timeout=PATIENCE))[0]
    first = await socket.receive_json_from(timeout=PATIENCE)
    assert [item["id"] for item in first["jobs"]] == [job.id]
    assert len(first["jobs"][0]["steps"]) == 6
    await sync_to_async(jobs.claim)(job_id=job.id, worker="w")
    await sync_to_async(jobs.note)(job_id=job.id, worker="w", number=1, progress=0.5, detail="half")
    await changed(job.id)
    told = (await socket.receive_json_from(timeout=PATIENCE))["job"]
    while told["steps"][0]["progress"] != 0.5:  # the services' own signals came first
        told = (await socket.receive_json_from(timeout=PATIENCE))["job"]
    assert told["steps"][0]["detail"] == "half"
    await socket.disconnect(timeout=PATIENCE)


def ends_session(user: Any) -> None:
    Session.objects.all().delete()  # as signing out does


def loses_permission(user: Any) -> None:
    user.user_permissions.clear()


def is_put_out(user: Any) -> None:
    type(user).objects.filter(pk=user.pk).update(is_active=False)


def is_no_staff(user: Any) -> None:
    type(user).objects.filter(pk=user.pk).update(is_staff=False)


def gets_another_password(user: Any) -> None:
    user.set_password("another password")
    user.save()


def session_expires(user: Any) -> None:
    Session.objects.update(expire_date=timezone.now())


@pytest.mark.parametrize(
    "what", [ends_session, loses_permission, is_put_out, is_no_staff, gets_another_password, session_expires]
)
async def test_who_may_not_look_on_any_more_sees_no_more(
    memory_layer: None, monkeypatch: pytest.MonkeyPatch, what: Callable[[Any], None]
) -> None:
    monkeypatch.setattr(consumers, "LOOK_AGAIN", 0.1)
    user = await sync_to_async(a_user)("ann", "cluster.view_job")
    socket = await sync_to_async(page)(user)
    assert (await socket.connect(timeout=PATIENCE))[0]
    await socket.receive_json_from(timeout=PATIENCE)
    assert await socket.receive_nothing(timeout=0.5)  # looked at a few times, and all is well
    await sync_to_async(what)(user)
    assert await socket.receive_output(timeout=PATIENCE) == {"type": "websocket.close", "code": FORBIDDEN}
    await socket.disconnect(timeout=PATIENCE)


async def test_a_database_that_is_away_for_a_moment_ends_no_page(
    memory_layer: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "LOOK_AGAIN", 0.05)
    user = await sync_to_async(a_user)("ann", "cluster.view_job")
    socket = await sync_to_async(page)(user)
    assert (await socket.connect(timeout=PATIENCE))[0]
    await socket.receive_json_from(timeout=PATIENCE)
    with monkeypatch.context() as patch:
        patch.setattr(consumers, "_may_look", Mock(side_effect=OperationalError("away")))
        assert await socket.receive_nothing(timeout=0.4)
    await sync_to_async(ends_session)(user)
    assert (await socket.receive_output(timeout=PATIENCE))["code"] == FORBIDDEN
    await socket.disconnect(timeout=PATIENCE)


async def test_a_job_that_was_forgotten_meanwhile_disturbs_nobody(memory_layer: None) -> None:
    socket = await sync_to_async(lambda: page(a_user("ann", "cluster.view_job")))()
    assert (await socket.connect(timeout=PATIENCE))[0]
    await socket.receive_json_from(timeout=PATIENCE)
    await changed("job_gone")
    assert await socket.receive_nothing(timeout=0.2)
    await socket.send_to(text_data="not json")  # pages have nothing to say, and nobody reads it
    assert await socket.receive_nothing(timeout=0.2)
    await socket.disconnect(timeout=PATIENCE)


@pytest.mark.slow
async def test_progress_travels_through_a_real_valkey(valkey_url: str) -> None:
    socket = await sync_to_async(lambda: page(a_user("ann", "cluster.view_job")))()
    assert (await socket.connect(timeout=PATIENCE))[0]
    await socket.receive_json_from(timeout=PATIENCE)
    job = await sync_to_async(jobs.open)(kind="serve", subject="m", args={}, actor="t")
    told = (await socket.receive_json_from(timeout=PATIENCE))["job"]
    assert (told["id"], told["state"]) == (job.id, "queued")
    await socket.disconnect(timeout=PATIENCE)


# --- agents

PATH = "/ws/agent"


def agent(machine: Machine, *, path: str = PATH, **headers: str) -> WebsocketCommunicator:
    """The machine's handshake, signed; `headers` stand in for some of it."""
    signed = {**machine.headers("GET", PATH, b"", now=time.time()), **headers}
    pairs = [(name.encode(), value.encode()) for name, value in signed.items()]
    return WebsocketCommunicator(URLRouter(websocket_urlpatterns), path, headers=pairs)


async def welcomed(socket: WebsocketCommunicator) -> None:
    """It is let in, and told that pings come back."""
    assert (await socket.connect(timeout=PATIENCE))[0]
    assert from_dict(Nudge, await socket.receive_json_from(timeout=PATIENCE)) == Nudge(reason="connected", echoes=True)


async def test_a_ping_comes_back_as_it_was_sent_and_nothing_else_does(memory_layer: None) -> None:
    socket = agent(await sync_to_async(Machine)())
    await welcomed(socket)
    for number in (1, 2):
        text = orjson.dumps(to_dict(Ping(ping=number))).decode()
        await socket.send_to(text_data=text)
        assert await socket.receive_from(timeout=PATIENCE) == text
    await socket.send_to(text_data="x" * (LONGEST_PING + 1))
    await socket.send_to(bytes_data=b"{}")
    assert await socket.receive_nothing(timeout=0.2)
    await socket.disconnect(timeout=PATIENCE)


async def test_an_agent_is_nudged_alone_with_the_others_and_out(memory_layer: None) -> None:
    machine, other = await sync_to_async(Machine)(), await sync_to_async(Machine)()
    ours, theirs = agent(machine), agent(other)
    for socket in (ours, theirs):
        await welcomed(socket)
    await sync_to_async(nudges.send)("wanted", nodes=[machine.node.id])
    assert from_dict(Nudge, await ours.receive_json_from(timeout=PATIENCE)) == Nudge(reason="wanted")
    await sync_to_async(nudges.send)("snapshot")
    for socket in (ours, theirs):
        assert (await socket.receive_json_from(timeout=PATIENCE))["reason"] == "snapshot"
    assert await theirs.receive_nothing(timeout=0.1)
    await sync_to_async(nudges.send)("map", removed=[machine.node.id])
    for socket in (ours, theirs):
        assert (await socket.receive_json_from(timeout=PATIENCE))["removed"] == [machine.node.id]
    assert (await ours.receive_output(timeout=PATIENCE))["code"] == REMOVED
    await theirs.disconnect(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (PATH, {"x-llmgw-signature": "0" * 64}),
        (PATH, {"x-llmgw-node": "node_nobody"}),
        (PATH, {"x-llmgw-listener": "client"}),
        (PATH, {"x-llmgw-body": ""}),
        (PATH + "?other=1", {}),
    ],
)
async def test_f18_a_handshake_that_no_node_signed_is_refused(
    memory_layer: None, path: str, headers: dict[str, str]
) -> None:
    machine = await sync_to_async(Machine)()
    socket = agent(machine, path=path, **headers)
    assert await socket.connect(timeout=PATIENCE) == (False, FORBIDDEN)


async def test_a_websocket_that_there_is_not_is_refused_and_no_error() -> None:
    for path in ("/", "/ws/", "/ws/jobs/1", "/v1/realtime"):
        socket = WebsocketCommunicator(URLRouter(websocket_urlpatterns), path)
        assert await socket.connect(timeout=PATIENCE) == (False, 4404)


@pytest.mark.parametrize("when", ["group_add", "receive"])
async def test_without_valkey_a_connection_is_refused_or_ends_with_one_line_in_the_log(
    memory_layer: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    async def away(*args: Any) -> None:
        raise RedisError("Connection refused")

    machine = await sync_to_async(Machine)()
    monkeypatch.setattr(type(get_channel_layer()), when, away)
    socket = agent(machine)
    if when == "group_add":
        assert await socket.connect(timeout=PATIENCE) == (False, AWAY)
    else:
        await socket.connect(timeout=PATIENCE)
        while (said := await socket.receive_output(timeout=PATIENCE))["type"] != "websocket.close":
            pass
        assert said["code"] == AWAY
    (told,) = [record for record in caplog.records if record.name == consumers.__name__]
    assert (told.getMessage(), told.exc_info) == ("websocket_ended", None)


async def test_a_copy_of_a_handshake_and_a_removed_node_are_refused(memory_layer: None) -> None:
    machine = await sync_to_async(Machine)()
    signed = machine.headers("GET", PATH, b"", now=time.time())
    first, copy = agent(machine, **signed), agent(machine, **signed)
    assert (await first.connect(timeout=PATIENCE))[0]
    assert await copy.connect(timeout=PATIENCE) == (False, FORBIDDEN)
    await first.disconnect(timeout=PATIENCE)
    await sync_to_async(nodes.remove)(node_id=machine.node.id, actor="t")
    assert await agent(machine).connect(timeout=PATIENCE) == (False, FORBIDDEN)


async def test_a_node_that_is_taken_out_during_its_handshake_is_told(
    memory_layer: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await sync_to_async(Machine)()
    monkeypatch.setattr(consumers.selectors, "is_member", lambda node_id: False)
    socket = agent(machine)
    await welcomed(socket)
    assert (await socket.receive_json_from(timeout=PATIENCE))["removed"] == [machine.node.id]
    assert (await socket.receive_output(timeout=PATIENCE))["code"] == REMOVED
