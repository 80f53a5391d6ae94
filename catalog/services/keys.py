"""API keys: issue once, rotate, revoke, note their use."""

from __future__ import annotations

import secrets as dice
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from catalog.domain import keys as secrets
from catalog.models import ApiKey, Project
from catalog.services import access, rows
from catalog.services.allowlists import allowlist
from catalog.signals import secrets_revoked
from llmgw_site.lib.errors import Kind, Refused

TOUCH_EVERY = timedelta(minutes=1)
"""How exact `last_used_at` is."""
LONGEST_GRACE = 90 * 86_400.0
"""Seconds that the former text of a key may go on to be worth something."""


def issue(
    *,
    actor: str,
    project: Project,
    name: str,
    models: Sequence[str] | None = None,
    expires_at: datetime | None = None,
    user: Any = None,
    priority: int = 0,
) -> tuple[ApiKey, secrets.NewSecret]:
    """A new key, and its text: the only time anybody sees it. `models`: names it may use, None for all. `user`: whose it is,
    None for the project's. Raises Refused, `user_not_in_project` among others."""
    if expires_at is not None and expires_at <= timezone.now():
        raise Refused(Kind.INVALID, "invalid_value", "expires_at: the time is over already.", param="expires_at")
    if user is not None and not access.is_in(user, project):
        told = f"{user.get_username()} is not in the project {project.name}: give them a role of it, or of a scope above, first."
        raise Refused(Kind.INVALID, "user_not_in_project", told, param="user")
    secret = secrets.make(secrets.KEY_PREFIX, entropy=dice.token_bytes(32))
    key = ApiKey(
        project=project,
        name=name,
        user=user,
        sha256=secret.sha256,
        prefix=secret.prefix,
        models=allowlist(models),
        created_by=actor[:200],
        expires_at=expires_at,
        priority=priority,
    )
    return rows.add(key, actor=actor, message=f"key {name} ({secret.prefix}…) issued for {project.name}"), secret


def may_issue(user: Any, *, project: Project, priority: int = 0) -> None:
    """Refuse who may not make a key of this project; and within scopes nobody gives a priority above 0: its share is taken from
    the requests of others. Raises Refused."""
    access.require(user, "catalog.add_apikey", project)
    if priority > 0 and not access.reach(user, "catalog.add_apikey").everywhere:
        text = f"priority: {user.get_username()} may give 0 and less: more is taken from other scopes, so a role of the cluster gives it."
        raise Refused(Kind.FORBIDDEN, "permission_denied", text, param="priority")


@transaction.atomic
def rotate(*, actor: str, key: ApiKey, grace: float, why: str = "") -> tuple[ApiKey, secrets.NewSecret]:
    """Another text for a key, shown this once. The present one goes on to open the same for `grace` seconds; 0: it ends now.

    Name, project, models, limits and usage stay: it is one key. A text that was former already ends now. Raises Refused.
    """
    if not 0 <= grace <= LONGEST_GRACE:
        days = int(LONGEST_GRACE / 86_400)
        raise Refused(
            Kind.INVALID, "invalid_value", f"grace: 0 to {LONGEST_GRACE:.0f} seconds ({days} days).", param="grace"
        )
    now, fresh = timezone.now(), rows.lock(key)
    if fresh.revoked_at is not None or (fresh.expires_at is not None and fresh.expires_at <= now):
        ended = "was revoked" if fresh.revoked_at is not None else "has expired"
        raise Refused(Kind.CONFLICT, "key_ended", f"The key {fresh.name} {ended}: make a new one instead.")
    secret = secrets.make(secrets.KEY_PREFIX, entropy=dice.token_bytes(32))
    gone = [fresh.former_sha256] if fresh.former_sha256 else []
    changes: dict[str, Any] = {"sha256": secret.sha256, "prefix": secret.prefix, "rotated_at": now}
    changes |= {"former_sha256": None, "former_prefix": "", "former_until": None}
    if grace:
        changes |= {"former_sha256": fresh.sha256, "former_prefix": fresh.prefix}
        changes["former_until"] = now + timedelta(seconds=grace)
    else:
        gone.append(fresh.sha256)
    _tell(gone)
    until = f"valid until {changes['former_until']:%Y-%m-%d %H:%M:%S} UTC" if grace else "ended"
    message = f"key {fresh.name} rotated: {secret.prefix}… is new, {fresh.prefix}… {until}"
    return rows.change(key, changes, actor=actor, kind="key_rotated", message=message, why=why), secret


def revoke(*, actor: str, key: ApiKey, why: str = "") -> ApiKey:
    """From now on the key is refused, each of its texts; it stays in the list. A second time changes nothing."""
    revoke_all(actor=actor, keys=[key], why=why)
    key.refresh_from_db()
    return key


@transaction.atomic
def revoke_all(*, actor: str, keys: Iterable[ApiKey], why: str = "") -> int:
    """Revoke these. Returns how many were not before. Gateways are told of all of them first, and then of the rest."""
    ordered = sorted(keys, key=lambda key: key.pk)  # so that two who revoke the same keys never wait for each other
    live = [fresh for fresh in map(rows.lock, ordered) if fresh.revoked_at is None]
    _tell([text for key in live for text in (key.sha256, key.former_sha256) if text])
    for key in live:
        message = f"key {key.name} ({key.prefix}…) revoked"
        rows.change(key, {"revoked_at": timezone.now()}, actor=actor, kind="key_revoked", message=message, why=why)
    return len(live)


def _tell(hashes: Sequence[str]) -> None:
    """Have gateways hear of texts that ended, once that is committed: before all that a commit makes others look at."""
    if hashes:
        transaction.on_commit(partial(secrets_revoked.send_robust, sender=ApiKey, hashes=tuple(hashes)))


def prune(*, before: datetime, limit: int) -> int:
    """Forget keys that were revoked, or expired, before this time, at most `limit`. Returns how many. Usage records have their
    id and first characters."""
    ended = ApiKey.objects.filter(Q(revoked_at__lt=before) | Q(expires_at__lt=before))
    return ended.filter(pk__in=list(ended.values_list("pk", flat=True)[:limit])).delete()[0]


def touch(*, used: Mapping[str, datetime]) -> None:
    """Note when keys were last used, by id, to the minute: finer, it would cost as much as storing the usage. Older times than the
    noted ones are ignored.

    In the order of their ids, so that two batches of usage that name the same keys never wait for each other.
    """
    noted = dict(ApiKey.objects.filter(pk__in=used).values_list("pk", "last_used_at"))
    for key_id in sorted(noted):
        at, before = used[key_id], noted[key_id]
        if before is not None and at - before < TOUCH_EVERY:
            continue
        ApiKey.objects.filter(Q(last_used_at__isnull=True) | Q(last_used_at__lt=at), pk=key_id).update(last_used_at=at)
