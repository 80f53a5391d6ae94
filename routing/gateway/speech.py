"""Who speaks which API: learned from answers, since neither the version of an engine nor a provider's name says it for sure.

An engine or a provider that answers 404, 405 or 501 to messages or responses is asked the same as a chat; if it knows chats, that
is remembered for a while, and the next request is a chat from the start. See docs/decisions/0020.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from llmgw_site.lib.errors import Refused
from routing.domain.outgoing import Outgoing
from routing.domain.translate.back import Back
from routing.gateway.response import Broken, Response
from routing.gateway.upstream import Headers

UNKNOWN = frozenset({404, 405, 501})
"""Statuses of who has no such path: nothing was run. A model that is not there is a 404 as well, to a chat too."""
REMEMBERED = 600.0
"""Seconds: engines are replaced by newer ones under the same name, and providers learn."""
MOST = 4096
"""Pairs that are remembered."""
WHOLE = 64 << 20
"""Bytes of a completion that is read whole to be translated."""


class Speech:
    """`whom`: a replica or a provider. Times are the loop's."""

    def __init__(self) -> None:
        self._lacks: dict[tuple[str, str], float] = {}

    def first(self, whom: str, out: Outgoing, now: float) -> Outgoing:
        """What to send: as a chat where it is known that nothing else is understood. Raises Refused: that cannot be one."""
        if out.as_chat is None or self._lacks.get((whom, out.path), 0.0) < now:
            return out
        other = out.as_chat()
        if isinstance(other, Refused):
            raise other
        return other

    async def ask(
        self, whom: str, out: Outgoing, send: Callable[[Outgoing], Awaitable[Response]], now: float
    ) -> Response:
        """Send it, and once more as a chat where the answer is that there is no such path. Raises UpstreamError.

        1. any other answer, and one to what cannot be a chat   as it is
        2. not known as a chat either                           that answer, and nothing is remembered: it is about the model
        3. else                                                 the chat's answer, in the words of the API that was asked
        """
        response = await send(out)
        if response.status in UNKNOWN and out.as_chat is not None:
            other = out.as_chat()
            if isinstance(other, Refused):  # 1
                return response
            response.abort()
            path, out = out.path, other
            response = await send(out)
            if response.status not in UNKNOWN:  # 2
                if len(self._lacks) >= MOST:
                    self._lacks.clear()
                self._lacks[whom, path] = now + REMEMBERED
        if out.back is None or response.status != 200:
            return response
        return cast("Response", Translated(response, out.back))  # 3


class Translated:
    """What `forward.carry` needs of a Response, around a chat's answer."""

    def __init__(self, response: Response, back: Back) -> None:
        self.status = response.status
        self.headers: Headers = [item for item in response.headers if item[0].lower() != b"content-length"]
        self._response = response
        self._back = back
        kind = next((value for name, value in response.headers if name.lower() == b"content-type"), b"")
        self._streams = kind.lower().startswith(b"text/event-stream")
        self._done = False

    async def read(self) -> bytes:
        """What has come, translated; b"" at the clean end. Raises UpstreamError, also where it is no chat."""
        try:
            return await (self._next() if self._streams else self._all())
        except ValueError as error:
            self._response.abort()
            raise Broken(f"the answer cannot be translated: {error}", headers_received=True) from None

    async def _next(self) -> bytes:
        while piece := await self._response.read():
            if out := self._back.feed(piece):
                return out
        return b""

    async def _all(self) -> bytes:
        if self._done:
            return b""
        parts: list[bytes] = []
        size = 0
        while piece := await self._response.read():
            parts.append(piece)
            size += len(piece)
            if size > WHOLE:
                raise ValueError("it is too large")
        self._done = True
        return self._back.whole(b"".join(parts))

    async def pump(self, sink: Callable[[bytes], bool], drain: Callable[[], Awaitable[None]]) -> None:
        """Hand each piece to `sink`, waiting with `drain` where it says so."""
        while piece := await self.read():
            if not sink(piece):
                await drain()

    def abort(self) -> None:
        self._response.abort()
