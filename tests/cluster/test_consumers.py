"""cluster.consumers: who may look on, what they see. On an in-memory layer, and on the real one where it is slow."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import AnonymousUser

from cluster import consumers
from cluster.consumers import FORBIDDEN, websocket_urlpatterns
from cluster.services import jobs
from tests.rows import a_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def memory_layer(settings: Any) -> None:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}


def page(user: Any) -> WebsocketCommunicator:
    application = URLRouter(websocket_urlpatterns)

    async def with_user(scope: Any, receive: Any, send: Any) -> None:
        await application({**scope, "user": user}, receive, send)

    return WebsocketCommunicator(with_user, "/ws/jobs")


async def changed(job_id: str) -> None:
    await get_channel_layer().group_send(consumers.GROUP, {"type": "job.changed", "job_id": job_id})


@pytest.mark.parametrize(
    ("name", "permissions", "staff"), [("", (), False), ("clerk", (), True), ("guest", ("cluster.view_job",), False)]
)
async def test_only_staff_who_may_view_jobs_look_on(
    memory_layer: None, name: str, permissions: tuple[str, ...], staff: bool
) -> None:
    user = await sync_to_async(a_user)(name, *permissions, staff=staff) if name else AnonymousUser()
    socket = page(user)
    connected, code = await socket.connect()
    assert (connected, code) == (False, FORBIDDEN)


async def test_a_page_sees_what_there_is_and_then_what_changes(memory_layer: None) -> None:
    user = await sync_to_async(a_user)("ann", "cluster.view_job")
    job = await sync_to_async(jobs.open)(kind="serve", subject="m", args={}, actor="t")
    socket = page(user)
    assert (await socket.connect())[0]
    first = await socket.receive_json_from()
    assert [item["id"] for item in first["jobs"]] == [job.id]
    assert len(first["jobs"][0]["steps"]) == 6
    await sync_to_async(jobs.claim)(job_id=job.id, worker="w")
    await sync_to_async(jobs.note)(job_id=job.id, worker="w", number=1, progress=0.5, detail="half")
    await changed(job.id)
    told = (await socket.receive_json_from())["job"]
    while told["steps"][0]["progress"] != 0.5:  # the services' own signals came first
        told = (await socket.receive_json_from())["job"]
    assert told["steps"][0]["detail"] == "half"
    await socket.disconnect()


async def test_a_job_that_was_forgotten_meanwhile_disturbs_nobody(memory_layer: None) -> None:
    socket = page(await sync_to_async(a_user)("ann", "cluster.view_job"))
    assert (await socket.connect())[0]
    await socket.receive_json_from()
    await changed("job_gone")
    assert await socket.receive_nothing(timeout=0.2)
    await socket.send_to(text_data="not json")  # pages have nothing to say, and nobody reads it
    assert await socket.receive_nothing(timeout=0.2)
    await socket.disconnect()


@pytest.mark.slow
async def test_progress_travels_through_a_real_valkey(valkey_url: str) -> None:
    socket = page(await sync_to_async(a_user)("ann", "cluster.view_job"))
    assert (await socket.connect())[0]
    await socket.receive_json_from()
    job = await sync_to_async(jobs.open)(kind="serve", subject="m", args={}, actor="t")
    told = (await socket.receive_json_from(timeout=5))["job"]
    assert (told["id"], told["state"]) == (job.id, "queued")
    await socket.disconnect()
