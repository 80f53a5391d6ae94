"""What follows for keys and tokens when a user is put out, removed, or may something else. Heard from Django's own signals, so
that it does not matter which page, command or library changed the user."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.signals import post_save, pre_delete
from django.dispatch import receiver

from catalog.models import AdminToken, ApiKey
from catalog.services import keys, tokens
from catalog.signals import catalogue_changed

USER = get_user_model()


@receiver(post_save, sender=USER)
def saved(*, instance: Any, created: bool = False, update_fields: Any = None, **kwargs: Any) -> None:
    """Keys and tokens of a user who is not active any more are revoked. Gateways hear of whoever administers them.

    Signing in writes its time: nobody need hear of that, nor of a user who has nothing yet.
    """
    if created or (update_fields and set(update_fields) <= {"last_login"}):
        return
    if not instance.is_active:
        put_out(user=instance, why="deactivated")
    told = {"subject_kind": "user", "subject_id": str(instance.pk)}
    transaction.on_commit(partial(catalogue_changed.send_robust, sender=USER, **told))


@receiver(pre_delete, sender=USER)
def leaves(*, instance: Any, **kwargs: Any) -> None:
    """Keys of a user do not become the project's. Tokens go with the user, and gateways hear of it now."""
    put_out(user=instance, why="removed")


@transaction.atomic
def put_out(*, user: Any, why: str) -> None:
    """Revoke every key and token of this user."""
    actor, told = "controllers", f"the user {user.get_username()} was {why}"
    keys.revoke_all(actor=actor, keys=ApiKey.objects.filter(user_id=user.pk, revoked_at__isnull=True), why=told)
    for token in AdminToken.objects.filter(user_id=user.pk, revoked_at__isnull=True).order_by("pk"):
        tokens.revoke(actor=actor, token=token, why=told)
