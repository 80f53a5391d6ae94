"""Errors as each API has them: as an answer's body, and as the event that ends a stream which failed after its status was sent.

    OpenAI      {"error": {"message", "type", "code", "param", ...}}
    Anthropic   {"type": "error", "error": {"type", "message", ...}}, with `code` and `param` as additions of ours
    Responses   OpenAI's; as an event also {"type": "error", "code", "message", "param"} beside it

Sources: OpenAI's and Anthropic's API references (errors, streaming).
"""

from __future__ import annotations

from typing import Any

import orjson

from llmgw_site.lib.errors import HTTP_STATUS, Kind, Refused
from routing.domain.endpoints import Shape
from routing.domain.sse import error_event as plain_event

_TYPES = {
    Kind.UNAUTHORIZED: "authentication_error",
    Kind.FORBIDDEN: "permission_error",
    Kind.LIMITED: "rate_limit_error",
    Kind.UNAVAILABLE: "server_error",
    Kind.UPSTREAM: "server_error",
    Kind.TIMEOUT: "server_error",
    Kind.INTERNAL: "server_error",
    Kind.LOOP: "server_error",
}
_ANTHROPIC = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(error: Refused, shape: Shape = Shape.OPENAI) -> bytes:
    """A refusal's body, with its further facts."""
    kind = _TYPES.get(error.kind, "invalid_request_error")
    inner = {"message": error.message, "type": kind, "code": error.code, "param": error.param}
    return body_of(HTTP_STATUS[error.kind], {**error.extra, **inner}, shape)


def body_of(status: int, inner: dict[str, Any], shape: Shape) -> bytes:
    """The body of an answer with this status, from the inside of an OpenAI error object."""
    if shape is Shape.ANTHROPIC:
        kind = _ANTHROPIC.get(status, "invalid_request_error" if status < 500 else "api_error")
        return orjson.dumps({"type": "error", "error": {**inner, "type": kind}})
    return orjson.dumps({"error": inner})


def error_event(body: bytes, shape: Shape = Shape.OPENAI) -> bytes:
    """`body`: of an answer in that shape. No end of the stream follows the event."""
    if shape is Shape.RESPONSES:
        inner = orjson.loads(body)["error"]
        named = {name: inner.get(name) for name in ("code", "message", "param")}
        body = orjson.dumps({"type": "error", **named, "error": inner})
    return plain_event(body) if shape is Shape.OPENAI else b"event: error\n" + plain_event(body)
