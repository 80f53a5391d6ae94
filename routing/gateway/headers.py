"""Which headers pass, in which direction. Decisions are remembered by name: a proxy sees the same few all day.

Sources: RFC 9110 §7.6.1 (hop-by-hop), RFC 9112 §6 (framing belongs to the connection).
"""

from __future__ import annotations

import re
from collections.abc import Callable

Headers = list[tuple[bytes, bytes]]

_HOP = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"trailers", b"transfer-encoding", b"upgrade",
}  # fmt: skip
_NOT_TO_ENGINE = _HOP | {
    # whose call it is: an engine learns nothing of the client's credentials
    b"authorization", b"cookie", b"x-api-key", b"api-key", b"x-goog-api-key", b"x-csrftoken",
    # set by us, or true of the first hop only
    b"host", b"content-length", b"content-type", b"content-encoding", b"accept-encoding", b"expect", b"x-request-id",
    b"forwarded", b"via", b"x-real-ip", b"max-forwards", b"date",
    # an engine must not answer for browsers
    b"origin", b"referer",
}  # fmt: skip
_NOT_TO_CLIENT = _HOP | {
    b"server", b"date", b"x-request-id", b"set-cookie", b"x-powered-by", b"via", b"alt-svc", b"content-length",
    b"strict-transport-security", b"www-authenticate",
}  # fmt: skip
_USUAL = frozenset((b"close", b"keep-alive", b""))
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")


def _to_engine(name: bytes) -> bool:
    return name not in _NOT_TO_ENGINE and not name.startswith(
        (b"x-llmgw-", b"x-forwarded-", b"proxy-", b"sec-", b"access-control-")
    )


def _to_client(name: bytes) -> bool:
    return name not in _NOT_TO_CLIENT and not name.startswith((b"x-llmgw-", b"proxy-", b"access-control-"))


class _Memory(dict[bytes, bool]):
    """name -> passes; bounded, because clients choose the names."""

    def __init__(self, rule: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._rule = rule

    def __missing__(self, name: bytes) -> bool:
        if len(self) >= 512:
            self.clear()
        passes = self[name] = self._rule(name)
        return passes


_engine, _client = _Memory(_to_engine), _Memory(_to_client)


def _named(connection: Headers) -> set[bytes]:
    """Headers that the sender's Connection headers declare to be for this hop only."""
    names: set[bytes] = set()
    for _, value in connection:
        names.update(part.strip().lower() for part in value.split(b","))
    return names - _USUAL if names else names


def to_engine(headers: Headers, *, key: str, request_id: str, form: bool = False) -> Headers:
    """A client's (lower-case) headers as an engine gets them. `form`: with the content type, where the boundary stands."""
    out = [item for item in headers if _engine[item[0]]]
    if hop := _named([item for item in headers if item[0] == b"connection"]):
        out = [item for item in out if item[0] not in hop]
    kind = b"application/json"
    if form:
        kind = next((value for name, value in headers if name == b"content-type"), kind)
    out.append((b"content-type", kind))
    out.append((b"accept-encoding", b"identity"))
    out.append((b"x-request-id", request_id.encode()))
    if key:
        out.append((b"authorization", b"Bearer " + key.encode()))
    return out


def to_node(headers: Headers, *, request_id: str, signed: Headers, form: bool = False) -> Headers:
    """A request's (lower-case) headers as another node gets them: as an engine would, with our signature for a key."""
    return [*to_engine(headers, key="", request_id=request_id, form=form), *signed]


def to_client(headers: Headers, *, request_id: str) -> tuple[Headers, bytes, bytes, int | None]:
    """An engine's (lower-case) headers as the client gets them, without a length; and content type, coding and length."""
    hop = _named([item for item in headers if item[0] == b"connection"])
    out: Headers = []
    kind = coding = b""
    length: int | None = None
    for name, value in headers:
        if name == b"content-length":
            length = int(value) if value.isdigit() else None
        elif _client[name] and name not in hop:
            out.append((name, value))
            if name == b"content-type":
                kind = value.lower()
            elif name == b"content-encoding" and value.lower() != b"identity":
                coding = value.lower()
    out.append((b"x-request-id", request_id.encode()))
    return out, kind, coding, length


def request_id(value: bytes | None, make: Callable[[str], str]) -> str:
    """The client's X-Request-Id if it is a plain string of reasonable length, else a new one."""
    return value.decode() if value is not None and _REQUEST_ID.fullmatch(value) else make("req")
