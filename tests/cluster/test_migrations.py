"""Migrations of the cluster and of routing go back and forth, and the models are what they make."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connection

TABLES = {"cluster": "cluster_replica", "routing": "routing_usagerecord"}


@pytest.mark.django_db(transaction=True)
def test_every_migration_can_be_undone_and_done_again() -> None:
    for app in ("routing", "cluster"):
        call_command("migrate", app, "zero", verbosity=0)
        assert TABLES[app] not in connection.introspection.table_names()
    for app in ("cluster", "routing"):
        call_command("migrate", app, verbosity=0)
        assert TABLES[app] in connection.introspection.table_names()


@pytest.mark.django_db
def test_no_model_differs_from_its_migrations() -> None:
    call_command("makemigrations", "catalog", "cluster", "routing", "--check", "--dry-run", verbosity=0)
