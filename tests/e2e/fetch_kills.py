"""A fetch of the whole of llmgw during which services are killed: what is common to the long form and the short one."""

from __future__ import annotations

import hashlib
import logging
import random
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from catalog.domain.spans import SEGMENT
from catalog.mirror.fetch import CONNECTIONS
from llmgw_site.cli.client import CliError
from llmgw_site.lib.units import MIB
from tests import tiny
from tests.hub.app import PIECE, Hub
from tests.hub.repos import Repo
from tests.processes import fair, wait_for
from tests.stack import SERVICES, Stack

log = logging.getLogger(__name__)
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


@dataclass(frozen=True, kw_only=True)
class Blows:
    """`kills` at random moments of a fetch of `size` bytes, up to this part of it, of these services in turn."""

    size: int
    kills: int
    services: tuple[str, ...]
    latest: float = 0.9


def served_under(blows: Blows, up: Stack, hub: Hub, folder: Path, *, name: str, seed: int) -> dict[str, Any]:
    """Serve a model of a new repository: the job, which ends as if nothing had been, and little was fetched twice."""
    dice = random.Random(seed)
    source = folder / f"{name}-F16.gguf"
    sha256 = padded(source, blows.size, dice)
    hub.add(Repo(f"org/{name}-GGUF")).commit({source.name: source})
    hub.faults.chunk_pause = PIECE * CONNECTIONS / RATE
    before = hub.sent()
    args = {"source": [f"org/{name}-GGUF"], "name": name, "way": "processor"}
    job = up.api().post("jobs", {"kind": "serve", "args": args})
    wait_for(lambda: _of_version(up, source.name + ".map"), seconds=fair(60), what=f"the fetch to begin: {up.tail()}")
    read = hub.sent() - before  # of its header, to plan it
    moments = sorted(dice.uniform(0.02, blows.latest) * blows.size for _ in range(blows.kills))
    _killed_in_turn(up, hub, moments, blows.services)
    assert _of_version(up, source.name + ".map"), "every kill is in the fetch"
    hub.faults.hold_after = None
    hub.faults.chunk_pause = 0.0

    done = wait_for(partial(_ended, up, job["id"]), seconds=fair(300), what=f"the job: {up.tail()}", every=0.2)
    assert done is not None
    assert done["state"] == "done", done
    assert all(row["whole"] for row in up.api().get("mirror"))
    (path,) = _of_version(up, f"{name}-F16.gguf*")  # and no part and no map beside it
    assert path.name == source.name
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == sha256
    agents = sum(blows.services[at % len(blows.services)] == "agent" for at in range(blows.kills))
    twice = hub.sent() - before - blows.size
    log.info("%.1f MB twice, %.1f MB to plan; the agent was killed %d times", twice / 1e6, read / 1e6, agents)
    # who does not fetch costs no byte, but for the header that a worker reads again: held to less than was promised
    assert 0 <= twice <= (agents * CONNECTIONS + 1) * SEGMENT
    what = f"the stack to be whole: {up.tail()}"
    wait_for(lambda: up.services() == set(SERVICES), seconds=fair(30), what=what, every=0.2)
    wait_for(lambda: up.answers(name), seconds=fair(30), what=f"{what} to answer", every=0.2)
    return done


def _of_version(up: Stack, name: str) -> list[Path]:
    """Files of this name in the node's store: `.map` is there exactly while the file is not whole."""
    return list((up.data / "weights").glob(f"ver_*/files/{name}"))


def _ended(up: Stack, job_id: str) -> dict[str, Any] | None:
    """The job, if it has ended and somebody answers who knows it."""
    with suppress(CliError):
        job = up.api().get(f"jobs/{job_id}")
        return dict(job) if job["state"] not in ("queued", "running") else None
    return None


def _killed_in_turn(up: Stack, hub: Hub, moments: list[float], services: tuple[str, ...]) -> None:
    """One kill at each of these counts of bytes sent from now on. After the last one the hub is still held."""
    began = hub.sent()

    def sent(count: float) -> bool:
        return hub.sent() - began >= int(count)

    for number, moment in enumerate(moments):
        hub.faults.hold_after = began + int(moment)  # it goes no further before we have killed, however late we look
        what = f"{moment:.0f} bytes: {up.tail()}"
        wait_for(partial(sent, moment), seconds=fair(300), what=what)
        service = services[number % len(services)]
        up.kill(service)
        log.info("%s killed at %.1f MB", service, (hub.sent() - began) / 1e6)
