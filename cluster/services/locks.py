"""Exclusion while a whole plan is committed, and the database's clock. Never held across I/O."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

PLAN_LOCK = 0x6C6C6D67775F70  # "llmgw_p"
"""Number of PostgreSQL's advisory transaction lock."""


@contextmanager
def plan_lock() -> Iterator[None]:
    """One transaction that no other holder of this lock runs beside.

    SQLite: BEGIN IMMEDIATE, by the settings' transaction mode. PostgreSQL: an advisory lock until the transaction ends.
    """
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PLAN_LOCK])
        yield
