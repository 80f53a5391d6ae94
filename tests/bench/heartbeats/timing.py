"""Adds up the time that each agent's call in the measured `web` waits for the database, and says so in its answer.

Measured where queries are sent, so it holds the way to the server and back and psycopg's own work, not only the server's.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from django.apps import AppConfig
from django.db.backends.signals import connection_created

HEADER = "x-bench-database"
_spent = threading.local()


class Timing(AppConfig):
    name = "tests.bench.heartbeats"
    label = "bench_heartbeats"

    def ready(self) -> None:
        from cluster.services import calls

        connection_created.connect(_wrap, weak=False)
        signed = calls._signed

        def told(*args: Any) -> Any:
            response = signed(*args)
            times, _spent.times = getattr(_spent, "times", []), []
            response[HEADER] = f"{sum(times):.6f} {len(times)}"
            return response

        calls._signed = told


def _wrap(*, connection: Any, **kwargs: Any) -> None:
    if _timed not in connection.execute_wrappers:
        connection.execute_wrappers.append(_timed)


def _timed(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    began = time.perf_counter()
    try:
        return execute(sql, params, many, context)
    finally:
        times = _spent.__dict__.setdefault("times", [])
        times.append(time.perf_counter() - began)
