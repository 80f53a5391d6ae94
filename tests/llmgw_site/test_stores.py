"""The database of this run is the one that was asked for, and behaves as the services expect of both."""

from __future__ import annotations

import os

import pytest
from django.conf import settings
from django.db import connection

pytestmark = pytest.mark.django_db


def test_the_tests_run_on_the_database_that_was_asked_for() -> None:
    wanted = "postgresql" if os.environ.get("DATABASE_URL", "").startswith("postgres") else "sqlite"
    assert connection.vendor == wanted


def test_sqlite_takes_its_lock_at_the_beginning_and_lets_readers_read() -> None:
    if connection.vendor != "sqlite":
        assert settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"] > 1
        return
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert cursor.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert settings.DATABASES["default"]["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_nothing_of_the_developers_settings_reaches_the_tests() -> None:
    ours = {"LLMGW_DATA", "LLMGW_TEST_RUN"}
    assert {name for name in os.environ if name.startswith("LLMGW_")} == ours
    assert str(settings.CONFIG.data) == os.environ["LLMGW_DATA"]
