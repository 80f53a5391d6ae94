"""`llmgw check`: what is wrong with the settings and this machine, and how to mend it. Changes nothing.

Each check gives problems, each a sentence that ends with the way out; no problem is no line but the last one.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from llmgw_site.lib.config import Config, ConfigError, load
from llmgw_site.lib.errors import Refused

NEEDED = 107 - len("/run/valkey.sock")
"""Longest path of the data folder, bytes: unix(7) bounds a socket's path."""


def run(environ: Mapping[str, str]) -> int:
    """Print every problem; 1 if there is any."""
    try:
        config = load(environ)
    except ConfigError as error:
        return _report(error.problems)
    problems = [*(problem for check in CHECKS for problem in check(config)), *traces(environ)]
    if not problems:
        print(f"all is well: data in {config.data}, client listener {config.client_url}")
    return _report(problems)


def _report(problems: list[str]) -> int:
    for problem in problems:
        print(f"- {problem}")
    return 1 if problems else 0


def data_folder(config: Config) -> list[str]:
    """There or makeable, ours, closed to others, with room, and not too deep for unix sockets."""
    problems = []
    if len(bytes(config.data)) > NEEDED:
        problems.append(
            f"LLMGW_DATA={config.data} is longer than {NEEDED} bytes, too long for unix sockets: choose a shorter path"
        )
    place = config.data
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        problems.append(
            f"{place} cannot be written by this user: set LLMGW_DATA to a folder that can, or change its owner"
        )
        return problems
    if place == config.data and stat.S_IMODE(place.stat().st_mode) & 0o077:
        problems.append(f"{place} is open to other users and holds secrets: chmod 700 {place}")
    room = os.statvfs(place)
    if room.f_bavail * room.f_frsize < config.data_free:
        problems.append(
            f"{place} has less than LLMGW_DATA_FREE={config.data_free} bytes of disk left: make room or lower it"
        )
    return problems


def usage_folder(config: Config) -> list[str]:
    """Records of requests can be written."""
    if not config.usage.exists() or (config.usage.is_dir() and os.access(config.usage, os.W_OK | os.X_OK)):
        return []
    text = f"usage records cannot be written: {config.usage} is no folder that this user may write to"
    return [f"{text}: change its owner, or move away what is there"]


def ports(config: Config) -> list[str]:
    """Free, unless our own `up` holds them."""
    if _is_locked(config):
        return []
    from llmgw_site.up.ports import problems

    return problems(config)


def _is_locked(config: Config) -> bool:
    import fcntl

    try:
        with (config.run / "up.lock").open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _joined(config: Config) -> bool:
    """Whether this folder is a node of a cluster that another machine's controllers keep."""
    from llmgw_site.up.node import identity_of

    return identity_of(config) is not None


def engine(config: Config) -> list[str]:
    """Something that can run a model, and the quickstart model's file."""
    problems = []
    if find_spec("xllamacpp") is None:
        problems.append("no engine: install the extra `llama` (package xllamacpp), or serve from other nodes only")
    if config.quickstart and not _joined(config):
        from llmgw_site.up.quickstart import weights

        try:
            weights(config)
        except Refused as refused:
            problems.append(refused.message)
    return problems


def traces(environ: Mapping[str, str]) -> list[str]:
    """What the `OTEL_*` variables ask for can be had."""
    from routing.gateway.tracing import wanted

    asked = wanted(environ)
    if asked is True and find_spec("opentelemetry.exporter") is None:
        return ["OTEL_* variables ask for traces, but OpenTelemetry is not installed: install the extra `tracing`"]
    return [f"traces are not sent: {asked}"] if isinstance(asked, str) else []


def broker(config: Config) -> list[str]:
    """A Valkey that can be started, or the one that is named answers."""
    if not config.redis_url:
        if _joined(config):  # a node of another machine's cluster needs none
            return []
        from llmgw_site.up.valkey import program

        try:
            program()
        except Refused as refused:
            return [refused.message]
        return []
    url = urlsplit(config.redis_url)
    problem = _connect(Path(url.path)) if url.scheme == "unix" else _connect((url.hostname or "", url.port or 6379))
    return [f"LLMGW_REDIS_URL: nobody answers there ({problem}): start it, or mend the address"] if problem else []


def database(config: Config) -> list[str]:
    """PostgreSQL accepts our name and password; for SQLite there is nothing to reach."""
    if urlsplit(config.database_url).scheme not in ("postgres", "postgresql"):
        return []
    if find_spec("psycopg") is None:
        return ["DATABASE_URL names PostgreSQL, but psycopg is not installed: install the extra `controller`"]
    import psycopg

    try:
        psycopg.connect(config.database_url.replace("postgres://", "postgresql://", 1), connect_timeout=5).close()
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        return [f"DATABASE_URL: PostgreSQL cannot be opened ({reason}): start it, or mend name, password or address"]
    return []


def _connect(where: Path | tuple[str, int]) -> str:
    """Why nobody answers there; empty if somebody does."""
    try:
        if isinstance(where, Path):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.settimeout(5)
                link.connect(str(where))
        else:
            socket.create_connection(where, timeout=5).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


CHECKS: tuple[Callable[[Config], list[str]], ...] = (data_folder, usage_folder, ports, engine, broker, database)
