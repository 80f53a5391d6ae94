"""API keys: issue once, revoke, note their use."""

from __future__ import annotations

import secrets as dice
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from catalog.domain import keys as secrets
from catalog.models import ApiKey, Project
from catalog.services import rows
from catalog.services.allowlists import allowlist
from llmgw_site.lib.errors import Kind, Refused


def issue(
    *,
    actor: str,
    project: Project,
    name: str,
    models: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, secrets.NewSecret]:
    """A new key, and its text: the only time anybody sees it. `models`: names it may use, None for all."""
    if expires_at is not None and expires_at <= timezone.now():
        raise Refused(Kind.INVALID, "invalid_value", "expires_at: the time is over already.", param="expires_at")
    secret = secrets.make(secrets.KEY_PREFIX, entropy=dice.token_bytes(32))
    key = ApiKey(
        project=project,
        name=name,
        sha256=secret.sha256,
        prefix=secret.prefix,
        models=allowlist(models),
        created_by=actor[:200],
        expires_at=expires_at,
    )
    return rows.add(key, actor=actor, message=f"key {name} ({secret.prefix}…) issued for {project.name}"), secret


@transaction.atomic
def revoke(*, actor: str, key: ApiKey, why: str = "") -> ApiKey:
    """From now on the key is refused; it stays in the list. A second time changes nothing."""
    if rows.lock(key).revoked_at is None:
        message = f"key {key.name} ({key.prefix}…) revoked"
        rows.change(key, {"revoked_at": timezone.now()}, actor=actor, kind="key_revoked", message=message, why=why)
    return key


def prune(*, before: datetime, limit: int) -> int:
    """Forget keys that were revoked, or expired, before this time, at most `limit`. Returns how many. Usage records have their
    id and first characters."""
    ended = ApiKey.objects.filter(Q(revoked_at__lt=before) | Q(expires_at__lt=before))
    return ended.filter(pk__in=list(ended.values_list("pk", flat=True)[:limit])).delete()[0]


def touch(*, used: Mapping[str, datetime]) -> None:
    """Note when keys were last used, by id; older times than the noted ones are ignored.

    In the order of their ids, so that two batches of usage that name the same keys never wait for each other.
    """
    for key_id, at in sorted(used.items()):
        ApiKey.objects.filter(Q(last_used_at__isnull=True) | Q(last_used_at__lt=at), pk=key_id).update(last_used_at=at)
