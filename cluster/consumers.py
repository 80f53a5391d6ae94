"""Websockets: live progress of jobs for pages, nudges for agents. No truth travels here; rows are it.

/ws/jobs   for staff of the console who may view jobs, for as long as they are
    {"type": "jobs", "jobs": [...]}    once, the latest ones
    {"type": "job", "job": {...}}      each time one of them changed
/ws/agent  for nodes, over the node listener; the handshake is signed as a call (GET, the path as asked for, no body)
    cluster.wire.Nudge                 at once, saying that pings are echoed; then each time a node should look again now
    cluster.wire.Ping                  from the agent, and back as it came
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from importlib import import_module
from typing import Any

import orjson
from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer, AsyncWebsocketConsumer
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.urls import path, re_path
from redis.exceptions import RedisError

from cluster import selectors
from cluster.services import calls
from cluster.wire import LONGEST_PING, NODES_GROUP, Nudge, node_group, to_dict
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)

GROUP = "jobs"
FORBIDDEN = 4403
"""Close code for those who may not look."""
LOOK_AGAIN = 15.0
"""Seconds between two looks at whether a page that looks on still may."""
REMOVED = 4401
"""Close code for a node that was taken out of the cluster."""


AWAY = 1013
"""Close code, "try again later" (RFC 6455's registry), where Valkey or the database is away."""


class Socket(AsyncWebsocketConsumer):
    """A connection that ends with one line in the log where what it needs is away: thousands may end at once, and all of
    them come again."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        except (RedisError, OperationalError, OSError) as error:
            event(log, "websocket_ended", level=logging.WARNING, path=scope["path"], reason=str(error)[:200])
            with suppress(Exception):  # the other end may be gone as well
                await send({"type": "websocket.close", "code": AWAY})


class JobsConsumer(Socket, AsyncJsonWebsocketConsumer):
    """One page that looks on: until its session ends, its user is put out, or may not view jobs any more."""

    _watch: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        if not await database_sync_to_async(_may_look)(self.scope.get("user")):
            await self.close(code=FORBIDDEN)
            return
        await self.channel_layer.group_add(GROUP, self.channel_name)
        await self.accept()
        jobs = await database_sync_to_async(selectors.latest_jobs)()
        await self.send_json({"type": "jobs", "jobs": jobs})
        self._watch = asyncio.create_task(self._while_allowed())

    async def _while_allowed(self) -> None:
        """Close the connection when it may not be any more. While the database is away nobody can tell, and nothing is sent."""
        while True:
            await asyncio.sleep(LOOK_AGAIN)
            with suppress(OperationalError, InterfaceError):
                if not await database_sync_to_async(_may_look)(await _user_now(self.scope)):
                    event(
                        log,
                        "jobs_websocket_ended",
                        reason="the session has ended, or the user may not view jobs any more",
                    )
                    await self.close(code=FORBIDDEN)
                    return

    async def disconnect(self, code: int) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await self.channel_layer.group_discard(GROUP, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        """Pages have nothing to say here; what they send is not even decoded."""

    async def job_changed(self, event: dict[str, Any]) -> None:
        """A worker wrote something: read it, pass it on."""
        job = await database_sync_to_async(selectors.job_dict)(event["job_id"])
        if job is not None:
            await self.send_json({"type": "job", "job": job})


_WELCOME = orjson.dumps(to_dict(Nudge(reason="connected", echoes=True))).decode()


class AgentConsumer(Socket):
    """One connected agent. It only asks whether somebody is there: what it sees comes with its heartbeats."""

    node_id = ""

    async def connect(self) -> None:
        """A handshake that proves no node is refused with 403; a node that was taken out meanwhile is told so at once."""
        try:
            self.node_id = await database_sync_to_async(_prove)(self.scope)
        except Refused as refused:
            event(log, "agent_websocket_refused", level=logging.WARNING, code=refused.code)
            await self.close(code=FORBIDDEN)
            return
        for group in self._groups():
            await self.channel_layer.group_add(group, self.channel_name)
        await self.accept()
        await self.send(text_data=_WELCOME)
        if not await database_sync_to_async(selectors.is_member)(self.node_id):
            await self.node_nudge({"nudge": to_dict(Nudge(reason="removed", removed=(self.node_id,)))})

    async def disconnect(self, code: int) -> None:
        for group in self._groups():
            await self.channel_layer.group_discard(group, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        """A ping goes back as it came, not even decoded; anything longer is no ping."""
        if text_data and len(text_data) <= LONGEST_PING:
            await self.send(text_data=text_data)

    async def node_nudge(self, message: dict[str, Any]) -> None:
        await self.send(text_data=orjson.dumps(message["nudge"]).decode())
        if self.node_id in message["nudge"]["removed"]:
            await self.close(code=REMOVED)

    def _groups(self) -> tuple[str, ...]:
        return (NODES_GROUP, node_group(self.node_id)) if self.node_id else ()


def _prove(scope: Any) -> str:
    """Id of the node that signed this handshake. Raises Refused."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    if scope.get("query_string"):
        path += "?" + scope["query_string"].decode("latin-1")
    calls.on_node_listener(headers, path)
    return calls.prove(headers, method="GET", path=path, body=b"").node.id


async def _user_now(scope: Any) -> Any:
    """Whose session the page was opened with, read anew; nobody's, where it has ended or the password is another by now."""
    store = import_module(settings.SESSION_ENGINE).SessionStore
    return await get_user({"session": store(scope["session"].session_key)})


def _may_look(user: Any) -> bool:
    return bool(user and user.is_authenticated and user.is_staff and user.has_perm("cluster.view_job"))


async def nowhere(scope: Any, receive: Any, send: Any) -> None:
    """There is no such websocket: refused, where Channels would raise an error for whatever strangers ask for."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


websocket_urlpatterns = [
    path("ws/jobs", JobsConsumer.as_asgi()),
    path("ws/agent", AgentConsumer.as_asgi()),
    re_path("", nowhere),  # type: ignore[arg-type] # an ASGI application, as Channels wants them
]
