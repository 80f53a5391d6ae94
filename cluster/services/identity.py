"""The controllers' key pair: made once, sealed in the database under a key derived from LLMGW_SECRET_KEY."""

from __future__ import annotations

import logging
import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import FloatField, Q
from django.db.models.expressions import RawSQL

from catalog.services import events
from cluster.domain import health, signing
from cluster.models import ClusterIdentity, Node
from cluster.selectors import NOW, from_unix, listening_of, unix
from llmgw_site.lib.clock import new_id
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.logs import event
from llmgw_site.lib.sealing import WrongSecret, seal, unseal

log = logging.getLogger(__name__)

MARK_EVERY = 2.0
"""Seconds between two marks that heartbeats are being processed."""


def ensure_identity() -> ClusterIdentity:
    """The cluster's identity, made at the first call. Safe to call from several processes at once."""
    found = ClusterIdentity.objects.filter(id=ClusterIdentity.ONLY).first()
    if found is None:
        private = secrets.token_hex(32)
        found, _ = ClusterIdentity.objects.get_or_create(
            id=ClusterIdentity.ONLY,
            defaults={
                "epoch": new_id("epoch"),
                "public_key": signing.public_hex(private),
                "sealed_private_key": seal(private, secret=settings.SECRET_KEY),
            },
        )
    return found


def begin_epoch(after: str) -> None:
    """Rename this store, unless it has another name already: versions that it counts now are none that it counted before."""
    with transaction.atomic():
        fresh = new_id("epoch")
        if ClusterIdentity.objects.filter(id=ClusterIdentity.ONLY, epoch=after).update(epoch=fresh):
            text = "the database is an older copy of itself: nodes hold what it has not published yet"
            events.append(
                actor="controllers", kind="store_set_back", subject_kind="cluster", subject_id=ClusterIdentity.ONLY,
                message=text, before={"epoch": after}, after={"epoch": fresh},
            )  # fmt: skip
            event(log, "store_set_back", level=logging.WARNING, before=after, epoch=fresh)


def private_key(identity: ClusterIdentity) -> str:
    """The controllers' private key (hex). Raises Refused if it was sealed under another secret."""
    return opened(identity.sealed_private_key)


def opened(sealed: str, *, about: str = "") -> str:
    """What was sealed under LLMGW_SECRET_KEY. Raises Refused `identity_sealed` where that is another now."""
    try:
        return unseal(sealed, secret=settings.SECRET_KEY, about=about)
    except WrongSecret:
        raise Refused(
            Kind.UNAVAILABLE,
            "identity_sealed",
            "the controllers' key in the database was sealed under another LLMGW_SECRET_KEY: start with the secret of "
            "this database (LLMGW_SECRET_KEY, or secrets/secret-key under the data folder)",
        ) from None


def listened(*, now: float, last: float | None = None) -> None:
    """Note that heartbeats are being processed (see cluster/domain/health.py). Written at most each MARK_EVERY s, or
    several times in a gap that is short.

    `now`, `last`: the time, and when it was noted last, as they were read a moment ago.

    1. a moment may have been a long one: this process, or the database, may have stood still since. So the time is read
       anew, together with the mark that it is compared with, and it is this time that is written
    2. conditional: of two that mark at once, the later reader must not shorten the span of the first; nor can one that
       stood still after it read join its old span to what came since
    """
    gap = health.gap_of(settings.CONFIG.stale_after)
    pause = min(MARK_EVERY, gap / 4)
    if last is not None and 0 <= now - last < pause:
        return
    rows = ClusterIdentity.objects.annotate(read_at=RawSQL(NOW[connection.vendor], (), FloatField()))  # noqa: S611
    row = rows.filter(id=ClusterIdentity.ONLY).first()
    if row is None or (row.listening_at and 0 <= row.read_at - unix(row.listening_at) < pause):
        return
    before = listening_of(row)
    marked = health.mark(before, row.read_at, gap=gap)  # 1
    if health.set_back(before, row.read_at):
        Node.objects.filter(last_seen_at__gt=from_unix(row.read_at)).update(last_seen_at=from_unix(row.read_at))
    ClusterIdentity.objects.filter(_same_mark(row.listening_at), id=row.id).update(
        listening_since=from_unix(marked.since or row.read_at), listening_at=from_unix(row.read_at)
    )  # 2


def _same_mark(at: datetime | None) -> Q:
    """The mark as it was read. A range and not `=`: SQLite compares times as text, and a mark that an earlier version wrote
    there by the database's clock has three decimals where Django's parameters have six, so that none would ever equal it."""
    if at is None:
        return Q(listening_at__isnull=True)
    return Q(listening_at__gt=at - timedelta(milliseconds=1), listening_at__lte=at)
