"""The catalogue's migrations go both ways, with what is in the tables."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys, django
from django.core.management import call_command
django.setup()
for words in json.loads(sys.argv[1]):
    print(words, file=sys.stderr)
    call_command(*words)
"""


def manage(data: Path, *commands: tuple[str, ...]) -> None:
    """Commands of manage.py, one after the other, in a process of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LLMGW_DATA", "DATABASE_URL"))}
    env = {**kept, "LLMGW_DATA": str(data), "DJANGO_SETTINGS_MODULE": "llmgw_site.settings"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)], cwd=TOP, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout[-1000:]}{done.stderr[-2000:]}"


@contextmanager
def opened(data: Path) -> Iterator[sqlite3.Connection]:
    """The database with the one function that Django adds to SQLite and our constraints need."""
    with closing(sqlite3.connect(data / "llmgw.sqlite3")) as database, database:
        database.create_function("REGEXP", 2, lambda pattern, text: re.search(pattern, text) is not None)
        yield database


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_migrations_go_forward_back_to_nothing_and_forward_again_and_rows_of_the_first_stay(tmp_path: Path) -> None:
    data = tmp_path / "data"
    manage(data, ("migrate", "catalog", "0001"))
    with opened(data) as database:
        database.execute(
            "INSERT INTO catalog_model (id, name, description, enabled, replicas, weights_path, weights_sha256, facts,"
            " embeddings, created_at, updated_at) VALUES ('mod_1', 'tiny', '', 1, 2, '/x.gguf', '', '{}', 0, 0, 0)"
        )
        database.execute(
            "INSERT INTO catalog_profile (id, model_id, name, engine, enabled, priority, context, slots, threads, memory,"
            " args, env, start_timeout, drain_timeout, created_at, updated_at)"
            " VALUES ('prof_1', 'mod_1', 'default', 'llama.cpp', 1, 0, 0, 1, 0, 0, '[]', '{}', 0, 0, 0, 0)"
        )
        first = rows(database)
    manage(data, ("migrate",))
    with opened(data) as database:
        model = (
            "SELECT name, replicas, weights_path, provider_id, provider_model, first_byte_timeout FROM catalog_model"
        )
        assert database.execute(model).fetchall() == [("tiny", 2, "/x.gguf", None, "", None)]
        assert database.execute("SELECT name, nodes FROM catalog_profile").fetchall() == [("default", "[]")]
    manage(data, ("migrate", "catalog", "0001"))
    with opened(data) as database:
        assert rows(database) == first
    manage(data, ("migrate", "catalog", "zero"), ("migrate",))
    with opened(data) as database:
        assert rows(database) == ([], [])


def rows(database: sqlite3.Connection) -> tuple[list[dict[str, Any]], ...]:
    """All of the models and the profiles, by column: their order is not that of the first migration any more."""
    database.row_factory = sqlite3.Row
    found = tuple(
        [dict(row) for row in database.execute(f"SELECT * FROM {table}")]
        for table in ("catalog_model", "catalog_profile")
    )
    database.row_factory = None
    return found
