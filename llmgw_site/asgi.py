"""The ASGI tree of `web`: Django for HTTP, agents' calls by a shorter way, Channels for websockets."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw_site.settings")
django_app = get_asgi_application()

from cluster.consumers import websocket_urlpatterns  # noqa: E402 - needs Django set up
from llmgw_site.node_calls import NodeCalls  # noqa: E402 - the same


class SameOrigin:
    """Lets a browser's websocket in only from a page of the same host and port, or of `LLMGW_PUBLIC_URL`.

    A websocket carries the session's cookie whatever page opened it, and a page on another port of this host counts as
    the same *site* (RFC 6265bis), so the cookie's SameSite does not keep it out. Programs send no Origin and no cookie.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        allowed = {headers.get(b"host", b"").lower(), urlsplit(settings.CONFIG.client_url).netloc.lower().encode()}
        if origin is None or urlsplit(origin.lower()).netloc in allowed:
            await self._application(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 4403})  # before the accept: the handshake gets 403


application = ProtocolTypeRouter(
    {"http": NodeCalls(django_app), "websocket": SameOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))}
)
