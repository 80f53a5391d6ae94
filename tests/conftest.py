"""Fixtures of every room: hypothesis profiles, a PostgreSQL server, a Valkey, free ports, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import redis
import uvicorn.server
from hypothesis import HealthCheck, settings

from tests import postgres, processes

SLOW = [HealthCheck.too_slow]
"""A machine that is busy with something else makes no test wrong. Nor do dice: each run tries the same examples, whoever's change it
is for, and `make prove` tries others each time."""
settings.register_profile("dev", max_examples=50, deadline=None, derandomize=True, suppress_health_check=SLOW)
settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, print_blob=True, suppress_health_check=SLOW
)
settings.register_profile("prove", max_examples=5000, deadline=None, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

pytest_plugins = ["tests.hub.stocked"]

DATABASE_FIXTURES = {"db", "transactional_db", "django_db_reset_sequences", "live_server", "admin_client", "admin_user"}
ANY_DATABASE = (
    "tests/arch/", "tests/admin/", "tests/api/test_permissions.py", "tests/api/test_schema.py",
    "tests/api/test_schema_fuzz.py", "tests/cluster/admin/", "tests/llmgw_site/cli/", "tests/llmgw_site/console/",
    "tests/api/test_bodies.py::test_what_is_no_object", "tests/api/test_bodies.py::test_a_field_that_nobody_knows",
    "tests/api/test_bodies.py::test_a_content_type", "tests/api/test_bodies.py::test_prove_that", "tests/api/test_roles.py::test_every_role",
    "tests/api/test_scopes.py::test_every_role", "tests/workers/test_celery.py",
)  # fmt: skip
"""Who may come in, bodies that are refused unread, the pages, and the command line, a client of the API: what they ask the database
is asked by the other tests of the API, the services and the selectors as well, and those run on both. (What stands in a body's
fields is none of these: PostgreSQL takes no NUL and no number beyond its columns.) Workers on PostgreSQL are those of the running cluster."""
BOTH = ("tests/llmgw_site/console/test_backchannel_logout.py",)
"""But these: rows that two requests write at once, which the pages and the API have nowhere else."""
CHAINS = (("up", "three"), ("cluster",), ("stack",))
"""Tests of running stacks, by the name in their mark `live`: those of a chain run one after the other on one worker, in this
order. The first two begin at once, and the next worker computes meanwhile: three starts at once would wait for each other."""
NAMES = [name for chain in CHAINS for name in chain]
LAST_BEGINS = 0.25
"""The last chain begins after this share of what computes, when another one is about to end."""
EARLY = (
    "tests/arch/test_permissions.py", "tests/arch/test_wheel.py", "tests/api/test_bodies.py", "tests/api/test_schema_fuzz.py", "tests/bench/",
    "tests/cluster/domain/simulation/", "tests/cluster/services/test_stale_plans.py", "tests/cluster/services/test_stalls.py",
    "tests/cluster/test_migrations.py", "tests/catalog/test_migrations.py", "tests/routing/gateway/test_soak.py",
    "tests/sim/", "tests/workers/agent/test_agent.py", "tests/workers/agent/test_fetching.py", "tests/workers/test_celery.py",
)  # fmt: skip
"""What takes seconds begins early, so that no worker is alone with it at the end."""
DATABASE_TESTS = "DATABASE_TESTS"
"""Names a file for the names of the files with tests that run once more on PostgreSQL: no others need be collected there."""
PROVE_WITHIN = 3000
"""Seconds for one test of long counts, whoever runs it and beside what; `make prove` gives as much to all of its tests."""
MARK = "LLMGW_TEST_RUN"
"""Every process that a test starts inherits this variable, whatever becomes of its parent."""


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(MARK, f"{os.getpid()}")
    _compile_once()


def _compile_once() -> None:
    """Also where Python is told to write no bytecode: the tests start some hundred processes, and each would compile all of
    llmgw anew (`web` takes 2.7 s of a core so, and 0.8 s otherwise). It lies beside the code, where git ignores it: a folder
    apart would have none of the packages that were compiled when they were installed."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _turn(item: pytest.Item) -> tuple[int, int]:
    """What begins first, for a sort that leaves all else as it was mixed."""
    if mark := item.get_closest_marker("live"):
        return 0, NAMES.index(mark.args[0])
    return (1 if item.nodeid.startswith(EARLY) else 2), 0


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks that nobody can forget: `django_db` for what opens the database, `any_database` for what needs no second one,
    `property` for what hypothesis drives, the time that long counts take, which is no hang, and who keeps to one worker. Long
    counts keep to their own stack alone: there are more of them than two workers could do one after the other."""
    chains = {name: "-".join(chain) for chain in CHAINS for name in chain}
    for item in items:
        if live := item.get_closest_marker("live"):
            name = live.args[0]
            item.add_marker(pytest.mark.xdist_group(name if item.get_closest_marker("prove") else chains[name]))
        if item.get_closest_marker("prove") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PROVE_WITHIN))
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.property)
        if DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())) and not item.get_closest_marker("django_db"):
            item.add_marker(pytest.mark.django_db)
        if item.nodeid.startswith(ANY_DATABASE) and not item.nodeid.startswith(BOTH):
            item.add_marker(pytest.mark.any_database)
    items.sort(key=_turn)
    if (told := os.environ.get(DATABASE_TESTS)) and os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
        again = {str(item.path) for item in items if item.get_closest_marker("django_db") and not _only_here(item)}
        Path(told).write_text("\n".join(sorted(again)))


def _only_here(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("any_database") or item.get_closest_marker("prove"))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist tells what there is
def pytest_collection_finish(session: pytest.Session) -> None:
    """What opens the database computes, and much of the rest waits: workers get both all the time. pytest-django puts all of the
    rest behind, where every worker would wait and the cores be idle. The order among either is kept."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    kinds: tuple[list[pytest.Item], ...] = ([], [], [])
    for item in session.items:
        kinds[0 if item.get_closest_marker("live") else 1 if item.get_closest_marker("django_db") else 2].append(item)
    live, *others = kinds
    mixed = [((number + 0.5) / len(kind), item) for kind in others for number, item in enumerate(kind)]
    mixed += [(LAST_BEGINS if NAMES[_turn(item)[1]] in CHAINS[-1] else 0.0, item) for item in live]
    session.items[:] = [item for _, item in sorted(mixed, key=lambda pair: pair[0])]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """After the last test no process that a test started may be alive. Checked once, where all workers have ended."""
    if hasattr(session.config, "workerinput"):
        return
    ours = {os.getpid(), os.getppid()}
    folders = str(session.config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]

    def leftovers() -> set[int]:
        # an agent gives its engines a clean environment: they are known by the data folder they belong to
        engines = processes.with_environ("LLMGW_AGENT_DATA", folders, prefix=True)
        return {*processes.with_environ(MARK, os.environ[MARK]), *engines} - ours

    try:
        processes.wait_for(lambda: not leftovers(), seconds=30, what="leftovers to end")
    except AssertionError:
        left = {pid: _command(pid) for pid in leftovers()}
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\nPROCESSES LEFT BEHIND: {left}", red=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What tests measured (`record_property`), so that it stands written down and not only that it was within its bound."""
    told = [
        f"{report.nodeid}: " + ", ".join(f"{name} {value}" for name, value in report.user_properties)
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call" and report.user_properties
    ]
    if told:
        terminalreporter.section("measured")
    for line in told:
        terminalreporter.write_line(line)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "ended"


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A test with transactions of its own empties all tables at its end, and Django makes permissions anew, with some
    hundred queries. Here they are kept and put back as they were. On PostgreSQL it would also have new files made for all
    tables, 70 ms; to delete the few rows that are there takes one."""
    from asgiref.sync import SyncToAsync
    from django.contrib.auth.models import Permission
    from django.contrib.contenttypes.models import ContentType
    from django.db import connection, connections, models

    with django_db_blocker.unblock():
        kept: list[list[models.Model]] = [list(ContentType.objects.all()), list(Permission.objects.all())]

    def put_back(*args: Any, **kwargs: Any) -> None:
        for rows in kept:
            type(rows[0])._default_manager.bulk_create(rows)

    def delete(
        style: Any, tables: list[str], *, reset_sequences: bool = False, allow_cascade: bool = False
    ) -> list[str]:
        assert not reset_sequences, "a test that needs its sequences reset: not thought of here"
        return ["; ".join(f"DELETE FROM {connection.ops.quote_name(table)}" for table in tables)]

    with ExitStack() as changed:
        changed.enter_context(mock.patch("django.core.management.commands.flush.emit_post_migrate_signal", put_back))
        if connection.vendor == "postgresql":
            changed.enter_context(mock.patch.object(connection.ops, "sql_flush", delete))
        yield
    # asgiref's thread, which lives as long as the process, keeps a connection if the last to use one there was not Django:
    # PostgreSQL deletes no database that somebody is connected to
    SyncToAsync.single_thread_executor.submit(connections.close_all).result(30)


class _Often:
    """asyncio, whose sleeps are a tenth as long."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(delay: float) -> None:
        await asyncio.sleep(delay / 10)


