"""An answer that came compressed although none was asked for, read plain: usage is counted and clients understand it."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from typing import cast

from routing.gateway.response import Broken, Response
from routing.gateway.upstream import Headers

CODINGS = frozenset((b"gzip", b"x-gzip", b"deflate"))
PIECE = 64 << 10
"""Bytes that one step makes at most, so that a small piece cannot become a huge one."""


class Inflated:
    """What `forward.carry` needs of a Response, around one whose body is gzip or zlib (RFC 1952, RFC 1950)."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers: Headers = [
            item for item in response.headers if item[0] not in (b"content-encoding", b"content-length")
        ]
        self._response = response
        self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # either, by its first bytes

    async def read(self) -> bytes:
        """What has come, plain; b"" at the clean end. Raises UpstreamError, also where it is no such coding."""
        while True:
            piece = self._inflate.unused_data or self._inflate.unconsumed_tail or await self._response.read()
            if not piece:
                if not self._inflate.eof:
                    raise Broken("the compressed answer was cut short", headers_received=True)
                return b""
            if self._inflate.eof:  # a second member, which nobody sends: better an error than half an answer
                self._response.abort()
                raise Broken("something follows the compressed answer", headers_received=True)
            try:
                plain = self._inflate.decompress(piece, PIECE)
            except zlib.error as error:
                self._response.abort()
                raise Broken(f"the compressed answer is damaged: {error}", headers_received=True) from None
            if plain:
                return plain

    async def pump(self, sink: Callable[[bytes], bool], drain: Callable[[], Awaitable[None]]) -> None:
        """Hand each piece to `sink`, waiting with `drain` where it says so."""
        while piece := await self.read():
            if not sink(piece):
                await drain()

    def abort(self) -> None:
        self._response.abort()


def plain(response: Response) -> Response:
    """The answer itself, or read plain where it came in a coding that nobody asked for."""
    return cast("Response", Inflated(response)) if coding_of(response.headers) in CODINGS else response


def coding_of(headers: Headers) -> bytes:
    """The content coding that headers (lower-case names) name; empty for none."""
    value = next((value for name, value in headers if name == b"content-encoding"), b"").strip().lower()
    return b"" if value == b"identity" else value
