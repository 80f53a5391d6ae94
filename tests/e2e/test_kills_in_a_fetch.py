"""kill -9 of worker, gateway and agent while the whole of llmgw fetches 500 MB and serves them: the job ends as if nothing had been.

One machine is mirror and node at once, so its agent is what fetches; the gateway is how everybody hears of everybody; the worker
runs the job. The hub sends slowly, so that what it sent was received, and every byte that it sends is counted.
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiny
from tests.e2e.fetch_kills import Blows, served_under
from tests.hub.app import Hub
from tests.hub.serve import running
from tests.stack import Stack

pytestmark = [pytest.mark.prove, pytest.mark.slow, pytest.mark.live("up"), pytest.mark.timeout(1800)]
TWENTY = Blows(size=500 * 10**6, kills=20, services=("agent", "worker", "gateway"))


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as hub:
        yield hub


@pytest.fixture
def up(hub: Hub) -> Iterator[Stack]:
    folder = Path(tempfile.mkdtemp(prefix="llmgw-up-"))
    stack = Stack(
        folder / "d", HF_ENDPOINT=hub.base, LLMGW_PRIVATE_ADDRESSES="1", LLMGW_HEARTBEAT="1", LLMGW_RECONCILE="1"
    )
    try:
        stack.start()
        yield stack
        assert stack.stop() == 0, stack.tail()
    finally:
        stack.destroy()
        shutil.rmtree(folder, ignore_errors=True)


def test_twenty_kills_in_a_fetch_cost_the_segments_that_were_on_their_way(
    up: Stack, hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tests.e2e.fetch_kills")
    seed = random.randrange(1 << 30)
    logging.getLogger("tests.e2e.fetch_kills").info("seed %d", seed)
    job = served_under(TWENTY, up, hub, tmp_path, name="large", seed=seed)
    assert job["result"]["answer"].strip() == tiny.TEXT
