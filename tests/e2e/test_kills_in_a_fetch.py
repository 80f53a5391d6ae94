"""kill -9 of worker, gateway and agent while the whole of llmgw fetches 500 MB and serves them: the job ends as if nothing had been.

One machine is mirror and node at once, so its agent is what fetches; the gateway is how everybody hears of everybody; the worker
runs the job. The hub sends slowly, so that what it sent was received, and every byte that it sends is counted.
"""

from __future__ import annotations

import hashlib
import logging
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from catalog.domain.spans import SEGMENT
from catalog.mirror.fetch import CONNECTIONS
from llmgw_site.cli.client import CliError
from llmgw_site.lib.units import MIB
from tests import tiny
from tests.hub.app import PIECE, Hub
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.processes import fair, wait_for
from tests.stack import SERVICES, Stack

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.prove, pytest.mark.slow, pytest.mark.live("up"), pytest.mark.timeout(1800)]
SIZE = 500 * 10**6
KILLS = 20
KILLED = ("agent", "worker", "gateway")
RATE = 8 * 10**6
"""Bytes a second that the hub sends over all connections."""


def padded(path: Path, size: int, dice: random.Random) -> str:
    """A model that answers, in a file of this size: behind its tensors come bytes that repeat nowhere. Gives the SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        piece = tiny.tiny_gguf().read_bytes()
        while piece:
            digest.update(piece)
            file.write(piece)
            piece = dice.randbytes(min(MIB, size - file.tell()))
    return digest.hexdigest()


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


def of_version(up: Stack, ending: str) -> list[Path]:
    """Files of the version in the node's store: `.map` is there exactly while the file is not whole."""
    return list((up.data / "weights").glob(f"ver_*/files/*{ending}"))


def ended(up: Stack, job_id: str) -> dict[str, Any] | None:
    """The job, if it has ended and somebody answers who knows it."""
    with suppress(CliError):
        job = up.api().get(f"jobs/{job_id}")
        return dict(job) if job["state"] not in ("queued", "running") else None
    return None


def killed_in_turn(up: Stack, hub: Hub, moments: list[float]) -> None:
    """One kill at each of these counts of bytes sent from now on. Not whole after the last: every kill was in the fetch."""
    began = hub.sent()

    def sent(count: float) -> bool:
        return hub.sent() - began >= count

    for number, moment in enumerate(moments):
        what = f"{moment:.0f} bytes: {up.tail()}"
        wait_for(partial(sent, moment), seconds=fair(300), what=what)
        service = KILLED[number % len(KILLED)]
        up.kill(service)
        log.info("%s killed at %.1f MB", service, (hub.sent() - began) / 1e6)
    assert of_version(up, ".map")


def test_twenty_kills_in_a_fetch_cost_the_segments_that_were_on_their_way(
    up: Stack, hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=__name__)
    seed = random.randrange(1 << 30)
    log.info("seed %d", seed)
    dice = random.Random(seed)
    source = tmp_path / "large-F16.gguf"
    sha256 = padded(source, SIZE, dice)
    hub.add(Repo("org/large-GGUF")).commit({source.name: source})
    hub.faults.chunk_pause = PIECE * CONNECTIONS / RATE

    args = {"source": ["org/large-GGUF"], "name": "large", "way": "processor"}
    job = up.api().post("jobs", {"kind": "serve", "args": args})
    wait_for(lambda: of_version(up, ".map"), seconds=fair(60), what=f"the fetch to begin: {up.tail()}")
    read = hub.sent()  # of its header, to plan it
    killed_in_turn(up, hub, sorted(dice.uniform(0.02, 0.9) * SIZE for _ in range(KILLS)))
    hub.faults.chunk_pause = 0.0

    done = wait_for(partial(ended, up, job["id"]), seconds=fair(300), what=f"the job: {up.tail()}", every=0.2)
    assert done is not None
    assert done["state"] == "done", done
    assert done["result"]["answer"].strip() == tiny.TEXT
    (row,) = up.api().get("mirror")
    assert row["whole"]
    (path,) = of_version(up, "")  # and no part and no map beside it
    assert path.name == source.name
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == sha256
    twice, agents = hub.sent() - SIZE, len(range(KILLED.index("agent"), KILLS, len(KILLED)))
    log.info("%.1f MB twice, %.1f MB to plan; the agent was killed %d times", twice / 1e6, read / 1e6, agents)
    # who does not fetch costs no byte, but for the header that a worker reads again: held to less than was promised
    assert 0 <= twice <= (agents * CONNECTIONS + 1) * SEGMENT
    what = f"the stack to be whole: {up.tail()}"
    wait_for(lambda: up.services() == set(SERVICES), seconds=fair(30), what=what, every=0.2)
    wait_for(lambda: up.answers("large"), seconds=fair(30), what=f"{what} to answer", every=0.2)
