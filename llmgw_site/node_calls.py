"""Agents' calls inside `web`: answered by a few threads of their own, without the console's middleware.

A heartbeat needs no session, no cookies and no CSRF token: its signature proves it. Run like a page it would cost several
times as much, and a thousand nodes that come at once would take every database connection from the pages. Here they wait
in a queue; each thread keeps its connection.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import OperationalError
from django.http import Http404, HttpResponse, JsonResponse
from django.urls import resolve

from cluster.services import locks
from llmgw_site import api
from llmgw_site.lib.errors import HTTP_STATUS, envelope
from llmgw_site.lib.units import MIB

PREFIX = "/api/v1/agent/"
BEATS = frozenset({PREFIX + "heartbeat", PREFIX + "heard"})
"""Heartbeats, and the question whether they are processed: it waits where they wait, for it must not be answered while
they are stuck."""
THREADS = 2
"""For heartbeats, and as many for the rest: a batch of usage must be on the disk before it is acknowledged, and a
heartbeat that waited for the disk would take three times as long."""
MAX_BODY = 8 * MIB
"""Bytes; the gateway bounds these calls to as much, and the views to less."""


class NodeCalls:
    """ASGI application: calls below PREFIX are answered here, everything else by `django`."""

    def __init__(self, django: Any) -> None:
        self._django = django
        self.beats = ThreadPoolExecutor(THREADS, thread_name_prefix="heartbeats")
        self.rest = ThreadPoolExecutor(THREADS, thread_name_prefix="agent-calls")
        self._beat = sync_to_async(_beat, thread_sensitive=False, executor=self.beats)
        self._answer = sync_to_async(_answer, thread_sensitive=False, executor=self.rest)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._django(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            return
        response = await (self._beat if scope["path"] in BEATS else self._answer)(scope, body)
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.items()]
        headers.append((b"content-length", b"%d" % len(response.content)))
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.content})


async def _body(receive: Any) -> bytes | None:
    """The whole body; what is over the bound is left out, and found too large. None: the caller has gone."""
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        piece = message.get("body", b"")
        size += len(piece)
        if size <= MAX_BODY:
            pieces.append(piece)
        if not message.get("more_body"):
            return b"".join(pieces)


def _beat(scope: Any, body: bytes) -> HttpResponse:
    return _answer(scope, body, before=locks.quick_commits)


def _answer(scope: Any, body: bytes, *, before: Callable[[], None] = lambda: None) -> HttpResponse:
    """The view's answer. After a defect the thread takes a new connection: the old one may be the reason."""
    request = ASGIRequest(scope, io.BytesIO(body))
    try:
        before()
        found = resolve(request.path_info)
        response: HttpResponse = found.func(request, *found.args, **found.kwargs)
        return response
    except Http404 as error:
        return api.not_found(request, error)
    except Exception as error:
        locks.discard()
        known = isinstance(error, OperationalError)
        refused = api.as_refused(error, request) if known else api.internal(error, request)
        return JsonResponse(envelope(refused), status=HTTP_STATUS[refused.kind])
