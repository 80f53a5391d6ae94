"""What Django wants to be told of the settings, in its own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from llmgw_site.lib.config import Config


def allowed_hosts(config: Config) -> list[str]:
    """Names that `web` answers to. The gateway binds what it binds; a public address narrows the names to itself and
    this machine, and to `web`, which our own calls over the unix socket and the node listener say."""
    if not config.public_url:
        return ["*"]
    return [urlsplit(config.public_url).hostname or "", "localhost", "127.0.0.1", "[::1]", "web"]


_PATIENCE = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""What libpq is told: nobody waits for ever for a server that is stopped or cut off."""
_LOCKS = "-c lock_timeout=20s -c idle_in_transaction_session_timeout=60s"
"""What each session asks of the server: a process that was stopped in the middle of a transaction holds up nobody for longer than
the first, as with SQLite, and loses its locks after the second. No transaction of ours waits for anything but the database."""


def database(config: Config) -> dict[str, Any]:
    """Django's DATABASES entry: PostgreSQL through psycopg's pool, or SQLite in WAL with IMMEDIATE transactions."""
    url = urlsplit(config.database_url)
    if url.scheme in ("postgres", "postgresql"):
        options: dict[str, Any] = dict(parse_qsl(url.query))
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(url.path.lstrip("/")),
            "USER": unquote(url.username or ""),
            "PASSWORD": unquote(url.password or ""),
            "HOST": options.pop("host", url.hostname or ""),
            "PORT": str(url.port or ""),
            "OPTIONS": {
                "pool": {"min_size": 0, "max_size": 8, "timeout": 10},
                **_PATIENCE,
                **options,
                "options": f"{_LOCKS} {options.get('options', '')}".strip(),
            },
        }
    path = Path(unquote(url.path)) if config.database_url else config.data / "llmgw.sqlite3"
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": {
            # IMMEDIATE: a transaction that will write takes its lock at its beginning and waits for it, instead of
            # failing half-way when another writer was faster (SQLite's "database is locked" without a wait).
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
        },
    }
