"""Tokens of the admin API: issue once, revoke, recognise."""

from __future__ import annotations

import secrets as dice
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from catalog.domain import keys as secrets
from catalog.models import AdminToken
from catalog.services import rows
from catalog.signals import secrets_revoked
from llmgw_site.lib.errors import Kind, Refused

TOUCH_EVERY = timedelta(minutes=1)
"""How exact `last_used_at` is; finer would be a write per request."""
MAX_DAYS = 3660


def issue(*, actor: str, user: Any, name: str, days: float = 90.0) -> tuple[AdminToken, secrets.NewSecret]:
    """A new token that acts as `user` for so many days, and its text: the only time anybody sees it."""
    if not 0 < days <= MAX_DAYS:
        raise Refused(
            Kind.INVALID, "invalid_value", f"days: more than 0 and at most {MAX_DAYS} are possible.", param="days"
        )
    secret = secrets.make(secrets.TOKEN_PREFIX, entropy=dice.token_bytes(32))
    token = AdminToken(
        user=user,
        name=name,
        sha256=secret.sha256,
        prefix=secret.prefix,
        created_by=actor[:200],
        expires_at=timezone.now() + timedelta(days=days),
    )
    message = f"admin token {name} ({secret.prefix}…) issued for {user.get_username()}"
    return rows.add(token, actor=actor, message=message), secret


@transaction.atomic
def revoke(*, actor: str, token: AdminToken, why: str = "") -> AdminToken:
    """From now on the token is refused. A second time changes nothing."""
    if rows.lock(token).revoked_at is None:
        transaction.on_commit(partial(secrets_revoked.send_robust, sender=AdminToken, hashes=(token.sha256,)))
        message = f"admin token {token.name} ({token.prefix}…) revoked"
        rows.change(token, {"revoked_at": timezone.now()}, actor=actor, kind="token_revoked", message=message, why=why)
    return token


def prune(*, before: datetime, limit: int) -> int:
    """Forget tokens that were revoked, or expired, before this time, at most `limit`. Returns how many."""
    ended = AdminToken.objects.filter(Q(revoked_at__lt=before) | Q(expires_at__lt=before))
    return ended.filter(pk__in=list(ended.values_list("pk", flat=True)[:limit])).delete()[0]


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