@pytest.fixture(autouse=True, scope="session")
def _uvicorn_looks_often() -> Iterator[None]:
    """uvicorn looks each 0.1 s whether it shall end, and then whether its connections have: with some thousand servers in these
    tests, that were minutes of waiting for nothing."""
    with mock.patch.object(uvicorn.server, "asyncio", _Often()):
        yield


@pytest.fixture
def free_port() -> int:
    """A port of 127.0.0.1 to bind; ask `tests.processes.free_port` for more."""
    return processes.free_port()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of this worker: the address of its database `postgres`. Tests that use it are slow."""
    with postgres.server() as url:
        yield url


@pytest.fixture(scope="session")
def _valkey() -> Iterator[str]:
    from django.conf import settings as django

    from llmgw_site.up.valkey import Valkey

    with Valkey(django.CONFIG) as valkey:
        yield valkey.url


@pytest.fixture
def valkey_url(_valkey: str) -> str:
    """A real Valkey of this worker on the unix socket that settings.REDIS_URL names, so Celery and Channels find it; gives that
    URL. Nothing is in it of the tests before, but for the queues' names: Celery's client tells of each only once."""
    with redis.Redis.from_url(_valkey) as client:
        if left := [key for key in client.scan_iter() if not key.startswith(b"_kombu.binding.")]:
            client.delete(*left)
    return _valkey
