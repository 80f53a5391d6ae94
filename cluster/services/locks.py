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
                if _quick():
                    cursor.execute("SET LOCAL synchronous_commit TO DEFAULT")
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PLAN_LOCK])
        yield


def quick_commits() -> None:
    """From now on this thread's connection does not wait for the disk at a commit, except under the plan lock.

    For what nodes report and will report again: should the database server crash, its last half second is missing, and
    nothing is inconsistent. A connection like this must be closed, never given back to others (`discard`).
    Source: PostgreSQL's manual, "Asynchronous Commit". Elsewhere this does nothing.
    """
    if connection.vendor == "postgresql" and not _quick():
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit TO off")
        connection.connection.quick_commits = True


def discard() -> None:
    """Close this thread's connection for good; the next query takes a new one."""
    if connection.connection is not None and _quick():
        connection.connection.close()
    connection.close()


def _quick() -> bool:
    return getattr(connection.connection, "quick_commits", False)
