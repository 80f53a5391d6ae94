"""Works at once, each on a database connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django.db import connection

PATIENCE = 90.0
"""Seconds until threads that wait for each other are a failure."""


def at_once(*works: Callable[[], object]) -> list[BaseException]:
    """Begin all of these at the same moment; what they raised, once all have ended."""
    gate = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            gate.wait(PATIENCE)
            work()
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "they wait for each other"
    return errors
