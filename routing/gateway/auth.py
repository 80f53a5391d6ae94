"""Bearer to key: `Authorization: Bearer sk-llmgw-...` is hashed and looked up in the snapshot. No other header counts, but
`x-api-key` where Anthropic's clients ask, and where there is no Authorization, or an empty one.

Revoked keys are not in the snapshot; an expired one is refused by the time of now. All of these look the same. A gateway
that has no snapshot yet knows no key at all and says that, so that nobody throws a good key away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from llmgw_site.lib.errors import Kind, Refused
from routing.domain.endpoints import Shape
from routing.domain.tenancy import Holder
from routing.gateway.exchange import Exchange

LONGEST_KEY = 512
"""Bytes; ours have 52. What is longer is not hashed."""


def authorization(exchange: Exchange) -> bytes | None:
    """The Authorization header, or what stands for it."""
    given = exchange.authorization
    if not given and exchange.shape is Shape.ANTHROPIC:
        keys: list[bytes] = [value for name, value in exchange.scope["headers"] if name == b"x-api-key"]
        return b"Bearer " + keys[0] if keys else None
    return given


def identify(authorization: bytes | None, keys: Mapping[str, Holder], *, known: bool, now: float) -> Holder:
    """The key of an Authorization header; `known` once there is a snapshot. Raises Refused."""
    if not authorization:
        raise Refused(
            Kind.UNAUTHORIZED, "missing_api_key", "An API key is required: send it as 'Authorization: Bearer KEY'."
        )
    scheme, _, token = authorization.partition(b" ")
    token = token.strip()
    if scheme.lower() != b"bearer" or not token:
        raise Refused(
            Kind.UNAUTHORIZED,
            "missing_api_key",
            "The Authorization header has no API key: send it as 'Authorization: Bearer KEY'.",
        )
    if not known:
        raise Refused(
            Kind.UNAVAILABLE,
            "gateway_starting",
            "The gateway does not know the keys and models yet: send the request again.",
            retry_after=1,
        )
    key = keys.get(hashlib.sha256(token).hexdigest()) if len(token) <= LONGEST_KEY else None
    if key is None or (key.expires_at is not None and key.expires_at <= now):
        raise Refused(
            Kind.UNAUTHORIZED,
            "invalid_api_key",
            "The API key is not valid: it is unknown, was revoked or has expired. Ask an administrator for a new one.",
        )
    return key
