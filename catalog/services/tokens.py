"""Tokens of the admin API: issue once, revoke, recognise."""

from __future__ import annotations

from datetime import datetime, timedelta

from catalog.domain import keys as secrets
from catalog.models import AdminToken
from llmgw_site.lib.errors import Kind, Refused

TOUCH_EVERY = timedelta(minutes=1)
"""How exact `last_used_at` is; finer would be a write per request."""


def authenticate(text: str, *, now: datetime) -> AdminToken:
    """The token whose text this is, with its user. One query. Raises Refused."""
    if text.startswith(secrets.KEY_PREFIX):
        raise Refused(
            Kind.UNAUTHORIZED,
            "admin_token_needed",
            "An API key opens the OpenAI endpoint only: the admin API needs an admin token (at-llmgw-…), "
            "which `llmgw token create` or the console makes.",
        )
    token = (
        AdminToken.objects.select_related("user").filter(sha256=secrets.digest(text)).first()
        if text.startswith(secrets.TOKEN_PREFIX)
        else None
    )
    if token is None or token.revoked_at is not None or not token.user.is_active:
        raise Refused(
            Kind.UNAUTHORIZED,
            "invalid_admin_token",
            "This admin token is unknown or revoked: make one with `llmgw token create` or in the console.",
        )
    if token.expires_at <= now:
        raise Refused(
            Kind.UNAUTHORIZED,
            "admin_token_expired",
            f"This admin token expired at {token.expires_at.isoformat(timespec='seconds')}: make a new one.",
        )
    return token


def touch(token: AdminToken, *, now: datetime) -> None:
    """Note that it was used, at most once a minute."""
    if token.last_used_at is None or now - token.last_used_at > TOUCH_EVERY:
        AdminToken.objects.filter(pk=token.pk).update(last_used_at=now)
