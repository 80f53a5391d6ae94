"""What tests of the agent share: a node with its controller, and a machine with its time by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.agent.bench import Bench
from tests.workers.agent.node import Node


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node whose controller answers; no agent runs yet. Everything that was started is ended."""
    node = Node(tmp_path / "data")
    node.controller.start()
    try:
        yield node
    finally:
        node.close()
