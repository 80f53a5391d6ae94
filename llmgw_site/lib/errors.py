"""The one hierarchy of refusals, and the one table that maps a kind to an HTTP status for both renderers.

LlmgwError
 +- Refused          what was asked cannot be done; the message says what was refused, why and what to do
     kind: INVALID      the input is wrong                              (400)
           TOO_LARGE    over a stated bound                             (413)
           UNAUTHORIZED nobody, or somebody unknown                     (401)
           FORBIDDEN    known, not allowed                              (403)
           NOT_FOUND    no such thing, or not for this caller           (404)
           CONFLICT     the state does not permit it                    (409)
           LIMITED      a limit is reached                              (429)
           UNAVAILABLE  cannot be served at this moment                 (503)
           UPSTREAM     an engine or a node failed after acceptance     (502)
           TIMEOUT      an engine or a node was too slow                (504)
           TOO_SLOW     the client took too long to send                (408)
           HEADERS      header bytes over the bound                     (431)
           LOOP         a request met itself                            (508)
           INTERNAL     our own defect; the text never shows internals  (500)
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """Whose move it is after a refusal; each renderer maps a kind to its protocol."""

    INVALID = "invalid"
    TOO_LARGE = "too_large"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    LIMITED = "limited"
    UNAVAILABLE = "unavailable"
    UPSTREAM = "upstream"
    TIMEOUT = "timeout"
    TOO_SLOW = "too_slow"
    HEADERS = "headers"
    LOOP = "loop"
    INTERNAL = "internal"


class LlmgwError(Exception):
    """Root of everything llmgw raises on purpose."""


class Refused(LlmgwError):
    """A refusal with a stable code, a message for the caller, and a way out.

    code         stable, snake_case, documented in docs/errors.md
    message      what was refused, why, and what to do instead; safe to show to the caller
    param        the input field at fault, if there is one
    retry_after  seconds after which trying again makes sense; None: trying again does not help by itself
    extra        further facts for machines, JSON-serialisable
    """

    def __init__(
        self,
        kind: Kind,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.extra = extra or {}

    def __repr__(self) -> str:
        return f"Refused({self.kind}, {self.code}: {self.message})"


HTTP_STATUS: dict[Kind, int] = {
    Kind.INVALID: 400,
    Kind.TOO_LARGE: 413,
    Kind.UNAUTHORIZED: 401,
    Kind.FORBIDDEN: 403,
    Kind.NOT_FOUND: 404,
    Kind.CONFLICT: 409,
    Kind.LIMITED: 429,
    Kind.UNAVAILABLE: 503,
    Kind.UPSTREAM: 502,
    Kind.TIMEOUT: 504,
    Kind.TOO_SLOW: 408,
    Kind.HEADERS: 431,
    Kind.LOOP: 508,
    Kind.INTERNAL: 500,
}
"""The mapping both renderers share, so that a code has one status everywhere."""

_ADMIN_TYPES = {
    Kind.UNAUTHORIZED: "authentication_error",
    Kind.FORBIDDEN: "permission_error",
    Kind.NOT_FOUND: "not_found_error",
    Kind.CONFLICT: "conflict_error",
    Kind.LIMITED: "rate_limit_error",
    Kind.UNAVAILABLE: "unavailable_error",
}


def envelope(refused: Refused) -> dict[str, Any]:
    """A refusal as the body of the admin API's answer, whoever answers."""
    kind = _ADMIN_TYPES.get(refused.kind)
    if kind is None:
        kind = "server_error" if HTTP_STATUS[refused.kind] >= 500 else "invalid_request_error"
    error = {"message": refused.message, "type": kind, "code": refused.code, "param": refused.param}
    return {"error": {**error, **({"extra": refused.extra} if refused.extra else {})}}
