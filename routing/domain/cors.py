"""Browsers of other origins: which may use the API, and the headers that tell them so. Source: WHATWG Fetch, "CORS protocol".

Nobody signs in to the API by a cookie: a page sends its key itself, so no answer allows credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

ANY = "*"
REMEMBERED = 600
"""Seconds that a browser may keep what it was told before a request."""
_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,2048}")


class Cors:
    """`origins` as the setting has them; `*` stands for all."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)
        self._any = ANY.encode() in self._origins

    def headers(self, asked: Headers) -> Headers:
        """What an answer to a request with these (lower-case) headers says of its reader; nothing to one of no origin."""
        origin = _value(asked, b"origin")
        if self._any:
            return [(b"access-control-allow-origin", b"*"), _EXPOSED] if origin is not None else []
        if origin is None or origin not in self._origins:
            return [(b"vary", b"origin")]
        return [(b"access-control-allow-origin", origin), _EXPOSED, (b"vary", b"origin")]

    def before(self, asked: Headers, methods: bytes) -> Headers | None:
        """The answer to a browser that asks whether it may; None: that is no such question, or it may not. `methods`: of the path."""
        if _value(asked, b"access-control-request-method") is None:
            return None
        told = self.headers(asked)
        if not any(name == b"access-control-allow-origin" for name, _ in told):
            return None
        wished = _value(asked, b"access-control-request-headers")
        if wished is not None and _NAMES.fullmatch(wished):
            told.append((b"access-control-allow-headers", wished))
        return [*told, (b"access-control-allow-methods", methods), (b"access-control-max-age", b"%d" % REMEMBERED)]


_EXPOSED = (b"access-control-expose-headers", b"*")


def _value(headers: Headers, name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)
