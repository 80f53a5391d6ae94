"""A node that fetches and keeps weights."""

from __future__ import annotations

import pytest

from tests.workers.tasks.fetched import Keeper


@pytest.fixture
def machine() -> Keeper:
    found = Keeper("one")
    found.heartbeat()
    return found
