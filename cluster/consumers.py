"""Live progress of jobs for pages: a snapshot at the start, then what changed. No truth travels here; rows are it.

/ws/jobs   for staff of the console who may view jobs
    {"type": "jobs", "jobs": [...]}    once, the latest ones
    {"type": "job", "job": {...}}      each time one of them changed
"""

from __future__ import annotations

from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.urls import path

from cluster import selectors

GROUP = "jobs"
FORBIDDEN = 4403
"""Close code for those who may not look."""


class JobsConsumer(AsyncJsonWebsocketConsumer):
    """One page that looks on."""

    async def connect(self) -> None:
        if not await database_sync_to_async(_may_look)(self.scope.get("user")):
            await self.close(code=FORBIDDEN)
            return
        await self.channel_layer.group_add(GROUP, self.channel_name)
        await self.accept()
        jobs = await database_sync_to_async(selectors.latest_jobs)()
        await self.send_json({"type": "jobs", "jobs": jobs})

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(GROUP, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        """Pages have nothing to say here; what they send is not even decoded."""

    async def job_changed(self, event: dict[str, Any]) -> None:
        """A worker wrote something: read it, pass it on."""
        job = await database_sync_to_async(selectors.job_dict)(event["job_id"])
        if job is not None:
            await self.send_json({"type": "job", "job": job})


def _may_look(user: Any) -> bool:
    return bool(user and user.is_authenticated and user.is_staff and user.has_perm("cluster.view_job"))


websocket_urlpatterns = [path("ws/jobs", JobsConsumer.as_asgi())]
